"""Attention for CPUs: grouped-query attention, and attention over packed sequences.

``sdpa`` of transformers copies keys and values once per query head at every generated token, which on a CPU takes much
of the time of sampling in bfloat16. For packed sequences it builds a mask over all of them and computes the masked
scores as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

GROUPED = "grouped_cpu"
"""``attn_implementation`` for models that are loaded after this module was imported."""

PACKED = "packed_cpu"
"""``attn_implementation`` for sequences that are concatenated without padding (veRL's ``use_remove_padding``)."""


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute softmax attention in which consecutive query heads share a key and value head; without dropout.

    Args:
        module: the layer; only named in errors.
        query: (B, H, L, D); B batch, H query heads, L query positions, D head width.
        key: (B, G, S, D); G key heads, S key positions; H is a multiple of G.
        value: (B, G, S, D).
        attention_mask: (B, 1, L, S), added to the scores; 0 at positions that are attended to.
        scaling: factor of the scores.
        others: arguments of other attention implementations; those that would change the result are refused.

    Returns:
        The output, (B, L, H, D), and None in place of the attention weights.

    Raises:
        ValueError: the model's attention has sinks, capped scores or position biases.
    """
    if found := [name for name in ("s_aux", "softcap", "position_bias") if others.get(name) is not None]:
        raise ValueError(f"attention with {' and '.join(found)} is not supported here ({type(module).__name__})")
    batch, heads, length, width = query.shape
    groups = key.shape[1]
    scores = (query.reshape(batch, groups, -1, width) @ key.mT).reshape(batch, heads, length, -1) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(value.dtype)
    mixed = weights.reshape(batch, groups, -1, key.shape[2]) @ value
    return mixed.reshape(batch, heads, length, width).transpose(1, 2), None


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    position_ids: torch.Tensor,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal softmax attention within each of the sequences that are packed into one row; without dropout.

    A sequence begins wherever `position_ids`, (1, L), is 0. The other arguments are those of `grouped_attention` with B = 1,
    S = L and without a mask. No scores are computed between two sequences.

    Raises:
        ValueError: as `grouped_attention`, and for several rows, a mask, a cache, a sliding window within a sequence, or a row
            that does not begin at position 0.
    """
    begins = (position_ids[0] == 0).nonzero()[:, 0].tolist()
    lengths = [end - begin for begin, end in pairwise([*begins, query.shape[2]])]
    window = others.get("sliding_window")
    other_rows = len(query) > 1 or attention_mask is not None or key.shape[2] != query.shape[2] or begins[:1] != [0]
    if other_rows or (window is not None and window < max(lengths)):
        raise ValueError(
            f"{PACKED} attends within whole sequences of one packed row (actor_rollout_ref.model.use_remove_padding=true); "
            "use attn_implementation=sdpa for anything else"
        )
    future = torch.full((max(lengths),) * 2, -torch.inf, dtype=query.dtype, device=query.device).triu(1)
    parts = zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    mixed = [
        grouped_attention(module, q, k, v, future[: q.shape[2], : q.shape[2]], scaling, **others)[0]
        for q, k, v in parts
    ]
    return torch.cat(mixed, 1), None


def _no_mask(*_: Any, **__: Any) -> None:
    """Return None: `packed_attention` takes no mask."""


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, eager_mask)
AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, _no_mask)
