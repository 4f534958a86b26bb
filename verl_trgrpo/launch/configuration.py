"""Composes the configuration before anything is started, so that mistakes come out at once and in plain words."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

DEFAULT_CONFIG = "trgrpo_trainer"


class ConfigurationError(ValueError):
    """Everything found wrong with a run's configuration, one problem a line."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(f"- {problem}" for problem in problems))


@dataclass(frozen=True)
class Plan:
    """A checked run.

    Args:
        config: the composed configuration.
        overrides: Hydra overrides that reproduce it, platform included.
        run_dir: directory of checkpoints, logs and plots (``trainer.default_local_dir``).
        total_steps: training steps, or None when the number of rows that pass veRL's filters decides.
        on_cpu: whether it trains without an accelerator.
    """

    config: DictConfig
    overrides: tuple[str, ...]
    run_dir: Path
    total_steps: int | None
    on_cpu: bool


def make_plan(config_name: str, overrides: Sequence[str], on_cpu: bool) -> Plan:
    """Compose and check the configuration of a run.

    Args:
        config_name: primary configuration, e.g. ``trgrpo_trainer``.
        overrides: Hydra overrides as on veRL's command line.
        on_cpu: choose the group ``platform=cpu`` unless the overrides choose one.

    Raises:
        ConfigurationError: with every problem found.
    """
    overrides = list(overrides)
    if on_cpu and not any(override.lstrip("+").startswith("platform=") for override in overrides):
        overrides.insert(0, "platform=cpu")
    config = compose(config_name, overrides)
    problems = _missing_files(config) + _contract_problems(config)
    if problems:
        raise ConfigurationError(problems)
    return Plan(config, tuple(overrides), Path(config.trainer.default_local_dir), _total_steps(config), on_cpu)


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration as Hydra composes it for ``python -m verl.trainer.main_ppo``.

    Raises:
        ConfigurationError: for unknown groups, keys or syntax.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            return hydra.compose(config_name, overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError([str(error)]) from error


def _missing_files(config: DictConfig) -> list[str]:
    """Complaints about data files and a model directory that are not there."""
    problems = []
    for key in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, key)
        for file in [files] if isinstance(files, str) else list(files or []):
            if "://" not in file and not Path(file).expanduser().exists():
                problems.append(f"{key}={file} does not exist; build it first, e.g. with data_prep/kk.py")
    model = config.actor_rollout_ref.model.path
    # "name/model" may be on a hub; anything that looks like a path must be there.
    looks_like_path = model and (Path(model).is_absolute() or model.startswith((".", "~")))
    if looks_like_path and not Path(model).expanduser().is_dir():
        problems.append(
            f"actor_rollout_ref.model.path={model} is not a directory; give a model directory or a hub name"
        )
    return problems


def _contract_problems(config: DictConfig) -> list[str]:
    """Complaints of the typed options and of veRL's own validation."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        problems = _kl_problems(actor)
    except Exception as error:  # Hydra wraps whatever a constructor raises
        return [_root_cause(error)]
    try:
        # veRL prints its verdict and warns about the critic; here only problems are of interest.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(config, need_reference_policy(config), need_critic(config))
    except Exception as error:  # veRL raises assertions, value errors and others
        problems.append(_root_cause(error))
    return problems


def _kl_problems(actor: Any) -> list[str]:
    from verl_trgrpo.objective import TokenRegulation
    from verl_trgrpo.verl_plugin.config import clip_range_of
    from verl_trgrpo.verl_plugin.ppo_loss import check_kl

    problems = []
    regulated = isinstance(actor.policy_loss, TokenRegulation)
    for check in [lambda: check_kl(actor, actor.policy_loss), lambda: clip_range_of(actor)] if regulated else []:
        try:
            check()
        except ValueError as error:
            problems.append(str(error))
    return problems


def _root_cause(error: BaseException) -> str:
    """The innermost message, with the configuration key that Hydra names."""
    key = next((line for line in str(error).splitlines() if line.startswith("full_key:")), "")
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error) or type(error).__name__
    return f"{text} ({key.replace('full_key:', 'at').strip()})" if key else text


def _total_steps(config: DictConfig) -> int | None:
    """``trainer.total_training_steps``, or epochs times batches when the rows can be counted."""
    if config.trainer.total_training_steps is not None:
        return int(config.trainer.total_training_steps)
    import pyarrow.parquet as pq

    files = config.data.train_files
    files = [files] if isinstance(files, str) else list(files or [])
    if not files or any("://" in file or not file.endswith(".parquet") for file in files):
        return None
    rows = sum(pq.read_metadata(Path(file).expanduser()).num_rows for file in files)
    return rows // config.data.train_batch_size * config.trainer.total_epochs
