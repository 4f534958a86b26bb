"""TR-GRPO in plain torch: token shapings, policy losses, weighted KL, advantages, metrics. Needs neither veRL nor Ray."""

from verl_trgrpo.core import shapings as _shapings  # noqa: F401 (importing them registers them)
from verl_trgrpo.core.advantages import (
    DifficultyOptions,
    OutcomeOptions,
    difficulty_weighted_advantages,
    expected_accuracy,
    group_relative_advantages,
    outcome_advantages,
    rejection_advantages,
)
from verl_trgrpo.core.lopti import LoptiOptions
from verl_trgrpo.core.losses import (
    ClipRange,
    HighEntropyClip,
    PolicyLoss,
    TokenWeighting,
    aggregate_loss,
    compute_policy_loss,
    token_weights,
    weighted_kl,
)
from verl_trgrpo.core.metrics import TokenStatistic, group_metrics
from verl_trgrpo.core.multi_reward import (
    ConstraintOptions,
    Cost,
    RewardWeights,
    constrained_advantages,
    decoupled_advantages,
    dual_ascent,
    part_values,
)
from verl_trgrpo.core.nthr import NTHROptions
from verl_trgrpo.core.shaping import Shaping, available_shapings, make_shaping, register_shaping
from verl_trgrpo.core.tokens import Tokens

__all__ = [
    "ClipRange",
    "ConstraintOptions",
    "Cost",
    "DifficultyOptions",
    "HighEntropyClip",
    "LoptiOptions",
    "NTHROptions",
    "OutcomeOptions",
    "PolicyLoss",
    "RewardWeights",
    "Shaping",
    "TokenStatistic",
    "TokenWeighting",
    "Tokens",
    "aggregate_loss",
    "available_shapings",
    "compute_policy_loss",
    "constrained_advantages",
    "decoupled_advantages",
    "difficulty_weighted_advantages",
    "dual_ascent",
    "expected_accuracy",
    "group_metrics",
    "group_relative_advantages",
    "make_shaping",
    "outcome_advantages",
    "part_values",
    "register_shaping",
    "rejection_advantages",
    "token_weights",
    "weighted_kl",
]
