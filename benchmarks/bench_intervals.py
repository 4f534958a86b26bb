"""Coverage of the intervals and tests in verl_trgrpo.compare.statistics, by simulation (two minutes of one core).

    python benchmarks/bench_intervals.py

A 95 % interval should hold the true mean in 95 % of experiments, and a test without a difference be below 0.05 in 5 %.
"""

from collections.abc import Callable

import numpy as np

from verl_trgrpo.common.text import text_table
from verl_trgrpo.compare.statistics import (
    Estimate,
    crossed_interval,
    equivalence_p_value,
    mean_interval,
    paired_p_value,
)

EXPERIMENTS = 400  # standard error of a share near 0.95: 0.011


def share(experiment: Callable[[np.random.Generator, int], bool]) -> str:
    """Return the share of experiments that come out true."""
    rng = np.random.default_rng(1)
    return f"{sum(experiment(rng, number) for number in range(EXPERIMENTS)) / EXPERIMENTS:.3f}"


def holds(estimate: Estimate, truth: float) -> bool:
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def covers_over_samples(rng: np.random.Generator, _: int) -> bool:
    """Return whether the usual interval of a share, which ignores that prompts differ, holds 0.5."""
    mean = rng.binomial(16, rng.beta(0.3, 0.3, 100)).mean() / 16
    return bool(abs(mean - 0.5) <= 1.96 * np.sqrt(mean * (1 - mean) / 1600))


def main() -> None:
    rows = []
    for n in (2, 3, 4, 5, 8, 30):
        covered = share(lambda rng, i, n=n: holds(mean_interval(rng.normal(3, 2, n).tolist(), seed=i), 3.0))
        rows.append([f"mean_interval, {n} normal values", covered, "0.95"])
    # Most prompts are nearly always or nearly never solved, as with real models.
    prompts = share(
        lambda rng, i: holds(mean_interval((rng.binomial(16, rng.beta(0.3, 0.3, 100)) / 16).tolist(), seed=i), 0.5)
    )
    rows.append(["mean_interval, 100 prompts of 16 samples", prompts, "0.95"])
    rows.append(["normal interval over their 1,600 samples", share(covers_over_samples), "much less"])
    for count in (3, 6):
        for by_row, by_column in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.1, 0.3)):

            def table(
                rng: np.random.Generator, count: int = count, a: float = by_row, b: float = by_column
            ) -> np.ndarray:
                return rng.normal(0.5, 0.45, (count, 64)) + rng.normal(0, a, (count, 1)) + rng.normal(0, b, (1, 64))

            covered = share(lambda rng, _, table=table: holds(crossed_interval(table(rng)), 0.5))
            rows.append([f"crossed_interval, {count} x 64, spread {by_row} and {by_column}", covered, "0.95"])
    alarms = share(lambda rng, _: (paired_p_value(rng.normal(0, 1, 8).tolist()) or 1.0) < 0.05)
    rows.append(["paired_p_value below 0.05, 8 pairs without a difference", alarms, "0.05"])
    for mean, expected in ((0.02, "0.05"), (-0.02, "0.05"), (0.0, "above 0.9"), (0.04, "0.00")):
        found = share(
            lambda rng, _, mean=mean: (equivalence_p_value((mean + rng.normal(0, 0.01, 8)).tolist(), 0.02) or 1) < 0.05
        )
        rows.append([f"equivalence within 0.02 found, mean {mean}", found, expected])
    print(text_table(rows, ["what", "share", "expected"], "lrr"))


if __name__ == "__main__":
    main()
