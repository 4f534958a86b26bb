"""Composes the configuration before anything is started, so that mistakes come out at once and in plain words."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.runs.launch.data_files import data_files, data_problems, training_rows
from verl_trgrpo.runs.launch.model_files import model_problems
from verl_trgrpo.runs.launch.reward_function import reward_problems

DEFAULT_CONFIG = "trgrpo_trainer"

# Hydra's own option for the directory of the primary configuration; a recipe outside the packages needs it.
_CONFIG_PATH = "--config-path="

# Experiment names that say nothing about a run: veRL's own default, and that of this package's configurations.
_UNNAMED = ("gsm8k", "trgrpo")


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
        overrides: Hydra arguments that reproduce it, platform included; ``--config-path`` comes first if there is one.
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
        overrides: Hydra overrides as on veRL's command line, or what :func:`recipe_arguments` makes of them.
        on_cpu: choose the group ``platform=cpu`` unless the overrides choose one.

    Raises:
        ConfigurationError: with every problem found.
    """
    config, arguments = compose_run(config_name, overrides, on_cpu)
    problems = _file_problems(config) + _contract_problems(config)
    if problems:
        raise ConfigurationError(problems)
    run_dir = Path(config.trainer.default_local_dir)
    # What was chosen counts, not what was found: a head node without a GPU may start a run on GPUs.
    return Plan(config, arguments, run_dir, _total_steps(config), config.trainer.device == "cpu")


def recipe_arguments(recipe: Path, overrides: Sequence[str]) -> tuple[str, list[str]]:
    """The primary configuration and the Hydra arguments that stand for a recipe file.

    Args:
        recipe: a YAML file, which may use the configurations of veRL, of this package and of its own directory.
        overrides: Hydra overrides.

    Raises:
        ConfigurationError: when there is no such file, or its name is not that of a Hydra configuration.
    """
    if recipe.suffix != ".yaml":
        raise ConfigurationError([f"recipe {recipe} does not end in .yaml, as Hydra wants it; give a recipe file"])
    if not recipe.is_file():
        raise ConfigurationError([f"recipe {recipe} does not exist; the project's own are in recipes/TASK/MODEL.yaml"])
    arguments = [f"{_CONFIG_PATH}{recipe.resolve().parent}", "hydra.searchpath=[pkg://verl.trainer.config]"]
    return recipe.stem, [*arguments, *overrides]


def quoted(value: object) -> str:
    """``value`` as a Hydra override takes it literally, whatever characters a path has."""
    text = str(value)
    # In quotes a backslash stands for itself, except before the closing or an inner quote.
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def seed_overrides(seed: int) -> list[str]:
    """Overrides that give one seed to the order of prompts, the rollout engine and the order within a batch."""
    keys = ("data.seed", "actor_rollout_ref.rollout.seed", "actor_rollout_ref.actor.data_loader_seed")
    return [f"{key}={seed}" for key in keys]


def chosen_value(overrides: Sequence[str], key: str) -> str | None:
    """The value that the overrides give to ``key``, or None; the last one wins, as in Hydra."""
    pairs = [override.lstrip("+").split("=", 1) for override in overrides if "=" in override]
    return next((pair[1] for pair in reversed(pairs) if pair[0] == key), None)


def _split_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Hydra arguments up to and including ``--config-path`` and the search path behind it, and the overrides."""
    if arguments and arguments[0].startswith(_CONFIG_PATH):
        return list(arguments[:2]), list(arguments[2:])
    return [], list(arguments)


def _has_platform(config_name: str, options: Sequence[str]) -> bool:
    """Whether a primary configuration has the group ``platform`` in its defaults; stock veRL's have not."""
    try:
        compose(config_name, [*options, "platform=cpu"])
    except ConfigurationError:
        return False
    return True


def compose_run(config_name: str, overrides: Sequence[str], on_cpu: bool = False) -> tuple[DictConfig, tuple[str, ...]]:
    """The configuration of a run, and the Hydra arguments that reproduce it.

    Where nothing else names the run, it is named after its recipe, if it has one, and its algorithm: the name is that of the
    run directory, and two algorithms must not continue each other's checkpoints.

    Args:
        config_name: primary configuration.
        overrides: as for :func:`make_plan`.
        on_cpu: choose the group ``platform=cpu`` unless the overrides choose one.

    Raises:
        ConfigurationError: as :func:`compose`.
    """
    options, overrides = _split_options(overrides)
    platform = ["platform=cpu"] if on_cpu and not chosen_value(overrides, "platform") else []
    try:
        config, choices = _compose(config_name, [*options, *platform, *overrides])
    except ConfigurationError:
        if not platform or _has_platform(config_name, options):
            raise
        platform = ["+platform=cpu"]
        config, choices = _compose(config_name, [*options, *platform, *overrides])
    naming = []
    given = chosen_value(overrides, "trainer.experiment_name")
    if not given and OmegaConf.select(config, "trainer.experiment_name") in _UNNAMED:
        parts = [config_name] if options else []
        parts += [choices["algorithm"]] if choices.get("algorithm") else []
        if parts:
            # What refers to the name is resolved when it is read, so there is no need to compose again.
            config.trainer.experiment_name = "-".join(parts)
            naming = [f"trainer.experiment_name={quoted(config.trainer.experiment_name)}"]
    return config, (*options, *platform, *naming, *overrides)


