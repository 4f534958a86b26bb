"""Paired differences over seeds with t tests, as the tables of the studies of chains show them, and their pictures as SVG."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.compare.statistics import Estimate, holm, mean_interval, t_quantile
from verl_trgrpo.compare.tables import interval_text


class Effect(NamedTuple):
    """A mean difference over seeds with its t interval, and the p-value of the t test."""

    estimate: Estimate
    p: float
    values: Sequence[float]


def effect(differences: Sequence[float] | np.ndarray) -> Effect:
    """Return the mean of paired differences with its 95 % t interval and p-value."""
    from scipy import stats

    values = np.asarray(differences, dtype=float).tolist()
    return Effect(mean_interval(values), float(stats.ttest_1samp(values, 0.0).pvalue), values)


def unit_effect(differences: Sequence[float] | np.ndarray, units: Sequence[Hashable]) -> Effect:
    """Return the effect with larger units: batches of starts that share an order of prompts, or seeds that several pairs share.

    Args:
        differences: one per seed or pair.
        units: of each difference; the mean over those of one unit counts once.
    """
    values: dict[Hashable, list[float]] = {}
    for unit, value in zip(units, differences, strict=True):
        values.setdefault(unit, []).append(float(value))
    return effect([sum(own) / len(own) for own in values.values()])


def fieller(own: Sequence[float] | np.ndarray, whole: Sequence[float] | np.ndarray) -> Estimate:
    """Return the ratio of two means of paired values with Fieller's 95 % interval; none where the interval is not bounded.

    The interval holds all shares s for which the t test of own - s whole against 0 is not significant (Fieller 1954). It is not
    bounded where the mean of `whole` itself cannot be told from 0.
    """
    pairs = np.array([own, whole], dtype=float)
    n, (x, y) = pairs.shape[1], pairs.mean(1)
    errors = np.cov(pairs) / n * t_quantile(n) ** 2
    square, linear, constant = y * y - errors[1, 1], x * y - errors[0, 1], x * x - errors[0, 0]
    if square <= 0:
        return Estimate(float(x / y))
    half = max(linear * linear - square * constant, 0.0) ** 0.5
    return Estimate(float(x / y), float((linear - half) / square), float((linear + half) / square))


def corrected(p_values: Mapping[Any, float], tests: int) -> dict[Any, float]:
    """Return Holm's correction for a family of `tests`, of which those without records count as 1."""
    missing = {("missing", place): 1.0 for place in range(tests - len(p_values))}
    return {key: p for key, p in holm({**p_values, **missing}).items() if key in p_values}


def p_text(p: float) -> str:
    """Return a p-value to two digits, such as ``p=0.012``."""
    return "p<1e-6" if p < 1e-6 else f"p={p:.2g}"


def difference_text(found: Effect, p: float | None = None) -> str:
    """Return a difference with its interval, and a p-value if there is one."""
    mean, low, high = vars(found.estimate).values()
    text = interval_text(found.estimate, "+")
    if low is not None and max(map(abs, (mean, low, high))) < 1e-3:  # four places rather than an exponent
        text = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
    return text + ("" if p is None else f" {p_text(p)}")


def pooled(effects: Sequence[Effect]) -> Effect:
    """Return the effect on the mean over chains of each seed."""
    return effect([sum(values) / len(values) for values in zip(*(one.values for one in effects), strict=True)])


def failures_text(own: np.ndarray, other: np.ndarray) -> str:
    """Return the ratio of mean failures (1 - accuracy) of one arm to those of another, paired by seed, with its 95 % interval."""
    one, base = 1 - own, 1 - other
    ratio = one.mean() / base.mean()
    # First order in the errors of both means, which share seeds.
    return interval_text(effect(ratio + (one - ratio * base) / base.mean()).estimate)


def save_svg(figure: Any, path: Path) -> None:
    """Write a figure as SVG, the same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "chains", "svg.fonttype": "none"}), replaced_file(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
