"""TR-GRPO in plain torch: token shapings, policy losses, weighted KL, advantages, metrics. Needs neither veRL nor Ray."""

from verl_trgrpo.core import off_policy_shapings as _off_policy_shapings  # noqa: F401 (importing them registers them)
from verl_trgrpo.core import shapings as _shapings  # noqa: F401
from verl_trgrpo.core.advantages import (
    difficulty_weighted_advantages,
    group_relative_advantages,
    mean_relative_advantages,
    outcome_advantages,
    positive_advantages,
    rejection_advantages,
)
from verl_trgrpo.core.losses import (
    PolicyLoss,
    TokenWeighting,
    aggregate_loss,
    compute_policy_loss,
    token_weights,
    weighted_kl,
)
from verl_trgrpo.core.metrics import TokenStatistic, group_metrics
from verl_trgrpo.core.options import (
    ClipRange,
    DifficultyOptions,
    HighEntropyClip,
    LoptiOptions,
    OffPolicyMask,
    OutcomeOptions,
)
from verl_trgrpo.core.shaping import Shaping, available_shapings, make_shaping, register_shaping
from verl_trgrpo.core.tokens import Tokens

__all__ = [
    "ClipRange",
    "DifficultyOptions",
    "HighEntropyClip",
    "LoptiOptions",
    "OffPolicyMask",
    "OutcomeOptions",
    "PolicyLoss",
    "Shaping",
    "TokenStatistic",
    "TokenWeighting",
    "Tokens",
    "aggregate_loss",
    "available_shapings",
    "compute_policy_loss",
    "difficulty_weighted_advantages",
    "group_metrics",
    "group_relative_advantages",
    "make_shaping",
    "mean_relative_advantages",
    "outcome_advantages",
    "positive_advantages",
    "register_shaping",
    "rejection_advantages",
    "token_weights",
    "weighted_kl",
]
