"""The configuration in a run directory, and what ``config.yaml`` and ``run.json`` say of settings and of the next start."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import ForeignFileError, check_no_alias, open_foreign, read_foreign
from verl_trgrpo.common.text import as_plain_yaml, first_line
from verl_trgrpo.common.typed import typed
from verl_trgrpo.runs.checkpoints import choose_checkpoint, latest_checkpoint, step_of
from verl_trgrpo.runs.compose import resolved
from verl_trgrpo.runs.keys import LOSS, MODEL_PATH, flat, selected
from verl_trgrpo.runs.records import ConfigKeys, read_record, read_trainer_options
from verl_trgrpo.runs.references import check_references, inert
from verl_trgrpo.tasks.registry import known_agent_loops

CONFIG_FILE = "config.yaml"  # veRL's configuration, which made the checkpoints of the directory
# Keys of run.json: the length that a training was asked for which reached its end, the last step of any training, the first
# training prompt as the model sees it, the signals of runs/health.py, and what the data files were.
TRAINED, LAST_STEP, FIRST_PROMPT, STANDING_SIGNALS, DATA_FILES = (
    "trained_for",
    "last_step",
    "first_prompt",
    "signals",
    "data_files",
)

# Keys that may differ between attempts of one run: duration, frequencies, logging, and places on the machine. Contents of
# checkpoints have a check of their own (checks/resume.py).
MAY_CHANGE = (
    "trainer.total_training_steps", "trainer.total_epochs", "trainer.logger", "trainer.test_freq", "trainer.save_freq",
    "trainer.val_only", "trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep", "trainer.val_before_train",
    "trainer.log_val_generations", "trainer.validation_data_dir", "trainer.rollout_data_dir", "trainer.default_local_dir",
    "trainer.resume_mode", "trainer.resume_from_path", "ray_kwargs", "global_profiler",
    "actor_rollout_ref.actor.checkpoint", "critic.checkpoint",
)  # fmt: skip
_MAX_SHOWN, _MAX_VALUE = 5, 100
# Bytes at each end of a data file that its fingerprint covers.
_END = 1 << 20

# Names of settings that both trainers have.
BASE_MODEL, TRAINING_DATA, VALIDATION_DATA = "model", "training data", "validation data"
_OPTION_NAMES = {"model": BASE_MODEL, "train": TRAINING_DATA, "test": VALIDATION_DATA}
_LOSS_OPTIONS = ("placement", "prob_source", "normalize", "kl")
_KEYS = (
    f"{LOSS}.loss_mode", "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo",
    "actor_rollout_ref.actor.loss_agg_mode", "actor_rollout_ref.actor.clip_ratio_low",
    "actor_rollout_ref.actor.clip_ratio_high", "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.entropy_coeff", "actor_rollout_ref.actor.optim.lr",
    "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.actor.ppo_epochs",
    "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.temperature", "data.max_prompt_length",
    "data.max_response_length", "data.seed", "trainer.total_epochs", "trainer.total_training_steps",
)  # fmt: skip


def write_config(config: DictConfig, run_dir: Path) -> None:
    """Write ``config.yaml`` atomically.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    path = run_dir / CONFIG_FILE
    try:
        with replaced_file(path) as temporary:
            OmegaConf.save(config, temporary)
    except OSError as error:
        message = f"{path} cannot be written ({error}); free some space, or choose another directory"
        raise InvalidInputError([message]) from error


