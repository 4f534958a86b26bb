"""avg@k, pass@k and their confidence intervals.

The prompt is the unit of everything: the samples of one prompt are not independent of one another, so intervals come from
drawing prompts anew, each with all its samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
RESAMPLES = 10_000


@dataclass(frozen=True)
class Estimate:
    """A mean over prompts with its 95 % interval; None where there is nothing to estimate it from."""

    value: float | None
    low: float | None = None
    high: float | None = None


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of k samples is right.

    That is 1 - C(samples - correct, k) / C(samples, k): the share of the subsets of k samples that have a right one.

    Args:
        samples: samples of the prompt.
        correct: how many of them are right, 0 to `samples`.
        k: 1 to `samples`.

    Raises:
        ValueError: for numbers out of range.
    """
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(
            f"pass@{k} of {correct} right ones among {samples} samples is not defined; "
            "it needs 0 <= correct <= samples and 1 <= k <= samples"
        )
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def bootstrap_means(values: Sequence[float], seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Return (resamples,) means of as many draws of prompts with replacement.

    Args:
        values: a value for each prompt, at least one.
        seed: same seed and values, same result.
    """
    # How often each distinct value is drawn decides the mean, and there are few: counts of right samples over k.
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(values), counts / len(values), size=resamples)
    return drawn @ distinct / len(values)


def estimate(values: Sequence[float], seed: int) -> Estimate:
    """Return the mean over prompts and its percentile bootstrap interval.

    There is no interval where all prompts have the same value (or there is only one): nothing drawn from them could
    show how far the next prompt might be off.
    """
    if not values:
        return Estimate(None)
    mean = float(np.mean(values))
    if min(values) == max(values):
        return Estimate(mean)
    return Estimate(mean, *_interval(bootstrap_means(values, seed)))


def estimate_macro(groups: Sequence[Sequence[float]], seed: int) -> Estimate:
    """Return the mean of the groups' means; prompts are drawn within each group.

    Args:
        groups: values of the prompts of each group; none of them empty.
    """
    if not groups:
        return Estimate(None)
    mean = float(np.mean([np.mean(values) for values in groups]))
    if all(min(values) == max(values) for values in groups):
        return Estimate(mean)
    # Another seed for each group: equal groups must not move together.
    means = [bootstrap_means(values, seed + number) for number, values in enumerate(groups, start=1)]
    return Estimate(mean, *_interval(np.mean(means, axis=0)))


def _interval(means: np.ndarray) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
