"""veRL's own opinion: its dataclasses and its ``validate_config``."""

from __future__ import annotations

import contextlib
import io
import warnings
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, error

# The actor and the model have checks of their own; the reference model's options, which veRL's worker renames first, are
# left to it. veRL reads reward and profiler without building their dataclasses.
_NODES = ("algorithm", "actor_rollout_ref.rollout", "distillation", "skip")


def build_problem(node: Any) -> str:
    """Why veRL cannot build its dataclass from a node of the configuration; nothing where it can."""
    from verl.utils.config import omega_conf_to_dataclass

    try:
        omega_conf_to_dataclass(node)
    except Exception as problem:  # Hydra wraps whatever a constructor raises
        return _root_cause(problem)
    return ""


def dataclass_findings(config: DictConfig) -> list[Finding]:
    """Build the dataclasses that veRL's driver and workers build, the critic's only if there is one."""
    from verl.trainer.ppo.utils import need_critic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = [*_NODES, "critic"] if need_critic(config) else _NODES
        problems = {key: build_problem(OmegaConf.select(config, key)) for key in nodes}
    return [error(key, f"{key}: {problem}") for key, problem in problems.items() if problem]


def validate_config_findings(config: DictConfig) -> list[Finding]:
    """What veRL's ``validate_config`` refuses; it stops at the first complaint."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    try:
        # veRL prints its verdict and warns about the critic; here only problems are of interest.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            validate_config(config, need_reference_policy(config), need_critic(config))
    except Exception as problem:  # veRL raises assertions, value errors and others
        return [error("verl.utils.config.validate_config", f"veRL refuses it: {_root_cause(problem)}")]
    return []


def _root_cause(error: BaseException) -> str:
    """The innermost message, with the configuration key that Hydra names."""
    key = next((line for line in str(error).splitlines() if line.startswith("full_key:")), "")
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error) or type(error).__name__
    return f"{text} ({key.replace('full_key:', 'at').strip()})" if key else text
