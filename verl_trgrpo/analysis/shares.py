"""Which tokens the gradient comes from: shares by quartile of probability, and the angle between their updates."""

from __future__ import annotations

import torch

QUARTILES = 4


def quartiles(probs: torch.Tensor) -> torch.Tensor:
    """The quarter of the tokens, ordered by probability, that each token is in; equal values keep their order.

    Args:
        probs: (tokens,) anything that grows with the probability.

    Returns:
        (tokens,) int64: 0 for the least probable quarter, to 3; the quarters' sizes differ by one token at most.
    """
    ranks = torch.empty(len(probs), dtype=torch.long, device=probs.device)
    ranks[probs.argsort(stable=True)] = torch.arange(len(probs), device=probs.device)
    return ranks * QUARTILES // max(len(probs), 1)


def probability_ranges(probs: torch.Tensor) -> torch.Tensor:
    """The quarter of [0, 1] that each probability is in: 0 below 0.25, 1 below 0.5, 2 below 0.75, else 3; (tokens,) int64."""
    return (probs * QUARTILES).long().clamp(0, QUARTILES - 1)


def shares(values: torch.Tensor, groups: torch.Tensor, count: int = QUARTILES) -> torch.Tensor:
    """Each group's share of the sum of ``values``.

    Args:
        values: (tokens,) not negative.
        groups: (tokens,) int64, 0 to count - 1.
        count: number of groups.

    Returns:
        (count,) float64 that add up to 1; all 0 when the values are.
    """
    sums = torch.zeros(count, dtype=torch.float64, device=values.device).index_add(0, groups, values.double())
    total = sums.sum()
    return sums / torch.where(total > 0, total, 1.0)


def cosines(vectors: torch.Tensor) -> torch.Tensor:
    """(n, n) cosines of the angles between n vectors, (n, size); NaN where a vector is 0."""
    vectors = vectors.double()
    norms = vectors.norm(dim=-1)
    return (vectors @ vectors.T / (norms[:, None] * norms)).clamp(-1, 1)
