"""Paired differences over seeds with t tests, as the tables of the studies of chains show them, and their pictures as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.compare.statistics import Estimate, holm
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
    found = stats.ttest_1samp(values, 0.0)
    low, high = found.confidence_interval()
    return Effect(Estimate(sum(values) / len(values), float(low), float(high)), float(found.pvalue), values)


def corrected(p_values: Mapping[Any, float], tests: int) -> dict[Any, float]:
    """Return Holm's correction for a family of `tests`, of which those without records count as 1."""
    missing = {("missing", place): 1.0 for place in range(tests - len(p_values))}
    return {key: p for key, p in holm({**p_values, **missing}).items() if key in p_values}


def p_text(p: float) -> str:
    """Return a p-value to two digits, such as ``p=0.012``."""
    return "p<1e-6" if p < 1e-6 else f"p={p:.2g}"


def difference_text(found: Effect, p: float | None = None) -> str:
    """Return a difference with its interval, and a p-value if there is one."""
    values = (found.estimate.mean, found.estimate.low or 0.0, found.estimate.high or 0.0)
    text = interval_text(found.estimate, "+")
    if max(map(abs, values)) < 1e-3:  # four places rather than an exponent
        text = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*values)
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
