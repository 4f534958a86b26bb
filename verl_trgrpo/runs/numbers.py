"""Numbers, intervals and p-values as text."""

from __future__ import annotations

import math

from verl_trgrpo.runs.statistics import Estimate


def number(value: float, size: float | None = None) -> str:
    """Three decimals or three digits; an exponent where plain digits would be none or many.

    Args:
        value: to show.
        size: of the largest number beside it, so that all get the same decimals; None for this one's.
    """
    size = abs(value) if size is None else size
    if not math.isfinite(value):
        return "not a number"
    if size and not 1e-3 <= size < 1e7:
        return f"{value:.2e}"
    return f"{value:,.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def interval_text(value: Estimate, sign: str = "") -> str:
    """Mean and 95 % interval, with the same decimals; `sign` goes before numbers that are not negative."""
    known = [x for x in (value.mean, value.low, value.high) if x is not None]
    size = max(map(abs, known))
    mean, *ends = [f"{sign if x >= 0 else ''}{number(x, size)}" for x in known]
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def p_text(p: float) -> str:
    """Two decimals; three below 0.1, where it matters."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