def check_same_run(config: DictConfig, run_dir: Path, words: Sequence[str] = ()) -> None:
    """Refuse a run directory whose checkpoints were made by another configuration.

    What `MAY_CHANGE` lists may differ, and the `places` of agent loops.

    Nothing is checked where ``config.yaml`` does not exist.

    Args:
        config: of the run.
        run_dir: its directory.
        words: of its command; those that differ from the recorded ones are named first.

    Raises:
        InvalidInputError: keys differ, or the file is damaged.
    """
    recorded = read_config(run_dir)
    if recorded is None:
        return
    differing = _differences(flat(recorded), flat(inert(config)))
    if differing:
        words_there = _recorded_words(run_dir)
        chosen = _differences(_settings_in(words_there), _settings_in(words)) if words_there else {}
        lines = [f"{key}: {there} there, {here} asked for" for key, (there, here) in (chosen | differing).items()]
        more = [f"and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
        message = (
            f"{run_dir} holds a run with another configuration ({'; '.join(lines[:_MAX_SHOWN] + more)}); give this run its own "
            "trainer.default_local_dir or trainer.experiment_name, or start over there with trainer.resume_mode=disable"
        )
        raise InvalidInputError([message])


def _differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return both values of each key that differs and may not, in the order of the keys."""
    may_change = MAY_CHANGE + tuple(
        f"actor_rollout_ref.rollout.custom.{loop.section}.{name}"
        for loop in known_agent_loops().values()
        for name in loop.places
    )
    return {
        key: tuple(as_plain_yaml(side[key])[:_MAX_VALUE] if key in side else "not set" for side in (there, here))
        for key in sorted(there.keys() | here.keys())
        if there.get(key) != here.get(key) and not key.startswith(may_change)
    }


def _settings_in(words: Sequence[str]) -> dict[str, str]:
    """Return the settings among the words of a command, the name of the primary configuration included."""
    pairs = [word.lstrip("+").partition("=") for word in words if "=" in word and not word.startswith("-")]
    names = {name.lstrip("-"): value for name, value in pairwise(words) if name == "--config-name"}
    return names | {key: value for key, _, value in pairs}


def _recorded_words(run_dir: Path) -> list[str]:
    """Return the words of the command that a run was started with, [] where they are not recorded."""
    return read_record(run_dir, needed=False).command or []


def data_fingerprints(config: DictConfig) -> dict[str, dict[str, str]]:
    """Return size and hash of both ends of each local data file, by key of the configuration and path.

    The end of a Parquet file has sizes and statistics of all its columns, so that other rows have another fingerprint.
    """
    found: dict[str, dict[str, str]] = {}
    for key in ("data.train_files", "data.val_files"):
        names = selected(config, key) or []
        for name in [names] if isinstance(names, str) else names:
            path = Path(str(name)).expanduser().resolve()
            with contextlib.suppress(OSError, ForeignFileError), open_foreign(path) as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(_END)
                file.seek(max(0, size - _END))
                digest = hashlib.sha256(head + file.read(_END)).hexdigest()
                found.setdefault(key, {})[str(path)] = f"{size} bytes, {digest[:16]}"
    return found


def recorded_files(run_dir: Path) -> dict[str, str]:
    """Return the fingerprints of the data files that a run has trained on, by path; {} where they are not recorded."""
    return read_record(run_dir, needed=False).data_files


def length_asked_for(config: DictConfig) -> dict[str, Any]:
    """Return the setting that decides how many steps a run has: its steps, or its epochs where these are not set."""
    steps = selected(config, "trainer.total_training_steps")
    key = "total_epochs" if steps is None else "total_training_steps"
    return {key: selected(config, f"trainer.{key}")}


def is_finished(config: DictConfig, run_dir: Path, total_steps: int | None) -> bool:
    """Return whether a run has all its steps, so that the same command has nothing left to train.

    Args:
        config: of the run.
        run_dir: its directory.
        total_steps: its largest possible number of steps; None if unknown.
    """
    checkpoint, trainer = latest_checkpoint(run_dir), config.trainer
    if checkpoint is None or total_steps is None or trainer.resume_mode != "auto" or trainer.val_only:
        return False
    # total_steps is an upper bound: veRL's filter of long prompts may have left fewer, of any number of epochs.
    asked = training_length(config, total_steps)
    return step_of(checkpoint) >= total_steps or read_record(run_dir, needed=False).trained_for == asked


def training_length(config: DictConfig, total_steps: int | None) -> dict[str, int | None]:
    """Return what a training has to have in common with one that reached its end to be as long."""
    trainer = config.trainer
    return {"steps": total_steps, "epochs": trainer.total_epochs, "total_training_steps": trainer.total_training_steps}


def next_start(config: DictConfig, run_dir: Path) -> str:
    """Return what the command of an interrupted or failed training does when it is repeated, without a full stop."""
    mode = config.trainer.resume_mode
    if mode == "resume_path":
        return "the same command starts again from trainer.resume_from_path"
    try:
        checkpoint, note = choose_checkpoint(run_dir)
    except InvalidInputError as error:
        return f"the same command is refused: {error}"
    if checkpoint is None:
        return f"{note or 'no checkpoint was saved (trainer.save_freq)'}, so the same command starts from scratch"
    command = "the same command" if mode == "auto" else "with trainer.resume_mode=auto the command"
    return f"{command} goes on from the latest checkpoint, {checkpoint.name}"


def run_settings(run_dir: Path) -> dict[str, Any]:
    """Return model, data and the most important settings, by veRL's keys or the single-file trainer's options.

    Paths are shortened by `short_path`. Without either file, return the settings in ``run.json``, or {}.

    Raises:
        ValueError: a file is damaged.
    """
    if config := read_config(run_dir):
        return _verl_settings(config)
    if options := read_trainer_options(run_dir).content():
        return {
            _OPTION_NAMES.get(name, name): short_path(str(value)) if name in _OPTION_NAMES else value
            for name, value in options.items()
            if name != "out" and value != ""
        }
    return read_record(run_dir).settings


def base_model(run_dir: Path) -> str:
    """Return the path or hub name of the model that a run started from, "" where it is not recorded.

    Raises:
        ValueError: a file is damaged.
    """
    if config := read_config(run_dir):
        return str(selected(config, MODEL_PATH) or "")
    return read_trainer_options(run_dir).model


def short_path(path: str) -> str:
    """Return the last two parts of a path, which leaves hub names as they are."""
    return str(Path(*Path(path).parts[-2:]))


def read_config(run_dir: Path) -> DictConfig | None:
    """Read ``config.yaml`` and make it `inert`; None where it does not exist.

    Raises:
        InvalidInputError: it is damaged.
    """
    path = run_dir / CONFIG_FILE
    try:
        content = read_foreign(path)
        check_no_alias(content, path)
        config = OmegaConf.load(BytesIO(content))
        if isinstance(config, DictConfig):
            config = inert(config)
            check_references(config)
            names = [str(field.alias) for field in ConfigKeys.model_fields.values()]
            typed(ConfigKeys, {name: resolved(config, name) for name in names}, path)
            return config
        reason = "not a mapping"
    except FileNotFoundError:
        return None
    except ForeignFileError as error:
        raise InvalidInputError([str(error)]) from error
    except (OSError, yaml.YAMLError, OmegaConfBaseException, RecursionError, ValueError, AssertionError) as error:
        reason = first_line(error)
    message = (
        f"{path} is damaged ({reason}); restore or remove the file, or start over with trainer.resume_mode=disable"
    )
    raise InvalidInputError([message])


def _verl_settings(config: DictConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if model := selected(config, MODEL_PATH):
        found[BASE_MODEL] = short_path(str(model))
    for name, key in ((TRAINING_DATA, "data.train_files"), (VALIDATION_DATA, "data.val_files")):
        files = selected(config, key) or []
        found[name] = ", ".join(map(short_path, [files] if isinstance(files, str) else files))
    keys = list(_KEYS)
    if shaping := selected(config, f"{LOSS}.shaping"):
        constants = [f"shaping.{name}" for name in shaping if name != "_target_"]
        keys[1:1] = [f"{LOSS}.{name}" for name in (*constants, *_LOSS_OPTIONS)]
    for key in keys:
        value = selected(config, key)
        if value is not None and value != "":
            found[key] = value
    return found
