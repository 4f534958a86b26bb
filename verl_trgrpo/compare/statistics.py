"""Means with intervals, paired tests and their correction, for runs, studies and evaluations.

There are two units: runs with different seeds, of which there are few (three to ten), and test prompts, of which there are
many. Samples of one prompt are not independent, nor are prompts of one run: intervals take one value per unit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)

LEVEL = 0.95
RESAMPLES = 9999
# Bootstrap intervals end at the smallest and the largest value at most. A 95 % interval of fewer normal values covers the mean
# in 76 % (three values) or 87 % (four) of cases.
FEWEST_FOR_BOOTSTRAP = 5


@dataclass(frozen=True)
class Estimate:
    """Hold a mean and its interval; `low` and `high` are None where the data give no interval."""

    mean: float
    low: float | None = None
    high: float | None = None


def t_quantile(units: int) -> float:
    """Return how many standard errors the 95 % t interval of the mean of `units` values, at least two, reaches to each side."""
    from scipy import stats

    return float(stats.t.ppf((1 + LEVEL) / 2, units - 1))


def mean_interval(values: Sequence[float]) -> Estimate:
    """Return the mean of independent units, such as seeds, with its 95 % t interval.

    Every interval over runs or seeds, of commands and of pages, is this one.

    Args:
        values: finite, one per unit.

    Returns:
        the estimate, without an interval if there is one value or all are equal.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    from scipy import stats

    _check_groups(values)
    mean, n = math.fsum(values) / len(values), len(values)
    if _no_spread(values):
        return Estimate(mean)
    half_width = t_quantile(n) * float(stats.sem(values))
    return Estimate(mean, mean - half_width, mean + half_width)


def prompts_interval(*groups: Sequence[float], seed: int = 0) -> Estimate:
    """Return the mean of the means of groups of prompts, with its 95 % bootstrap interval over prompts.

    Values of prompts are shares, many of them 0 or 1. The interval is a percentile bootstrap, widened for small n: the tail is
    Phi(-sqrt(n / (n - 1)) t), with the quantile t of n - 1 degrees of freedom ("expanded percentiles", Hesterberg, What Teachers
    Should Know About the Bootstrap, 2015).

    Args:
        groups: finite values, one per prompt. Values are resampled within their group; groups have equal weight. n is the size
            of the smallest group.
        seed: seed of the resampling.

    Returns:
        the estimate, without an interval if a group has fewer than five values or the values of every group are equal.

    Raises:
        ValueError: a group is empty, or values are not finite.
    """
    import numpy
    from scipy import stats

    _check_groups(*groups)
    mean = math.fsum(math.fsum(group) / len(group) for group in groups) / len(groups)
    n = min(map(len, groups))
    if n < FEWEST_FOR_BOOTSTRAP or all(map(_no_spread, groups)):
        return Estimate(mean)

    def mean_of_means(*samples: Any, axis: int) -> Any:
        return sum(numpy.mean(sample, axis=axis) for sample in samples) / len(samples)

    tail = float(stats.norm.cdf(-math.sqrt(n / (n - 1)) * t_quantile(n)))
    found = stats.bootstrap(
        [numpy.asarray(group, dtype=float) for group in groups],
        mean_of_means,
        n_resamples=RESAMPLES,
        batch=max(1, 1_000_000 // sum(map(len, groups))),
        confidence_level=1 - 2 * tail,
        method="percentile",
        rng=numpy.random.default_rng(seed),
    ).confidence_interval
    return Estimate(mean, float(found.low), float(found.high))


def _check_groups(*groups: Sequence[float]) -> None:
    if not groups or not all(map(len, groups)) or not all(map(math.isfinite, itertools.chain(*groups))):
        raise ValueError(f"values are {[list(group) for group in groups]}; give at least one in each group, all finite")


def _no_spread(values: Sequence[float]) -> bool:
    """Return whether values are equal up to rounding."""
    return max(values) - min(values) <= 1e-12 * max(map(abs, values))


def paired_p_value(differences: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the sign-flip permutation test that finite paired differences have mean 0.

    It is exact up to 13 pairs (all 2^n signs), and uses `RESAMPLES` random signs above. n pairs cannot give less than 2 / 2^n.
    None for fewer than two pairs.
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
        rng=numpy.random.default_rng(0),
    )
    return float(found.pvalue)


def equivalence_p_value(differences: Sequence[float], margin: float) -> float | None:
    """Return the p-value of the paired equivalence test (TOST) that the mean difference is within +-`margin`.

    It is the larger p-value of two one-sided t tests, against -margin and +margin (Schuirmann 1987). A small value shows
    equivalence, which a large p-value of `paired_p_value` does not.

    Args:
        differences: finite, one per pair.
        margin: largest mean difference that does not matter, above 0, chosen before the data were seen.

    Returns:
        the p-value; None for fewer than two pairs.
    """
    from scipy import stats

    if len(differences) < 2:
        return None
    if min(differences) == max(differences):
        return float(abs(differences[0]) >= margin)
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    return float(max(above, below))


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return p-values with Holm's (1979) correction, which controls the family-wise error rate."""
    names = sorted(p_values, key=lambda name: p_values[name])
    raised = [min(1.0, (len(names) - place) * p_values[name]) for place, name in enumerate(names)]
    return dict(zip(names, itertools.accumulate(raised, max), strict=True))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return 1 - C(samples - correct, k) / C(samples, k), the unbiased estimate of pass@k for k up to the number of samples."""
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)
