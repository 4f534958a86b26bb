"""Statistics for a handful of runs: bootstrap intervals, a paired test and its correction for several tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)

RESAMPLES = 9999


class Interval(NamedTuple):
    """A mean and the ends of its interval; the ends are None for fewer than two values."""

    mean: float
    low: float | None
    high: float | None


def bootstrap_interval(values: Sequence[float], level: float = 0.95, seed: int = 0) -> Interval:
    """Return the mean and its bootstrap interval.

    Plain percentile intervals are too narrow for few values: the bootstrap's spread is that of the biased standard deviation,
    and its quantiles are those of a normal and not of a t distribution. The percentiles are therefore taken further out, at
    Phi(-sqrt(n / (n - 1)) t) with the quantile t of n - 1 degrees of freedom ("expanded percentiles", Hesterberg, What
    Teachers Should Know About the Bootstrap, 2015).

    Args:
        values: one for each seed; finite.
        level: wanted coverage, above 0 and below 1.
        seed: of the resampling.

    Returns:
        mean, low and high.

    Raises:
        ValueError: for no values, values that are not finite, or another level.
    """
    import numpy
    from scipy import stats

    if not values or not all(map(math.isfinite, values)):
        raise ValueError(f"values are {list(values)}; give at least one, all finite")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level is {level}; it must be above 0 and below 1")
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return Interval(mean, None, None)
    tail = stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1))
    if min(values) == max(values):
        return Interval(mean, mean, mean)
    found = stats.bootstrap(
        (numpy.asarray(values, dtype=float),),
        numpy.mean,
        n_resamples=RESAMPLES,
        confidence_level=1 - 2 * tail,
        method="percentile",
        rng=numpy.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def paired_p_value(differences: Sequence[float], seed: int = 0) -> float | None:
    """Return the two-sided p-value of the sign-flip permutation test that paired differences have mean 0.

    Exact up to 13 pairs (all 2^n signs), else from `RESAMPLES` random signs. With n pairs it cannot be below 2 / 2^n.

    Args:
        differences: one for each seed; finite.
        seed: of the random signs.

    Returns:
        the p-value; None for fewer than two pairs.
    """
    import numpy
    from scipy import stats

    if len(differences) < 2:
        return None
    if not any(differences):
        return 1.0
    found = stats.permutation_test(
        (numpy.asarray(differences, dtype=float),),
        numpy.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=numpy.random.default_rng(seed),
    )
    return float(found.pvalue)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return p-values corrected for their number (Holm 1979): the chance of any false finding stays below the level."""
    corrected: dict[Key, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = largest
    return corrected


def area_under_curve(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean height of the line through `points`, (x, y) with x rising, by trapezoids; one point: its height."""
    if len(points) < 2:
        return points[0][1]
    pairs = list(itertools.pairwise(points))
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs) / (points[-1][0] - points[0][0])


def roughness(values: Sequence[float]) -> float | None:
    """Return the root mean square of the steps of log(values): 0.1 means that neighbours differ by about 10 %.

    A common factor changes nothing, so that arms whose weights make all gradients larger can be compared. Values that are
    not positive are left out; None for fewer than two.
    """
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < 2:
        return None
    return math.sqrt(math.fsum((b - a) ** 2 for a, b in itertools.pairwise(logs)) / (len(logs) - 1))
