"""Check that a run resumes with what its checkpoint holds, and that it saves checkpoints which can be resumed from.

veRL loads only what ``checkpoint.load_contents`` names, which is ``save_contents`` by default, and says nothing about the
rest: without ``model`` in it the run goes on from the step of the checkpoint with the weights of the base model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.files import CRITIC, RESUME_PATH, decoder_value, model_content, needs_critic
from verl_trgrpo.common.files import read_json
from verl_trgrpo.common.findings import Finding, InvalidInputError, Level
from verl_trgrpo.runs.checkpoints import DATA_STATE, FSDP_RECORD, choose_checkpoint, damage, is_whole, shards
from verl_trgrpo.runs.compose import selected
from verl_trgrpo.runs.keys import GPUS, MODEL_PATH

# Kinds of content, and the names of their shards.
_SHARDS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
_LOST = {"optimizer": "the optimizer starts anew", "extra": "the learning-rate schedule and random state start over"}
# Figures of a model's config.json that the shapes of its weights depend on, and veRL's record of a LoRA adapter.
_SHAPES = (
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",
)  # fmt: skip
_LORA_RECORD = "lora_train_meta.json"
# Strategies that save one shard of each kind per rank, with their FSDP version where it is fixed.
_SHARDED: dict[Any, int | None] = {"fsdp": 1, "fsdp2": 2, "fsdp_turbo": None, "veomni": None}


def resume_findings(config: DictConfig) -> list[Finding]:
    """Check the checkpoint that the run would resume from, if there is one.

    Args:
        config: of the run; ``trainer.resume_from_path`` has passed the checks of files.
    """
    mode = config.trainer.resume_mode
    if mode == "resume_path":
        checkpoint = Path(config.trainer.resume_from_path)
        broken = [
            Finding.error(RESUME_PATH, f"{RESUME_PATH}={checkpoint}: {problem}; choose another checkpoint")
            for problem in damage(checkpoint)
        ]
        return broken or [*_data_state_findings(checkpoint), *checkpoint_findings(checkpoint, config)]
    run_dir = Path(config.trainer.default_local_dir)
    if mode != "auto":
        return []
    try:
        chosen, _ = choose_checkpoint(run_dir)
    except InvalidInputError as error:
        return [Finding.error("trainer.default_local_dir", message) for message in error.messages]
    return checkpoint_findings(chosen, config) if chosen else []


def _data_state_findings(checkpoint: Path) -> list[Finding]:
    state = checkpoint / DATA_STATE
    if is_whole(state):
        return []
    if state.exists():
        message = f"{RESUME_PATH}={checkpoint}: {DATA_STATE} is cut short, which stops veRL; rename it, and the data start over"
        return [Finding.error(RESUME_PATH, message)]
    message = f"{RESUME_PATH}={checkpoint}: {DATA_STATE} is missing; the order of the data starts over"
    return [Finding.warning(RESUME_PATH, message)]


def checkpoint_findings(checkpoint: Path, config: DictConfig) -> list[Finding]:
    """Check that a checkpoint holds what a run will load from it, saved by the same strategy and number of ranks.

    Args:
        checkpoint: an undamaged ``global_step_N``.
        config: of the run that resumes.

    Returns:
        an error for each thing that would stop veRL or resume with other weights, a warning for state that is not restored,
        and "not checked" for strategies whose files are not known here.
    """
    findings: list[Finding] = []
    for name, section in _models(config):
        strategy = selected(config, f"{section}.strategy")
        if strategy == "megatron":
            findings += _megatron_findings(checkpoint / name, section, config)
        elif strategy in _SHARDED:
            other = _other_model_findings(checkpoint / name, section, config)
            findings += other or _sharded_findings(checkpoint / name, section, config)
        else:
            key = f"{section}.strategy"
            message = f"{key}={strategy}: how it saves checkpoints is not known here, so {checkpoint} was not checked"
            findings.append(Finding.not_checked(key, message))
    return findings


def saving_findings(config: DictConfig) -> list[Finding]:
    """Check that the checkpoints that a run will save can be resumed from."""
    if config.trainer.save_freq <= 0:
        return []
    findings = []
    for _, section in _models(config):
        strategy = selected(config, f"{section}.strategy")
        save_key, load_key = (f"{section}.checkpoint.{verb}_contents" for verb in ("save", "load"))
        saved, loaded = _contents(config, save_key), _contents(config, load_key)
        usual = _listed(dict.fromkeys([*_SHARDS, *saved]))
        if not _has_weights(saved, strategy):
            message = (
                f"{save_key}={_listed(saved)}: lacks model, so the checkpoints cannot be resumed from; "
                f"set it to {usual} unless they are only to be evaluated"
            )
            findings.append(Finding.warning(save_key, message))
        elif not _has_weights(loaded, strategy):
            message = (
                f"{load_key}={_listed(loaded)}: lacks model, so a resumed run would go on with the weights of the base "
                f"model, and is refused; set it to {usual}"
            )
            findings.append(Finding.warning(load_key, message))
        known = [*_SHARDS, "hf_model"] if strategy == "megatron" else list(_SHARDS)
        if missing := [kind for kind in loaded if kind in known and kind not in saved]:
            # With another mode it is not this run's own checkpoints that it loads.
            level = Level.ERROR if config.trainer.resume_mode == "auto" else Level.WARNING
            message = (
                f"{load_key}={_listed(loaded)}: {save_key}={_listed(saved)} does not save {', '.join(missing)}, so "
                "veRL could not load the checkpoints; name the same in both"
            )
            findings.append(Finding(level, load_key, message))
    return findings


def _models(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Yield the models that a checkpoint has: the name of the directory, and the section of the configuration."""
    yield "actor", "actor_rollout_ref.actor"
    if needs_critic(config):
        yield "critic", "critic"


