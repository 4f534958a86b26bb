"""The objective written down once more, token by token in plain Python floats, to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable


def token_loss(
    log_prob: float, old_log_prob: float, advantage: float, weight: float, low: float, high: float, dual: float,
    inside: bool = False,
) -> float:  # fmt: skip
    """Negated clipped surrogate of one token, METHOD's objective with dual clip for A < 0."""
    ratio = math.exp(log_prob - old_log_prob) * (weight if inside else 1.0)
    clipped = min(max(ratio, 1 - low), 1 + high)
    surrogate = min(ratio * advantage, clipped * advantage)
    if advantage < 0:
        surrogate = max(surrogate, dual * advantage)
    return -surrogate * (1.0 if inside else weight)


def token_slope(
    log_prob: float, old_log_prob: float, advantage: float, weight: float, low: float, high: float, dual: float,
    inside: bool = False,
) -> float:  # fmt: skip
    """Derivative of :func:`token_loss` by log_prob at a constant weight, by central differences."""
    h = 1e-6
    args = (old_log_prob, advantage, weight, low, high, dual, inside)
    return (token_loss(log_prob + h, *args) - token_loss(log_prob - h, *args)) / (2 * h)


def published_weight(prob: float) -> float:
    return min(max(2.0 * (1 / (1 + math.exp(-9.0 * prob)) - 0.25), 1.0), 1.4)


def aggregate(rows: list[list[float]], mask: list[list[bool]], mode: str, horizon: float | None = None) -> float:
    """Aggregation of a whole batch on one rank."""
    kept = [[x for x, m in zip(row, keep, strict=True) if m] for row, keep in zip(rows, mask, strict=True)]
    kept = [row for row in kept if row]
    n_tokens = sum(len(row) for row in kept)
    formulas: dict[str, Callable[[], float]] = {
        "token-mean": lambda: sum(map(sum, kept)) / n_tokens,
        "token-sum": lambda: sum(map(sum, kept)),
        "seq-mean-token-sum": lambda: sum(map(sum, kept)) / len(kept),
        "seq-mean-token-mean": lambda: sum(sum(row) / len(row) for row in kept) / len(kept),
        "seq-mean-token-sum-norm": lambda: sum(map(sum, kept)) / len(kept) / (horizon or len(mask[0])),
    }
    return formulas[mode]()
