"""The reward function of a run, loaded as veRL's reward workers will: a mistake in it comes out before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

REWARD = "reward.custom_reward_function"


def reward_function(config: DictConfig) -> Callable[..., Any] | None:
    """What ``reward.custom_reward_function`` names, or None where veRL's own rewards choose by data source.

    Raises:
        ValueError: when it cannot be loaded, with its key, the reason and the remedy.
    """
    from verl.trainer.ppo.reward import get_custom_reward_fn

    path = OmegaConf.select(config, f"{REWARD}.path")
    if not path:
        return None
    try:
        return get_custom_reward_fn(config)
    except (Exception, SystemExit) as error:  # a module that is imported may raise anything
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = f"{type(cause).__name__}: {cause}"
        raise ValueError(f"{REWARD}.path={path} cannot be loaded ({reason}); correct it") from error


def reward_problems(config: DictConfig) -> list[str]:
    """The complaint of :func:`reward_function`, if there is one."""
    try:
        reward_function(config)
    except ValueError as error:
        return [str(error)]
    return []
