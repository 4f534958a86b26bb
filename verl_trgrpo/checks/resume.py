"""Check that a run resumes with what its checkpoint holds, and that it saves checkpoints which can be resumed from.

veRL loads only what ``checkpoint.load_contents`` names, which is ``save_contents`` by default, and says nothing about the
rest: without ``model`` in it the run goes on from the step of the checkpoint with the weights of the base model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_trgrpo.checks.files import RESUME_PATH
from verl_trgrpo.checks.view import CRITIC, RunView
from verl_trgrpo.common.findings import Finding, InvalidInputError, Level
from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.common.typed import Schema, read_typed
from verl_trgrpo.runs.checkpoints import (
    DATA_STATE,
    FSDP_RECORD,
    checkpoints,
    choose_checkpoint,
    damage,
    has_whole_model,
    is_whole,
    shards,
    step_of,
)
from verl_trgrpo.runs.keys import GPUS, MODEL_PATH
from verl_trgrpo.runs.run_directory import data_fingerprints, length_asked_for, read_config, recorded_files
from verl_trgrpo.runs.weights import broken_weights

# Kinds of content, and the names of their shards.
_SHARDS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
_LOST = {"optimizer": "the optimizer starts anew", "extra": "the learning-rate schedule and random state start over"}
# Strategies that save one shard of each kind per rank, with their FSDP version where it is fixed.
_SHARDED: dict[Any, int | None] = {"fsdp": 1, "fsdp2": 2, "fsdp_turbo": None, "veomni": None}


class ShardRecord(Schema):
    """``fsdp_config.json`` of a checkpoint: the version of FSDP that saved it."""

    FSDP_version: int | None = None


def resume_findings(view: RunView) -> list[Finding]:
    """Check what a run will save, and what it resumes from unless it is finished."""
    try:
        return [*_saving_findings(view), *([] if view.finished else loading_findings(view, weights=True))]
    except ValueError as error:  # a file of the run is damaged
        return [Finding.error("trainer.default_local_dir", str(error))]


def loading_findings(view: RunView, weights: bool = False) -> list[Finding]:
    """Check the checkpoint that a run would resume from, if there is one; its path has passed the checks of files.

    With `weights` also whether its weights are finite, which reads them all.
    """
    mode = view.config.trainer.resume_mode

    def look(checkpoint: Path) -> list[Finding]:
        return _checkpoint_findings(checkpoint, view) or (_weights_findings(checkpoint, view) if weights else [])

    if mode == "resume_path":
        checkpoint = Path(view.config.trainer.resume_from_path)
        if problems := damage(checkpoint):
            return [view.finding(RESUME_PATH, f"{problem}; choose another checkpoint") for problem in problems]
        state, findings = checkpoint / DATA_STATE, look(checkpoint)
        if not state.exists():
            reason = f"{DATA_STATE} is missing; the order of the data starts over"
            findings.insert(0, view.finding(RESUME_PATH, reason, Level.WARNING))
        elif not is_whole(state):
            reason = f"{DATA_STATE} is cut short, which stops veRL; rename the file, and the data start over"
            findings.insert(0, view.finding(RESUME_PATH, reason))
        return findings
    if mode != "auto":
        return []
    try:
        chosen, _ = choose_checkpoint(view.run.directory)
    except InvalidInputError as error:
        return [Finding.error("trainer.default_local_dir", message) for message in error.messages]
    if chosen is None:
        return []
    return [*_offering_another(look, chosen, view), *_changed_findings(chosen, view)]


def _offering_another(look: Callable[[Path], list[Finding]], chosen: Path, view: RunView) -> list[Finding]:
    """Return what `look` finds about a checkpoint, with the latest other one that the run can resume from in its errors."""
    findings = look(chosen)
    if not any(each.level is Level.ERROR for each in findings):
        return findings
    earlier = sorted((path for path in checkpoints(view.run.directory) if path != chosen), key=step_of, reverse=True)
    for other in earlier:
        if not damage(other) and not any(each.level is Level.ERROR for each in look(other)):
            offer = f", or go on from {other.name}: trainer.resume_mode=resume_path {RESUME_PATH}={other}"
            return [replace(each, message=each.message + offer * (each.level is Level.ERROR)) for each in findings]
    return findings


def _changed_findings(checkpoint: Path, view: RunView) -> Iterator[Finding]:
    """Warn of what may differ from the attempts before and still changes what the run learns: data files, and its length."""
    directory = view.run.directory
    trained_on, now = recorded_files(directory), data_fingerprints(view.config)
    for key, names in now.items():
        for name, fingerprint in names.items():
            if name in trained_on and trained_on[name] != fingerprint:
                reason = (
                    f"{name} has other content than in the run so far; the resumed run goes on with the new rows, so restore "
                    "the file, or start over with trainer.resume_mode=disable"
                )
                yield view.finding(key, reason, Level.WARNING)
    recorded = read_config(directory)
    lengths = [length_asked_for(config) for config in (recorded, view.config) if config is not None]
    for _, section in _models(view):
        for name in ("lr_scheduler_type", "lr_decay_style"):
            key = f"{section}.optim.{name}"
            if lengths[0] != lengths[-1] and view[key] not in (None, "constant"):
                there, here = (" ".join(f"{name}={value}" for name, value in length.items()) for length in lengths)
                reason = (
                    f"the learning rate follows the length of the run, which was {there} and is {here} now, so its curve bends "
                    f"at step {step_of(checkpoint)}; keep the length, or set {key}=constant"
                )
                yield view.finding(key, reason, Level.WARNING)


def _saving_findings(view: RunView) -> list[Finding]:
    """Check that a run saves checkpoints, and that they can be resumed from."""
    key = "trainer.save_freq"
    if view.config.trainer.save_freq <= 0:
        reason = f"no checkpoint is saved, the trained model is lost at the end; set {key} to a number of steps"
        return [] if view["trainer.val_only"] else [view.finding(key, reason, Level.WARNING)]
    findings = []
    for _, section in _models(view):
        save_key, load_key = (f"{section}.checkpoint.{verb}_contents" for verb in ("save", "load"))
        saved, loaded = _contents(view, save_key), _contents(view, load_key)
        usual = _listed(dict.fromkeys([*_SHARDS, *saved]))
        if view[f"{section}.strategy"] not in _SHARDED:
            continue
        if "model" not in saved:
            remedy = f"set {save_key}={usual} unless they are only evaluated"
            message = f"lacks model, so the checkpoints cannot be resumed from; {remedy}"
            findings.append(Finding.warning(save_key, f"{save_key}={_listed(saved)}: {message}"))
        elif "model" not in loaded:
            message = (
                f"lacks model, so a resumed run would start from the base model, and is refused; set {load_key}={usual}"
            )
            findings.append(Finding.warning(load_key, f"{load_key}={_listed(loaded)}: {message}"))
        elif unsaved := [kind for kind in loaded if kind in _SHARDS and kind not in saved]:
            reason = f"{' and '.join(unsaved)} will not be saved, so a resumed run would be refused"
            remedy = f"set {save_key}={_listed([*saved, *unsaved])}"
            findings.append(Finding.warning(load_key, f"{load_key}={_listed(loaded)}: {reason}; {remedy}"))
    return findings


def _checkpoint_findings(checkpoint: Path, view: RunView) -> list[Finding]:
    """Check that an undamaged checkpoint holds what a run loads, saved by the same strategy and number of ranks."""
    findings = []
    for name, section in _models(view):
        key, strategy = f"{section}.strategy", view[f"{section}.strategy"]
        if strategy in _SHARDED:
            findings += _sharded_findings(checkpoint / name, section, view)
        else:
            reason = f"how it saves checkpoints is not known here, so {checkpoint} was not checked"
            findings.append(view.finding(key, reason, Level.NOT_CHECKED))
    return findings


def _weights_findings(checkpoint: Path, view: RunView) -> list[Finding]:
    """Check that the weights of an undamaged checkpoint are finite."""
    findings = []
    for name, section in _models(view):
        key = f"{section}.checkpoint.load_contents"
        try:
            if broken := broken_weights(checkpoint / name):
                findings.append(Finding.error(key, f"{broken}; start over with trainer.resume_mode=disable"))
        except ForeignFileError as error:
            findings.append(Finding.warning(key, str(error)))
    return findings


def _sharded_findings(directory: Path, section: str, view: RunView) -> list[Finding]:
    """Check one model of a checkpoint for the strategies that save ``KIND_world_size_N_rank_R.pt``."""
    key, load_key = f"{section}.strategy", f"{section}.checkpoint.load_contents"
    loaded = _contents(view, load_key)
    try:
        version, found = _SHARDED[view[key]], read_typed(directory / FSDP_RECORD, ShardRecord).FSDP_version
    except ForeignFileError as error:
        return [Finding.error(key, f"{key}: {error}")]
    if version and found in (1, 2) and found != version:
        reason = (
            f"{directory} was saved by FSDP version {found}, whose files it cannot load; use the strategy that saved it"
        )
        return [view.finding(key, f"{reason}, or {_weights_fix(directory, section)}")]
    sizes = {kind: {size for name, size, _ in shards(directory) if name == prefix} for kind, prefix in _SHARDS.items()}
    held = [kind for kind, found_in in sizes.items() if view.gpus in found_in]
    if sizes["model"] and "model" not in held:
        there, ranks = min(sizes["model"]), f"times trainer.nnodes={view['trainer.nnodes']} makes {view.gpus} ranks"
        fix = f"use {there}, or {_weights_fix(directory, section)}"
        return [view.finding(GPUS, f"{ranks}, {directory} was saved by {there}, and veRL does not reshard; {fix}")]
    lead = f"{load_key}={_listed(loaded)}"
    if "model" not in loaded or "model" not in held:
        reason = f"{lead}: {directory} holds no shards of model" if "model" not in held else f"{lead}: lacks model"
        fix = f"set {load_key}={_listed(held)}" if "model" in held else _weights_fix(directory, section)
        return [Finding.error(load_key, f"{reason}, so the run would go on with the weights of the base model; {fix}")]
    if missing := [kind for kind in _LOST if kind in loaded and kind not in held]:
        reason = f"{lead}: {directory} holds no shards of {' and '.join(missing)}, so veRL cannot load these"
        lost = ", ".join(_LOST[kind] for kind in missing)
        return [Finding.error(load_key, f"{reason}; set {load_key}={_listed(held)} ({lost})")]
    return [
        Finding.warning(load_key, f"{lead}: lacks {kind}, so {lost} in the resumed run; add {kind}")
        for kind, lost in _LOST.items()
        if kind not in loaded
    ]


def _models(view: RunView) -> Iterator[tuple[str, str]]:
    """Yield the models that a checkpoint has: the name of the directory, and the section of the configuration."""
    yield "actor", "actor_rollout_ref.actor"
    if view.needs_critic:
        yield "critic", "critic"


def _contents(view: RunView, key: str) -> list[str]:
    """Return the kinds under `key`, veRL's own default where it has no value."""
    return list(_SHARDS) if view[key] is None else [str(kind) for kind in view[key]]


def _listed(kinds: Iterable[str]) -> str:
    """Return kinds as they are written in an override."""
    return f"[{','.join(kinds)}]"


def _weights_fix(directory: Path, section: str) -> str:
    """Return how to go on from a checkpoint's weights where it cannot be resumed from."""
    key = CRITIC if section == "critic" else MODEL_PATH
    if has_whole_model(directory):
        start = f"start another run from its weights with {key}={directory / 'huggingface'} and another trainer.experiment_name"
    elif any(name == "model" for name, _, _ in shards(directory)):
        start = f"export its weights (`verl-trgrpo export RUN --out DIR`) and start another run from them with {key}"
    else:
        start = "choose another checkpoint"
    return f"{start}, or start over with trainer.resume_mode=disable"
