"""ASPO's surrogate (arXiv 2510.06062): the importance ratio of tokens with positive advantage turned upside down."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from verl_trgrpo.core.objective.options import ClipRange
from verl_trgrpo.core.objective.surrogate import clamped_log_ratio


class Coefficients(NamedTuple):
    """What :func:`flipped_coefficients` returns; all (batch, response_length), no gradient.

    Args:
        values: c, the factor of A in the objective and of A grad log pi_theta in its gradient.
        clipped: True where the ratio is past its clip and the token gets no gradient.
        capped: True where dual clip caps c; the token keeps its gradient, at the cap.
    """

    values: torch.Tensor
    clipped: torch.Tensor
    capped: torch.Tensor


def flipped_coefficients(log_ratio: torch.Tensor, negated_advantages: torch.Tensor, clip: ClipRange) -> Coefficients:
    """c = 1/r for A > 0 and c = r for A < 0, at most ``clip.dual``.

    The hard clip is PPO's and looks at the unflipped ratio: no gradient where r > 1 + high and A > 0, or r < 1 - low and
    A < 0. Both are lower bounds of c, so its value there is 1 / (1 + high) or 1 - low.

    Args:
        log_ratio: (batch, response_length) log r.
        negated_advantages: (batch, response_length) -A.
        clip: the bounds.
    """
    positive = negated_advantages < 0
    values = torch.exp(torch.where(positive, -log_ratio, log_ratio))
    floor = torch.where(positive, values.new_tensor(1 / (1 + clip.high)), values.new_tensor(1 - clip.low))
    matters = negated_advantages != 0
    clipped, capped = (values < floor).logical_and_(matters), (values > clip.dual).logical_and_(matters)
    return Coefficients(torch.maximum(values, floor).clamp_(max=clip.dual), clipped, capped)


class FlippedSurrogate(torch.autograd.Function):
    """``-w A c`` token by token with :func:`flipped_coefficients`, whose gradient is ``-w A c grad log pi_theta``.

    That is the gradient of ``-A r / sg(r^2)`` for A > 0 (sg stops the gradient), of ``-A r`` for A < 0, and of
    ``-A sg(dual) log pi_theta`` where dual clip caps. On-policy (r = 1) loss and gradient are those of GRPO.

    All tensors are (batch, response_length): log_prob, old_log_prob, advantages, valid (bool, True for generated tokens) and
    weights, or None;
    it returns token losses and log r (0 outside the mask), and bools for clipped and for capped tokens.
    """

    @staticmethod
    def forward(
        ctx: Any,
        log_prob: torch.Tensor,
        old_log_prob: torch.Tensor,
        advantages: torch.Tensor,
        valid: torch.Tensor,
        weights: torch.Tensor | None,
        clip: ClipRange,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        log_ratio, silent = clamped_log_ratio(log_prob, old_log_prob, valid)
        negated = torch.where(valid, -advantages, 0.0)
        coefficients, clipped, capped = flipped_coefficients(log_ratio, negated, clip)
        token_losses = negated * coefficients
        if weights is not None:
            token_losses = token_losses * weights
        ctx.save_for_backward(token_losses, silent.logical_or_(clipped))
        ctx.dtype = log_prob.dtype
        ctx.mark_non_differentiable(log_ratio, clipped, capped)
        return token_losses, log_ratio, clipped, capped

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        slope, silent = ctx.saved_tensors  # where there is a gradient, it equals the loss
        # Filled at the very end: outside the mask both factors may be NaN, and NaN times 0 is NaN.
        return (grads[0] * slope).to(ctx.dtype).masked_fill_(silent, 0.0), None, None, None, None, None
