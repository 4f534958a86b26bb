"""TR-GRPO in pure torch: token shapings, the policy loss and its relatives, weighted KL, advantages, metrics."""

from verl_trgrpo.core import shapings  # their import registers them
from verl_trgrpo.core.aggregation import LOSS_AGG_MODES, aggregate_loss
from verl_trgrpo.core.aspo import compute_aspo_loss
from verl_trgrpo.core.group_relative import group_relative_advantages, rejection_advantages
from verl_trgrpo.core.groups import group_metrics
from verl_trgrpo.core.ha_dw import DifficultyOptions, difficulty_weighted_advantages
from verl_trgrpo.core.kl import weighted_kl
from verl_trgrpo.core.metrics import TokenStatistic
from verl_trgrpo.core.options import ClipRange, TokenWeighting
from verl_trgrpo.core.policy_loss import PolicyLoss, compute_policy_loss, token_weights
from verl_trgrpo.core.shaping import Shaping, asks_for_entropy, available_shapings, make_shaping, register_shaping
from verl_trgrpo.core.tokens import Tokens
from verl_trgrpo.core.w_reinforce import OutcomeOptions, outcome_advantages

__all__ = [
    "LOSS_AGG_MODES",
    "ClipRange",
    "DifficultyOptions",
    "OutcomeOptions",
    "PolicyLoss",
    "Shaping",
    "TokenStatistic",
    "TokenWeighting",
    "Tokens",
    "aggregate_loss",
    "asks_for_entropy",
    "available_shapings",
    "compute_aspo_loss",
    "compute_policy_loss",
    "difficulty_weighted_advantages",
    "group_metrics",
    "group_relative_advantages",
    "make_shaping",
    "outcome_advantages",
    "register_shaping",
    "rejection_advantages",
    "shapings",
    "token_weights",
    "weighted_kl",
]
