"""Runs grouped by arm, and a metric's curves over the steps: every seed, their mean, and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from verl_trgrpo.runs.compare.figures import accuracies
from verl_trgrpo.runs.metrics import Step
from verl_trgrpo.runs.report.runs import Run
from verl_trgrpo.runs.statistics import Estimate, mean_interval

Points = list[tuple[float, float]]  # (step, value), steps rising
Extract = Callable[[Sequence[Step]], Points]

# More points than this on a curve are averaged: they would not be told apart, and each needs its interval.
MOST_POINTS = 120


@dataclass(frozen=True)
class Arm:
    """All runs with one label; ``number`` is its place among the arms, which decides how it is drawn."""

    label: str
    number: int
    runs: tuple[Run, ...]


class Band(NamedTuple):
    """The mean over seeds at the steps that all of them have, with its interval; NaN where there is none."""

    steps: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


class Curves(NamedTuple):
    """One metric of one arm.

    Args:
        arm: whose.
        seeds: the points of each run that has the metric.
        counted: number of runs that the mean is over.
        band: over these runs.
    """

    arm: Arm
    seeds: list[Points]
    counted: int
    band: Band


def group_arms(runs: Sequence[Run], baseline: str) -> list[Arm]:
    """Return the arms in the order of their first runs, the baseline first."""
    labels = sorted(dict.fromkeys(run.label for run in runs), key=lambda label: label != baseline)
    return [Arm(label, number, tuple(run for run in runs if run.label == label)) for number, label in enumerate(labels)]


def metric(name: str) -> Extract:
    """How to get a logged metric."""
    return lambda steps: [(float(step.number), step.metrics[name]) for step in steps if name in step.metrics]


def accuracy(name: str | None) -> Extract:
    """How to get a validation metric, or (None) the mean accuracy over data sources."""
    return lambda steps: accuracies(steps, name)


def curves(arms: Sequence[Arm], extract: Extract, upto: int) -> tuple[list[Curves], int]:
    """Return the curves of the arms that have a metric, and how many steps each point is the mean of.

    Args:
        arms: in order.
        extract: of one run's steps. Infinite values become NaN, which leaves a gap.
        upto: the mean is over runs that reached this step; over all, where none did.
    """
    found = [
        (arm, [(run.last_step, points) for run in arm.runs if (points := _plain(extract(run.steps)))]) for arm in arms
    ]
    longest = max((len(points) for _, seeds in found for _, points in seeds), default=0)
    width = max(1, math.ceil(longest / MOST_POINTS))
    drawn = []
    for arm, seeds in found:
        if seeds:
            binned = [(last, _binned(points, width)) for last, points in seeds]
            every = [points for _, points in binned]
            counted = [points for last, points in binned if last >= upto] or every
            drawn.append(Curves(arm, every, len(counted), _band(counted)))
    return drawn, width


def _plain(points: Points) -> Points:
    return [(step, value if math.isfinite(value) else math.nan) for step, value in points]


def _binned(points: Points, width: int) -> Points:
    """Means of `width` neighbouring steps, at the last of them; the same steps make a bin in every run."""
    if width == 1:
        return points
    bins: dict[float, list[float]] = {}
    for step, value in points:
        bins.setdefault(math.ceil(step / width) * width, []).append(value)
    return [(step, math.fsum(values) / len(values)) for step, values in bins.items()]


def _band(seeds: Sequence[Points]) -> Band:
    tables = [dict(points) for points in seeds]
    # Where a shorter run ends, a mean of the rest would jump.
    steps = [step for step, _ in seeds[0] if all(step in table for table in tables)]
    band = Band(steps, [], [], [])
    for step in steps:
        values = [table[step] for table in tables]
        known = all(map(math.isfinite, values))
        found = mean_interval(values) if known else Estimate(math.nan)
        band.mean.append(found.mean)
        band.low.append(math.nan if found.low is None else found.low)
        band.high.append(math.nan if found.high is None else found.high)
    return band