def _contents(config: DictConfig, key: str) -> list[str]:
    """Return the kinds under `key`, veRL's own default where it has no value."""
    found = selected(config, key)
    return list(_SHARDS) if found is None else [str(kind) for kind in found]


def _listed(kinds: Iterable[str]) -> str:
    """Return kinds as they are written in an override."""
    return f"[{','.join(kinds)}]"


def _has_weights(contents: Sequence[str], strategy: Any) -> bool:
    """Return whether weights are among what veRL loads; Megatron alone loads hf_model, too."""
    return "model" in contents or (strategy == "megatron" and "hf_model" in contents)


def _sharded_findings(directory: Path, section: str, config: DictConfig) -> list[Finding]:
    """Check one model of a checkpoint for the strategies that save ``KIND_world_size_N_rank_R.pt``."""
    strategy, load_key = selected(config, f"{section}.strategy"), f"{section}.checkpoint.load_contents"
    loaded = _contents(config, load_key)
    if found := _saved_by(directory, _SHARDED[strategy]):
        return [_strategy_finding(directory, section, strategy, found)]
    ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes
    sizes = {kind: {size for name, size, _ in shards(directory) if name == prefix} for kind, prefix in _SHARDS.items()}
    held = [kind for kind in _SHARDS if ranks in sizes[kind]]
    if sizes["model"] and "model" not in held:
        there = min(sizes["model"])
        message = (
            f"{GPUS}={config.trainer.n_gpus_per_node}: times trainer.nnodes={config.trainer.nnodes} makes {ranks} ranks, "
            f"{directory} was saved by {there}, and veRL does not reshard; use {there}, or {_weights_fix(directory, section)}"
        )
        return [Finding.error(GPUS, message)]
    lead = f"{load_key}={_listed(loaded)}"
    if "model" not in loaded or "model" not in held:
        reason = f"{lead}: {directory} holds no shards of model" if "model" not in held else f"{lead}: lacks model"
        fix = f"set it to {_listed(held)}" if "model" in held else _weights_fix(directory, section)
        message = f"{reason}, so the run would go on with the weights of the base model; {fix}"
        return [Finding.error(load_key, message)]
    findings = []
    for kind, lost in _LOST.items():
        if kind in loaded and kind not in held:
            message = f"{lead}: {directory} holds no shards of {kind}; set it to {_listed(held)}, with which {lost}"
            findings.append(Finding.error(load_key, message))
        elif kind not in loaded:
            fix = f"; add {kind}" if kind in held else ""
            findings.append(Finding.warning(load_key, f"{lead}: lacks {kind}, so {lost} in the resumed run{fix}"))
    return findings