def compose(config_name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration as Hydra composes it for ``python -m verl.trainer.main_ppo --config-name NAME ARGUMENTS``.

    Args:
        config_name: primary configuration.
        overrides: Hydra overrides; the first may be ``--config-path=DIR``, the directory of the primary configuration.

    Raises:
        ConfigurationError: for unknown groups, keys or syntax.
    """
    return _compose(config_name, overrides)[0]


def _compose(config_name: str, overrides: Sequence[str]) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration, and what Hydra chose from each group, be it in a defaults list or in an override."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    overrides = list(overrides)
    GlobalHydra.instance().clear()
    try:
        if overrides and overrides[0].startswith(_CONFIG_PATH):
            directory = overrides.pop(0).removeprefix(_CONFIG_PATH)
            initialized: Any = hydra.initialize_config_dir(directory, version_base=None)
        else:
            initialized = hydra.initialize_config_module("verl.trainer.config", version_base=None)
        with initialized:
            config = hydra.compose(config_name, overrides=overrides, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError([str(error)]) from error
    choices = dict(config.hydra.runtime.choices)
    with open_dict(config):
        del config["hydra"]
    return config, choices


def _file_problems(config: DictConfig) -> list[str]:
    """Complaints about data files, a model directory, a reward or a rollout engine that are not there or not sound."""
    problems = data_problems(config) + model_problems(config) + reward_problems(config)
    if config.actor_rollout_ref.rollout.name == "vllm" and importlib.util.find_spec("vllm") is None:
        problems.append(
            "actor_rollout_ref.rollout.name=vllm but vLLM is not installed; "
            'pip install "verl-trgrpo[gpu]" on a GPU machine, "verl-trgrpo[cpu]" elsewhere'
        )
    return problems


def _contract_problems(config: DictConfig) -> list[str]:
    """Complaints of the typed options and of veRL's own validation."""
    from verl.utils.config import omega_conf_to_dataclass

    try:
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        problems = token_weighting_problems(actor)
    except Exception as error:  # Hydra wraps whatever a constructor raises
        return [root_cause(error)]
    return problems + host_problems(config) or _batch_problems(config)


def host_problems(config: DictConfig) -> list[str]:
    """What veRL's ``validate_config`` refuses; it stops at the first complaint.

    Args:
        config: of the run.

    Returns:
        a list of that one complaint, or an empty one.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        # veRL prints its verdict and warns about the critic; here only problems are of interest.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(config, need_reference_policy(config), need_critic(config))
    except Exception as error:  # veRL raises assertions, value errors and others
        return [root_cause(error)]
    return []


def _batch_problems(config: DictConfig) -> list[str]:
    """Complaints about sizes that do not divide, which veRL's own check lets through to an assertion at step 1."""
    from verl_trgrpo.common.problems import Level
    from verl_trgrpo.runs.validation.batches import batch_findings, size_findings

    findings = size_findings(config) or batch_findings(config)
    return [finding.message for finding in findings if finding.level is Level.ERROR]


def token_weighting_problems(actor: Any) -> list[str]:
    """Complaints about token weights that contradict the actor's other options."""
    from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig, check_kl, clip_range_of
    from verl_trgrpo.verl_plugin.policy_loss import LOSS_MODES

    if not isinstance(actor.policy_loss, TRGRPOPolicyLossConfig):
        return []
    problems = []
    loss_mode = actor.policy_loss.get("loss_mode")
    if loss_mode not in LOSS_MODES:
        problems.append(
            f"policy_loss.loss_mode={loss_mode} ignores shaping, placement, prob_source, normalize and kl; "
            f"leave it at {' or '.join(LOSS_MODES)}, or choose another algorithm"
        )
    if "entropy" in actor.policy_loss.shaping.inputs and not (actor.calculate_entropy or actor.entropy_coeff):
        problems.append(
            f"shaping {actor.policy_loss.shaping} asks for the entropy, but actor.calculate_entropy=false; set it to true"
        )
    for check in (lambda: check_kl(actor), lambda: clip_range_of(actor)):
        try:
            check()
        except ValueError as error:
            problems.append(str(error))
    return problems


def root_cause(error: BaseException) -> str:
    """The innermost message, with the configuration key that Hydra names."""
    key = next((line for line in str(error).splitlines() if line.startswith("full_key:")), "")
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error) or type(error).__name__
    return f"{text} ({key.replace('full_key:', 'at').strip()})" if key else text


def _total_steps(config: DictConfig) -> int | None:
    """``trainer.total_training_steps``, or epochs times batches; None when only veRL knows how many rows it keeps."""
    if config.trainer.total_training_steps is not None:
        return int(config.trainer.total_training_steps)
    files = data_files(config, "data.train_files")
    if config.data.get("filter_overlong_prompts") or any(not file.endswith(".parquet") for file in files):
        return None
    rows = training_rows(config)
    return None if rows is None else rows // config.data.train_batch_size * config.trainer.total_epochs
