"""The typed home of this project's options in veRL's configuration.

They live at ``actor_rollout_ref.actor.policy_loss`` and, for the advantage estimators, at ``algorithm``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from verl.trainer.config import AlgoConfig
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core.advantages import DifficultyOptions, RejectionOptions
from verl_trgrpo.core.objective import ClipRange, TokenWeighting


@dataclass
class TRGRPOPolicyLossConfig(TokenWeighting, PolicyLossConfig):
    """veRL's policy-loss options plus those of :class:`~verl_trgrpo.core.objective.TokenWeighting`.

    Named in the configuration's ``_target_``; ``shaping`` is built by :func:`verl_trgrpo.core.shaping.make_shaping`.
    """

    loss_mode: str = "tr_grpo"


@dataclass
class EstimatorAlgoConfig(AlgoConfig):
    """veRL's ``algorithm`` node plus the options of this project's advantage estimators.

    Named in the configuration's ``_target_``, so that mistakes come out when a configuration is validated; the estimators
    themselves read the node as it is.

    Args:
        reinforce_rej: options of ``adv_estimator: reinforce_rej``; None means the defaults.
        ha_dw: options of ``adv_estimator: ha_dw``; None means the defaults.
    """

    reinforce_rej: RejectionOptions | None = None
    ha_dw: DifficultyOptions | None = None


@functools.cache
def _published() -> TokenWeighting:
    return TokenWeighting()


def regulation_of(policy_loss: Any) -> TokenWeighting:
    """The token regulation of ``actor.policy_loss``.

    A stock ``PolicyLossConfig`` (``loss_mode=tr_grpo`` on an otherwise untouched configuration) gives the published
    method; its fields cannot carry options.

    Raises:
        ValueError: for anything else, e.g. a bare ``DictConfig`` whose options would be ignored.
    """
    if isinstance(policy_loss, TokenWeighting):
        return policy_loss
    if isinstance(policy_loss, PolicyLossConfig):
        return _published()
    raise ValueError(
        f"actor.policy_loss is a {type(policy_loss).__name__}, whose options cannot be checked; instantiate it through "
        f"_target_: {TRGRPOPolicyLossConfig.__module__}.{TRGRPOPolicyLossConfig.__name__} (algorithm=tr_grpo does)"
    )


def clip_range_of(actor: Any) -> ClipRange:
    """The clip range of an actor configuration, with veRL's fall-backs for missing values."""
    low, high = actor.get("clip_ratio_low"), actor.get("clip_ratio_high")
    return ClipRange(
        low=actor.clip_ratio if low is None else low,
        high=actor.clip_ratio if high is None else high,
        dual=actor.get("clip_ratio_c", 3.0),
    )
