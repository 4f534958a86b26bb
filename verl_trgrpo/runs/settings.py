"""What a run was made of, in the few lines that people ask for, from the run's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.resume import CONFIG_FILE

BASE_MODEL, TRAINING_DATA, VALIDATION_DATA = "model", "training data", "validation data"
# The single-file trainer's options.
OPTIONS_FILE = "options.json"

_MODEL_PATH = "actor_rollout_ref.model.path"
_LOSS = "actor_rollout_ref.actor.policy_loss"
# In the order in which people ask.
_KEYS = (
    f"{_LOSS}.loss_mode", "algorithm.adv_estimator", "algorithm.norm_adv_by_std_in_grpo",
    "actor_rollout_ref.actor.loss_agg_mode", "actor_rollout_ref.actor.clip_ratio_low",
    "actor_rollout_ref.actor.clip_ratio_high", "actor_rollout_ref.actor.use_kl_loss",
    "actor_rollout_ref.actor.kl_loss_coef", "actor_rollout_ref.actor.entropy_coeff", "actor_rollout_ref.actor.optim.lr",
    "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size", "actor_rollout_ref.actor.ppo_epochs",
    "actor_rollout_ref.rollout.n", "actor_rollout_ref.rollout.temperature", "data.max_prompt_length",
    "data.max_response_length", "data.seed", "trainer.total_epochs", "trainer.total_training_steps",
)  # fmt: skip
_LOSS_OPTIONS = ("placement", "prob_source", "normalize", "kl")
# Paths among the single-file trainer's options.
_PLACES = {"model": BASE_MODEL, "train": TRAINING_DATA, "test": VALIDATION_DATA}


def run_settings(run_dir: Path) -> dict[str, Any]:
    """Return model, data and the settings that matter, by veRL's keys or the single-file trainer's options.

    Of paths the last two parts are kept: the rest says more of a machine than of a run. Where a run has neither file, what
    ``run.json`` says of its settings; nothing where that is missing.

    Raises:
        ValueError: for a damaged file.
    """
    if config := _verl_config(run_dir):
        return _of_verl(config)
    if options := read_record(run_dir, OPTIONS_FILE):
        return {
            _PLACES.get(name, name): short_place(str(value)) if name in _PLACES else value
            for name, value in options.items()
            if name != "out" and value != ""
        }
    return dict(read_record(run_dir).get("settings", {}))


def base_model(run_dir: Path) -> str:
    """Return the model that a run started from as it was named, a whole path included; "" where nothing says it.

    Raises:
        ValueError: for a damaged file.
    """
    if config := _verl_config(run_dir):
        return str(_select(config, _MODEL_PATH) or "")
    return str(read_record(run_dir, OPTIONS_FILE).get("model", ""))


def _verl_config(run_dir: Path) -> DictConfig | None:
    path = run_dir / CONFIG_FILE
    if not path.is_file():
        return None
    try:
        config = OmegaConf.load(path)
    except (OSError, YAMLError) as error:
        raise ValueError(f"{path} is damaged ({error}); put it back, or remove it") from error
    return config if isinstance(config, DictConfig) else None


def _select(config: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:  # an interpolation of this package's, where the package is not registered
        return None


def _of_verl(config: DictConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if model := _select(config, _MODEL_PATH):
        found[BASE_MODEL] = short_place(str(model))
    for name, key in ((TRAINING_DATA, "data.train_files"), (VALIDATION_DATA, "data.val_files")):
        files = _select(config, key) or []
        found[name] = ", ".join(map(short_place, [files] if isinstance(files, str) else files))
    keys = list(_KEYS)
    shaping = _select(config, f"{_LOSS}.shaping")
    if shaping:
        keys[1:1] = [f"{_LOSS}.{name}" for name in _LOSS_OPTIONS]
        keys[1:1] = [f"{_LOSS}.shaping.{name}" for name in shaping if name != "_target_"]
    for key in keys:
        value = _select(config, key)
        if value is not None and value != "":
            found[key] = value
    return found


def short_place(path: str) -> str:
    """The last two parts of a path; a name on a hub has no more, and stays as it is."""
    return str(Path(*Path(path).parts[-2:]))
