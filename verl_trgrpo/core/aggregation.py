"""From a matrix of token losses to one number: every ``loss_agg_mode`` that veRL knows, without veRL."""

from __future__ import annotations

import torch

LOSS_AGG_MODES = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)


def aggregate_loss(
    token_losses: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    dp_size: int = 1,
    batch_num_tokens: int | torch.Tensor | None = None,
    global_batch_size: int | torch.Tensor | None = None,
    loss_scale_factor: float | None = None,
) -> torch.Tensor:
    """Aggregate token losses of one micro-batch so that micro-batches and ranks add up to the global mean.

    Differs from veRL's ``agg_loss`` in that an empty mask gives 0 (with gradients of 0) where a plain division gives NaN.

    Args:
        token_losses: (batch, response_length), 0 outside the mask.
        response_mask: (batch, response_length) 1 or True for tokens that count.
        loss_agg_mode: one of ``LOSS_AGG_MODES``.
        dp_size: number of data-parallel ranks whose gradients are averaged afterwards.
        batch_num_tokens: valid tokens in the global mini-batch; None means those of this mask (dp_size 1 only).
        global_batch_size: sequences in the global mini-batch; None means the non-empty ones of this mask.
        loss_scale_factor: divisor of ``seq-mean-token-sum-norm``; None means response_length, which veRL pads to the
            longest response of a micro-batch, so that the loss then depends on how a batch is cut.

    Returns:
        scalar, connected to ``token_losses``.

    Raises:
        ValueError: unknown mode, or a global count missing although dp_size > 1.
    """
    if loss_agg_mode not in LOSS_AGG_MODES:
        raise ValueError(f"loss_agg_mode={loss_agg_mode!r} is unknown; choose one of {', '.join(LOSS_AGG_MODES)}")
    if loss_agg_mode == "token-sum":
        return token_losses.sum() * dp_size
    if loss_agg_mode == "token-mean":
        count = _global_count("batch_num_tokens", batch_num_tokens, response_mask.count_nonzero(), dp_size)
        return token_losses.sum() / count * dp_size

    lengths = response_mask.count_nonzero(dim=-1)
    sequence_losses = token_losses.sum(dim=-1)
    if loss_agg_mode == "seq-mean-token-mean":
        sequence_losses = sequence_losses / lengths.clamp(min=1)
    count = _global_count("global_batch_size", global_batch_size, lengths.count_nonzero(), dp_size)
    loss = sequence_losses.sum() / count * dp_size
    if loss_agg_mode == "seq-mean-token-sum-norm":
        loss = loss / (response_mask.shape[-1] if loss_scale_factor is None else loss_scale_factor)
    return loss


def _global_count(name: str, given: int | torch.Tensor | None, local: torch.Tensor, dp_size: int) -> int | torch.Tensor:
    """The divisor: the global count where given, else the local one; at least 1, since 0 tokens lose nothing."""
    if given is None:
        if dp_size > 1:
            raise ValueError(f"{name} is required when dp_size={dp_size} > 1; pass the count over all ranks")
        return local.clamp(min=1)
    return given.clamp(min=1) if isinstance(given, torch.Tensor) else max(given, 1)
