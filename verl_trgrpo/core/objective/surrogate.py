"""The clipped surrogate with token weights, and its gradient in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from verl_trgrpo.core.objective.options import ClipRange


def log_ratio_limit(dtype: torch.dtype) -> float:
    """Where log-ratios are clamped: 20 as in the host, 11 in float16, which exp(20) overflows (inf times 0 is NaN)."""
    return 11.0 if dtype == torch.float16 else 20.0


def clamped_log_ratio(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, valid: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """log r clamped to +-:func:`log_ratio_limit` and 0 outside the mask, and where it carries no gradient.

    Args:
        log_prob: (batch, response_length) log pi_theta.
        old_log_prob: (batch, response_length) log pi_old, may be -inf.
        valid: (batch, response_length) bool, True for generated tokens.

    Returns:
        log r, and bool, True beyond the clamp, for NaN and outside the mask; both (batch, response_length).
    """
    limit = log_ratio_limit(log_prob.dtype)
    # A token of probability 0 under both policies would give -inf - -inf = NaN; the smallest finite number does not.
    log_ratio = log_prob - old_log_prob.clamp(min=torch.finfo(old_log_prob.dtype).min)
    silent = (log_ratio.abs() <= limit).logical_and_(valid).logical_not_()  # NaN compares false: silent too
    return log_ratio.clamp_(min=-limit, max=limit).masked_fill_(~valid, 0.0), silent


class TokenLosses(NamedTuple):
    """What :func:`clipped_surrogate` returns; all (batch, response_length), no gradient.

    Args:
        losses: negated surrogate of each token.
        clipped: True where the ratio is past [1 - low, 1 + high] and the token gets no gradient.
        capped: True where dual clip caps the loss and the token gets no gradient.
        tied: 1, or 1/2 for each of the two comparisons that ends in a tie with a branch without gradient.
    """

    losses: torch.Tensor
    clipped: torch.Tensor
    capped: torch.Tensor
    tied: torch.Tensor


def clipped_surrogate(ratio: torch.Tensor, negated_advantages: torch.Tensor, clip: ClipRange) -> TokenLosses:
    """Token losses of PPO's clipped surrogate with dual clip (arXiv 1912.09729), negated so that smaller is better.

    Args:
        ratio: (batch, response_length) r, or w * r for the placement inside the clip.
        negated_advantages: (batch, response_length) -A.
        clip: the bounds.
    """
    bounded_ratio = torch.clamp(ratio, 1 - clip.low, 1 + clip.high)
    unclipped, bounded = negated_advantages * ratio, negated_advantages * bounded_ratio
    clipped = bounded > unclipped
    # torch.maximum gives half of the gradient to each side of a tie. Half-precision products tie often.
    tied = torch.ones_like(unclipped).masked_fill_((bounded == unclipped).logical_and_(bounded_ratio != ratio), 0.5)
    pessimistic = torch.maximum(unclipped, bounded, out=unclipped)
    cap = torch.mul(negated_advantages, clip.dual, out=bounded)
    negative = negated_advantages > 0
    capped = (pessimistic > cap).logical_and_(negative)
    tied = torch.where((pessimistic == cap).logical_and_(negative), 0.5 * tied, tied)
    return TokenLosses(torch.where(capped, cap, pessimistic), clipped, capped, tied)


class ClippedSurrogate(torch.autograd.Function):
    """``-w min(r A, clip(r) A)`` token by token, with dual clip; one pass back instead of a graph of a dozen nodes.

    Gradient flows to log pi_theta only, and only once. The derivative by log pi_theta is ``-w A r`` where the token is
    neither clipped nor capped nor beyond the clamp of log r, and 0 elsewhere; products are taken in the order of veRL's
    vanilla loss, so that uniform weights give its gradient to the last bit (in float16 as long as gradients are in its
    normal range).

    All tensors are (batch, response_length): log_prob, old_log_prob, advantages, valid (bool, True for generated tokens) and the
    weights that multiply the loss (outer) or the ratio (inner), or None;
    it returns token losses and log r (0 outside the mask), and bools for clipped and for capped tokens.
    """

    @staticmethod
    def forward(
        ctx: Any,
        log_prob: torch.Tensor,
        old_log_prob: torch.Tensor,
        advantages: torch.Tensor,
        valid: torch.Tensor,
        outer_weights: torch.Tensor | None,
        inner_weights: torch.Tensor | None,
        clip: ClipRange,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        log_ratio, silent = clamped_log_ratio(log_prob, old_log_prob, valid)
        ratio = torch.exp(log_ratio)
        negated = torch.where(valid, -advantages, 0.0)
        token_losses, clipped, capped, tied = clipped_surrogate(
            ratio if inner_weights is None else inner_weights * ratio, negated, clip
        )
        silent.logical_or_(clipped).logical_or_(capped)
        slope = negated * tied
        if outer_weights is not None:
            token_losses, slope = token_losses * outer_weights, slope * outer_weights
        if inner_weights is not None:
            slope = slope * inner_weights
        ctx.save_for_backward(slope, ratio, silent)
        ctx.mark_non_differentiable(log_ratio, clipped, capped)
        return token_losses, log_ratio, clipped, capped

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        slope, ratio, silent = ctx.saved_tensors
        # Filled at the very end: outside the mask both factors may be NaN, and NaN times 0 is NaN.
        grad = (grads[0] * slope).to(ratio.dtype).mul_(ratio).masked_fill_(silent, 0.0)
        return grad, None, None, None, None, None, None
