"""Hypothesis strategies for batches and options of the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from verl_trgrpo.core import ClipRange, PolicyLoss, TokenWeighting, compute_policy_loss, make_shaping
from verl_trgrpo.core.losses import LOSS_AGG_MODES

HORIZON = 16.0
"""Divisor of seq-mean-token-sum-norm, which would otherwise depend on the padding."""

# Ratios at, inside and beyond every bound: 1, the clip edges, the dual clip, the clamp of the log-ratio.
_EDGES = [0.0, math.log(1.28), math.log(0.8), math.log(2.5), 25.0, -25.0]
_OLD = st.one_of(st.floats(-6.0, 0.0), st.sampled_from([0.0, -30.0]))
_CHANGE = st.one_of(st.floats(-1.5, 1.5), st.sampled_from(_EDGES))
# Steps of 2^-10: no subnormal numbers, which no law of scale survives.
_ADVANTAGE = st.integers(-3072, 3072).map(lambda steps: steps / 1024)

_NAMES = ("sigmoid", "sigmoid_centered", "linear", "power", "threshold", "uniform")
SHAPINGS = [make_shaping(name, reverse) for name in _NAMES for reverse in (False, True)]


@dataclass(frozen=True)
class Batch:
    """Tensors (batch, response_length) as `compute_policy_loss` takes them; mask True for generated tokens."""

    old_log_prob: torch.Tensor
    log_prob: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor

    def map(self, function) -> Batch:
        return Batch(
            function(self.old_log_prob), function(self.log_prob), function(self.advantages), function(self.mask)
        )


@st.composite
def batches(draw, max_rows: int = 4, max_length: int = 4, min_valid: int = 1) -> Batch:
    """Batches in float64 with at least `min_valid` generated tokens; rows may have none."""
    rows, length = draw(st.integers(1, max_rows)), draw(st.integers(1, max_length))
    cells = draw(
        st.lists(
            st.tuples(_OLD, _CHANGE, _ADVANTAGE, st.booleans()), min_size=rows * length, max_size=rows * length
        ).filter(lambda cells: sum(cell[3] for cell in cells) >= min_valid)
    )
    old, change, advantages, mask = (list(column) for column in zip(*cells, strict=True))
    shape = (rows, length)
    old_log_prob = torch.tensor(old, dtype=torch.float64).reshape(shape)
    log_prob = (old_log_prob + torch.tensor(change, dtype=torch.float64).reshape(shape)).clamp(max=0.0)
    return Batch(
        old_log_prob,
        log_prob,
        torch.tensor(advantages, dtype=torch.float64).reshape(shape),
        torch.tensor(mask).reshape(shape),
    )


MODES = st.sampled_from(LOSS_AGG_MODES)
WEIGHTINGS = st.builds(
    TokenWeighting,
    shaping=st.sampled_from(SHAPINGS),
    placement=st.sampled_from(["outside", "inside"]),
    prob_source=st.sampled_from(["current", "old"]),
    normalize=st.sampled_from(["none", "token_mean"]),
)
CLIPS = st.one_of(
    st.just(ClipRange(low=0.2, high=0.28, dual=2.5)),
    st.builds(ClipRange, low=st.floats(0.0, 1.0), high=st.floats(0.0, 2.0), dual=st.floats(1.01, 10.0)),
)


def evaluate(
    batch: Batch, weighting: TokenWeighting, clip: ClipRange, mode: str = "token-mean", **options
) -> tuple[PolicyLoss, torch.Tensor]:
    """Loss with metrics, and the gradient by log_prob."""
    if mode == "seq-mean-token-sum-norm":
        options = {"loss_scale_factor": HORIZON} | options
    log_prob = batch.log_prob.detach().clone().requires_grad_()
    result = compute_policy_loss(
        log_prob,
        old_log_prob=batch.old_log_prob,
        advantages=batch.advantages,
        response_mask=batch.mask,
        weighting=weighting,
        clip=clip,
        loss_agg_mode=mode,
        **options,
    )
    (gradient,) = torch.autograd.grad(result.loss, log_prob)
    return result, gradient
