"""Means with intervals, paired tests, their correction, and all of them as text: the statistics of runs, studies and evaluations.

Two units occur. Runs with different seeds are few (three to ten), test prompts many. The samples of one prompt, and the prompts
of one run, are not independent of one another; `mean_interval` therefore takes one value for each unit, and `crossed_interval`
has both units at once.
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
# With fewer values the bootstrap cannot reach further than the smallest and the largest of them, and its interval of 95 % holds
# the mean of normal values in 76 % (three values) or 87 % (four) of cases; that of the t distribution in 95 %.
FEWEST_FOR_BOOTSTRAP = 5


@dataclass(frozen=True)
class Estimate:
    """A mean and the ends of its interval; None where nothing tells how far off the mean may be."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_interval(*groups: Sequence[float], seed: int = 0) -> Estimate:
    """Return the mean of values, or of the means of several groups, with its 95 % interval.

    From five values on it is a bootstrap interval, whose percentiles are taken further out because few values would make it
    too narrow: at Phi(-sqrt(n / (n - 1)) t) with the quantile t of n - 1 degrees of freedom ("expanded percentiles",
    Hesterberg, What Teachers Should Know About the Bootstrap, 2015). Fewer values get the t interval.

    Args:
        groups: one or more; values of one group are drawn within it, and groups count equally. The smallest group decides about
            n above. Values are finite, one for each independent unit.
        seed: of the resampling.

    Returns:
        the estimate; without an interval where a group has one value, or all groups have equal values.

    Raises:
        ValueError: for a group without values, or values that are not finite.
    """
    import numpy
    from scipy import stats

    if not groups or not all(groups) or not all(map(math.isfinite, itertools.chain(*groups))):
        raise ValueError(f"values are {[list(group) for group in groups]}; give at least one in each group, all finite")
    mean = math.fsum(math.fsum(group) / len(group) for group in groups) / len(groups)
    n = min(map(len, groups))
    # Equal but for rounding.
    if n < 2 or all(max(group) - min(group) <= 1e-12 * max(map(abs, group)) for group in groups):
        return Estimate(mean)
    if len(groups) == 1 and n < FEWEST_FOR_BOOTSTRAP:
        low, high = stats.t.interval(LEVEL, n - 1, loc=mean, scale=stats.sem(groups[0]))
        return Estimate(mean, float(low), float(high))

    def mean_of_means(*samples: Any, axis: int) -> Any:
        return sum(numpy.mean(sample, axis=axis) for sample in samples) / len(samples)

    found = stats.bootstrap(
        [numpy.asarray(group, dtype=float) for group in groups],
        mean_of_means,
        n_resamples=RESAMPLES,
        batch=max(1, 1_000_000 // sum(map(len, groups))),
        confidence_level=1 - 2 * _expanded_tail(n),
        method="percentile",
        rng=numpy.random.default_rng(seed),
    ).confidence_interval
    return Estimate(mean, float(found.low), float(found.high))


def crossed_interval(values: Any) -> Estimate:
    """Return the mean of a table with a 95 % interval for other rows and other columns.

    The effect of a row is shared by all values in it, as is that of a column. With mean squares of rows R, columns C and
    residuals E, the variance of the mean is estimated by (R + max(0, C - E)) / size, the one of the two-way model with random
    effects, and the t quantile has Satterthwaite's degrees of freedom (Searle, Casella and McCulloch, Variance Components, 1992).
    Resampling rows and columns ("pigeonhole bootstrap", Owen 2007) would count the residuals three times, and between few rows
    and hundreds of columns they prevail.

    Args:
        values: (rows, columns), such as one row for each seed and one column for each test prompt, finite. Of a single row or
            column it is the t interval of its values.

    Returns:
        the estimate; without an interval for a single value or equal values. It holds the mean in 93 to 97 % of cases from three
        rows on, with two in 90 % at least.
    """
    import numpy
    from scipy import stats

    table = numpy.asarray(values, dtype=float)
    rows, columns = table.shape
    mean = float(table.mean())
    if table.min() == table.max():
        return Estimate(mean)
    by_row, by_column = table.mean(axis=1), table.mean(axis=0)
    # Mean squares that add up to the variance, with their degrees of freedom.
    parts: list[tuple[float, int]] = []
    if rows > 1:
        parts.append((columns * by_row.var(ddof=1), rows - 1))
    if columns > 1:
        parts.append((rows * by_column.var(ddof=1), columns - 1))
    if len(parts) == 2:
        freedom = (rows - 1) * (columns - 1)
        residual = float(((table - by_row[:, None] - by_column + mean) ** 2).sum() / freedom)
        parts = [*parts, (-residual, freedom)] if parts[1][0] > residual else parts[:1]
    total = sum(square for square, _ in parts)
    if total <= 0:  # rows with equal means
        return Estimate(mean)
    freedom = max(
        total**2 / sum(square**2 / freedom for square, freedom in parts), min(freedom for _, freedom in parts)
    )
    low, high = stats.t.interval(LEVEL, freedom, loc=mean, scale=math.sqrt(total / table.size))
    return Estimate(mean, float(low), float(high))


def _expanded_tail(n: int) -> float:
    from scipy import stats

    return float(stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf((1 + LEVEL) / 2, n - 1)))


def paired_p_value(differences: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the sign-flip permutation test that paired differences, all finite, have mean 0.

    Exact up to 13 pairs (all 2^n signs), else from `RESAMPLES` random signs. With n pairs it cannot be below 2 / 2^n; None
    for fewer than two pairs.
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
    """Return the p-value of the paired test that the mean difference lies within +-`margin` (TOST).

    Two one-sided t tests, of a mean not above -margin and of one not below +margin; the larger p-value counts (Schuirmann
    1987). A small one says that the arms are equivalent; a large one of the test of a difference does not say so.

    Args:
        differences: one for each pair; finite.
        margin: the largest mean difference that does not matter, above 0; fixed before the data were seen.

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
    """Return p-values corrected for their number (Holm 1979): the chance of any false finding stays below the level."""
    names = sorted(p_values, key=lambda name: p_values[name])
    raised = [min(1.0, (len(names) - place) * p_values[name]) for place, name in enumerate(names)]
    return dict(zip(names, itertools.accumulate(raised, max), strict=True))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of k samples is right.

    That is 1 - C(samples - correct, k) / C(samples, k): the share of the subsets of k samples that have a right one.
    Raises ValueError unless 0 <= correct <= samples and 1 <= k <= samples.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {correct} right ones among {samples} samples is not defined")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def number(value: float, size: float | None = None) -> str:
    """Three decimals or three digits; an exponent where plain digits would be none or many.

    `size` is of the largest number beside it, so that all get the same decimals.
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
