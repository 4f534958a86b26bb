"""The clipped surrogate with token weights, and its gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch

from verl_trgrpo.objective.options import ClipRange


def clipped_surrogate(
    ratio: torch.Tensor, negated_advantages: torch.Tensor, clip: ClipRange
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token losses of PPO's clipped surrogate with dual clip (arXiv 1912.09729), negated so that smaller is better.

    Args:
        ratio: (batch, response_length) r, or w * r for the placement inside the clip.
        negated_advantages: (batch, response_length) -A.
        clip: the bounds.

    Returns:
        token losses, and two bool masks of tokens left without gradient: clipped by [1 - low, 1 + high], and capped by
        dual clip; all (batch, response_length), no gradient.
    """
    unclipped = negated_advantages * ratio
    bounded = negated_advantages * torch.clamp(ratio, 1 - clip.low, 1 + clip.high)
    clipped = bounded > unclipped
    pessimistic = torch.maximum(unclipped, bounded, out=unclipped)
    cap = torch.mul(negated_advantages, clip.dual, out=bounded)
    capped = (pessimistic > cap).logical_and_(negated_advantages > 0)
    return torch.where(capped, cap, pessimistic), clipped, capped


class ClippedSurrogate(torch.autograd.Function):
    """``-w min(r A, clip(r) A)`` token by token, with dual clip; one pass back instead of a graph of a dozen nodes.

    The derivative by log pi_theta is ``-w A r`` where the token is neither clipped nor capped nor beyond the clamp of
    log r, and 0 elsewhere; products are taken in the order of veRL's vanilla loss, so that uniform weights give its
    gradient to the last bit.
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
        # exp(20) does not fit into float16, and inf times 0 would be NaN.
        limit = 11.0 if log_prob.dtype == torch.float16 else 20.0
        # A token of probability 0 under both policies would give -inf - -inf = NaN; the smallest finite number does not.
        log_ratio = log_prob - old_log_prob.clamp(min=torch.finfo(old_log_prob.dtype).min)
        silent = (log_ratio.abs() <= limit).logical_and_(valid).logical_not_()  # NaN compares false: silent too
        log_ratio = log_ratio.clamp_(min=-limit, max=limit).masked_fill_(~valid, 0.0)
        ratio = torch.exp(log_ratio)
        negated = torch.where(valid, -advantages, 0.0)
        token_losses, clipped, capped = clipped_surrogate(
            ratio if inner_weights is None else inner_weights * ratio, negated, clip
        )
        silent.logical_or_(clipped).logical_or_(capped)
        slope = negated
        if outer_weights is not None:
            token_losses, slope = token_losses * outer_weights, slope * outer_weights
        if inner_weights is not None:
            slope = slope * inner_weights
        ctx.save_for_backward(slope, ratio, silent)
        ctx.mark_non_differentiable(log_ratio, clipped, capped)
        return token_losses, log_ratio, clipped, capped

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        slope, ratio, silent = ctx.saved_tensors
        # Filled at the very end: outside the mask both factors may be NaN, and NaN times 0 is NaN.
        grad = (grads[0] * slope).to(ratio.dtype).mul_(ratio).masked_fill_(silent, 0.0)
        return grad, None, None, None, None, None, None
