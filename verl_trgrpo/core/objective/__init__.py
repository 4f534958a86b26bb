"""The TR-GRPO objective in pure torch: token weights, clipped surrogate, weighted KL, and what to report about them."""

from verl_trgrpo.core.objective.aggregate import LOSS_AGG_MODES, aggregate_loss
from verl_trgrpo.core.objective.kl import weighted_kl
from verl_trgrpo.core.objective.options import ClipRange, TokenWeighting
from verl_trgrpo.core.objective.policy_loss import PolicyLoss, compute_policy_loss
from verl_trgrpo.core.objective.statistics import PooledStatistic
from verl_trgrpo.core.objective.weights import token_weights

__all__ = [
    "LOSS_AGG_MODES",
    "ClipRange",
    "PolicyLoss",
    "PooledStatistic",
    "TokenWeighting",
    "aggregate_loss",
    "compute_policy_loss",
    "token_weights",
    "weighted_kl",
]