def _other_model_findings(directory: Path, section: str, config: DictConfig) -> list[Finding]:
    """Check that the weights of a checkpoint have the shapes of the run's model, with its LoRA adapter."""
    key = CRITIC if section == "critic" else MODEL_PATH
    saved, own = read_json(directory / "huggingface" / "config.json"), model_content(config, key)
    pairs = {name: (decoder_value(saved, name), decoder_value(own, name)) for name in _SHAPES}
    if differing := [name for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]]:
        figures = ", ".join(f"{name} {pairs[name][0]} there, {pairs[name][1]} here" for name in differing)
        message = f"{key}={selected(config, key)}: {directory} was saved from another model ({figures}); use that model"
        return [Finding.error(key, message)]
    model = key.rpartition(".")[0]
    ranks = [rank for name in ("lora.rank", "lora_rank") if (rank := selected(config, f"{model}.{name}"))]
    rank, found = next(iter(ranks), 0), read_json(directory / _LORA_RECORD).get("r")
    if found is None or found == rank or selected(config, f"{model}.lora_adapter_path"):
        return []
    message = f"{model}.lora_rank={rank}: {directory} holds a LoRA adapter of rank {found}; set it to that"
    return [Finding.error(f"{model}.lora_rank", message)]


def _megatron_findings(directory: Path, section: str, config: DictConfig) -> list[Finding]:
    """Check one model of a checkpoint for Megatron, which reshards, so that the number of ranks does not matter."""
    load_key = f"{section}.checkpoint.load_contents"
    loaded = _contents(config, load_key)
    if any(shards(directory)):
        return [_strategy_finding(directory, section, "megatron", "FSDP")]
    distributed = bool(selected(config, f"{section}.megatron.use_dist_checkpointing"))
    places = {
        "model": ("model/dist_ckpt",)
        if distributed
        else ("model/huggingface", "model/dist_ckpt"),  # the latter of PEFT
        "hf_model": ("model/huggingface", "model/dist_ckpt"),
        "optimizer": ("optimizer/dist_ckpt",),
        "extra": ("extra/dist_ckpt",),
    }
    held = [kind for kind, names in places.items() if any(_has_files(directory / name) for name in names)]
    lead = f"{load_key}={_listed(loaded)}"
    if not _has_weights(loaded, "megatron"):
        fix = f"set it to {_listed(held)}" if _has_weights(held, "megatron") else _weights_fix(directory, section)
        message = f"{lead}: lacks model, so the run would go on with the weights of the base model; {fix}"
        return [Finding.error(load_key, message)]
    findings = []
    if missing := [kind for kind in loaded if kind not in held]:
        fix = f"set it to {_listed(held)}" if _has_weights(held, "megatron") else _weights_fix(directory, section)
        findings.append(Finding.error(load_key, f"{lead}: {directory} does not hold {', '.join(missing)}; {fix}"))
    for kind, lost in _LOST.items():
        if kind not in loaded:
            findings.append(Finding.warning(load_key, f"{lead}: lacks {kind}, so {lost} in the resumed run"))
    return findings


def _saved_by(directory: Path, version: int | None) -> str:
    """Return which other strategy than FSDP of `version` (None: any) saved a model, "" where none is known."""
    if any((directory / kind / "dist_ckpt").is_dir() for kind in _SHARDS):
        return "megatron"
    found = read_json(directory / FSDP_RECORD).get("FSDP_version")
    return f"FSDP version {found}" if version and found in (1, 2) and found != version else ""


def _strategy_finding(directory: Path, section: str, strategy: str, saved_by: str) -> Finding:
    key = f"{section}.strategy"
    message = (
        f"{key}={strategy}: {directory} was saved by {saved_by}, whose files it cannot load; use the strategy that saved it, or "
        f"{_weights_fix(directory, section)}"
    )
    return Finding.error(key, message)


def _weights_fix(directory: Path, section: str) -> str:
    """Return how to go on from a checkpoint's weights where it cannot be resumed from."""
    key = CRITIC if section == "critic" else MODEL_PATH
    for whole in (directory / "huggingface", directory / "model" / "huggingface"):
        if any(whole.glob("*.safetensors")) or any(whole.glob("*.bin")):
            start = f"start another run from its weights with {key}={whole} and another trainer.experiment_name"
            break
    else:
        start = f"export its weights (verl-trgrpo export) and start another run from them with {key}"
        if not any(name == "model" for name, _, _ in shards(directory)):
            start = "choose another checkpoint"
    return f"{start}, or start over with trainer.resume_mode=disable"


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())
