"""The table of a report: each figure of each arm with its interval, and its difference from the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from verl_trgrpo.compare.figures import FIGURES, run_figures
from verl_trgrpo.compare.statistics import Interval, bootstrap_interval, holm, paired_p_value
from verl_trgrpo.compare.table import TESTED
from verl_trgrpo.report.arms import Arm
from verl_trgrpo.report.metrics import Step
from verl_trgrpo.report.runs import Run

SIGNIFICANT = 0.05


class Difference(NamedTuple):
    """An arm minus the baseline, over the seeds that both have.

    Args:
        interval: of the mean difference.
        pairs: number of seeds.
        p: of the sign-flip permutation test; None for fewer than two pairs, and for figures that are not tested.
        corrected: p after Holm's correction for all tests of the report.
    """

    interval: Interval
    pairs: int
    p: float | None
    corrected: float | None

    @property
    def significant(self) -> bool:
        return self.corrected is not None and self.corrected < SIGNIFICANT

    @property
    def smallest_p(self) -> float:
        """What the test gives at best with so many pairs."""
        return 2.0 / 2**self.pairs


class Entry(NamedTuple):
    """One arm's figure: over how many runs, its interval, and the difference (None: the baseline, or no common seed)."""

    arm: Arm
    runs: int
    interval: Interval
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
    runs = [run for arm in arms for run in arm.runs if run.last_step >= upto]
    found = {run.path: run_figures(_finite(run.steps, upto), metric) for run in runs}
    values = {
        name: {
            arm.label: [(run, found[run.path][name]) for run in arm.runs if name in found.get(run.path, {})]
            for arm in arms
        }
        for name in FIGURES
    }
    apart = _differences(values, baseline)
    sections = []
    for name, figure in FIGURES.items():
        entries = [
            Entry(arm, len(own), bootstrap_interval([value for _, value in own]), apart.get((name, arm.label)))
            for arm in arms
            if (own := values[name][arm.label])
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


def _differences(
    values: Mapping[str, Mapping[str, Sequence[tuple[Run, float]]]], baseline: str
) -> dict[tuple[str, str], Difference]:
    """Differences from the baseline by figure and arm."""
    pairs: dict[tuple[str, str], list[float]] = {}
    for name, arms in values.items():
        by_seed = {label: {run.seed: x for run, x in own if run.seed is not None} for label, own in arms.items()}
        base = by_seed[baseline]
        for label, own in by_seed.items():
            common = [own[seed] - base[seed] for seed in own if seed in base]
            if common and label != baseline:
                pairs[name, label] = common
    tests = {key: p for key, own in pairs.items() if key[0] in TESTED and (p := paired_p_value(own)) is not None}
    corrected = holm(tests)
    return {
        key: Difference(bootstrap_interval(own), len(own), tests.get(key), corrected.get(key))
        for key, own in pairs.items()
    }
