"""The table of a report: each figure of each arm with its interval, and its difference from the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from verl_trgrpo.runs.compare.differences import Difference, differences
from verl_trgrpo.runs.compare.figures import FIGURES, run_figures
from verl_trgrpo.runs.metrics import Step
from verl_trgrpo.runs.report.arms import Arm
from verl_trgrpo.runs.report.runs import Run
from verl_trgrpo.runs.statistics import Estimate, mean_interval


class Entry(NamedTuple):
    """One arm's figure: over how many runs, its interval, and the difference (None: the baseline, or no common seed)."""

    arm: Arm
    runs: int
    interval: Estimate
    difference: Difference | None


class Section(NamedTuple):
    """One figure of all arms that have it."""

    name: str
    about: str
    entries: list[Entry]


def last_common_step(runs: Sequence[Run]) -> int:
    """The last step that all runs reached; those that are known not to be finished do not count where others are there."""
    counted = [run for run in runs if run.record.get("finished") is not False] or runs
    return min(run.last_step for run in counted)


def compare(arms: Sequence[Arm], baseline: str, metric: str | None, upto: int) -> list[Section]:
    """Compare arms figure by figure.

    Args:
        arms: in order.
        baseline: label of the arm that the others are compared with.
        metric: validation metric; None for the mean over data sources.
        upto: later steps are left out, and so are runs that ended before, so that all had the same training.

    Returns:
        a section for each figure that any arm has.
    """
    # Values that are not finite are left out here; the report's notes count them.
    figures = {
        arm.label: [
            (run.seed, run_figures(_finite(run.steps, upto), metric)) for run in arm.runs if run.last_step >= upto
        ]
        for arm in arms
    }
    seeded = {label: {seed: own for seed, own in runs if seed is not None} for label, runs in figures.items()}
    apart = differences(seeded, baseline)
    sections = []
    for name, figure in FIGURES.items():
        entries = [
            Entry(arm, len(own), mean_interval(own), apart.get(arm.label, {}).get(name))
            for arm in arms
            if (own := [found[name] for _, found in figures[arm.label] if name in found])
        ]
        if entries:
            sections.append(Section(name, figure.about, entries))
    return sections


def _finite(steps: Sequence[Step], upto: int) -> list[Step]:
    return [
        Step(step.number, {name: value for name, value in step.metrics.items() if math.isfinite(value)})
        for step in steps
        if step.number <= upto
    ]
