"""What token weights do to gradients, and how sharp a checkpoint's loss is: measured on a model's own rollouts."""

from verl_trgrpo.analysis.gradients import LogitGradients, logit_gradients, token_gradient_norms, weighted_gradients
from verl_trgrpo.analysis.shares import cosines, probability_ranges, quartiles, shares
from verl_trgrpo.analysis.sharpness import Sharpness, measure_sharpness

__all__ = [
    "LogitGradients",
    "Sharpness",
    "cosines",
    "logit_gradients",
    "measure_sharpness",
    "probability_ranges",
    "quartiles",
    "shares",
    "token_gradient_norms",
    "weighted_gradients",
]
