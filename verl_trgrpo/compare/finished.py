"""Compare runs that have been trained: choose baseline and step, compare, and say what limits the comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tyro

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.options import Options
from verl_trgrpo.compare.arms import Run, group_arms, last_common_step, read_runs
from verl_trgrpo.compare.budget import budget_of
from verl_trgrpo.compare.comparison import Comparison, compare_runs
from verl_trgrpo.compare.tables import Table, comparison_tables
from verl_trgrpo.runs.records import StudyRecord


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """Runs to compare.

    Args:
        runs: directories with logs of veRL's file logger, files of this logger, or parents of such directories.
        baseline: arm to compare with. By default the baseline of the study, else grpo, else the first arm.
        metric: validation metric. By default the mean accuracy over data sources.
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    baseline: str | None = None
    metric: str | None = None

    def problems(self) -> list[str]:
        """Return a message if there are no runs."""
        return [] if self.runs else ["no runs are given; name at least one directory"]


class ComparedRuns(NamedTuple):
    """The result of :func:`compare_finished`.

    Args:
        arms: runs by arm, the baseline first.
        upto: last step that the comparison uses.
        comparison: figures of all arms.
        tables: the figures with intervals and tests, as text.
        notes: a sentence for each limitation.
        budget: what this number of runs can choose and show; "" for a single arm.
    """

    arms: dict[str, list[Run]]
    upto: int
    comparison: Comparison
    tables: list[Table]
    notes: list[str]
    budget: str


def compare_finished(options: CompareOptions) -> ComparedRuns:
    """Read runs, and compare them at the last step that all finished ones reached.

    Raises:
        ValueError: the input is wrong, with all messages.
    """
    runs = read_runs(options.runs)
    labels = list(dict.fromkeys(run.label for run in runs))
    # Of a study, the tests that were chosen beforehand, so that the page has the p-values of its table.
    studies = [run.record.study for run in runs]
    study = studies[0] if all(one == studies[0] for one in studies) else StudyRecord()
    choices = (options.baseline, study.baseline, "grpo")
    baseline = next((label for label in choices if label in labels), labels[0])
    if baseline != study.baseline:
        study = StudyRecord()
    _check(options, runs, labels, baseline)
    primary, margin = study.primary or "", study.margin
    arms, upto = group_arms(runs, baseline), last_common_step(runs)
    _, comparison = compare_runs(arms, baseline, options.metric, primary, margin, upto)
    tables = comparison_tables(comparison, baseline, primary, margin)
    line = budget_of(comparison, baseline, primary)
    return ComparedRuns(arms, upto, comparison, tables, notes(arms, baseline, upto), line)


def _check(options: CompareOptions, runs: Sequence[Run], labels: Sequence[str], baseline: str) -> None:
    names = {name for run in runs for step in run.steps for name in step.metrics}
    messages = []
    if options.baseline not in (None, baseline):
        messages.append(f"--baseline {options.baseline}: not an arm of these runs; choose one of {', '.join(labels)}")
    if options.metric is not None and options.metric not in names:
        known = sorted(name for name in names if name.startswith("val-"))
        remedy = f"choose one of {', '.join(known)}" if known else "the runs have no validation metrics"
        messages.append(f"--metric {options.metric}: no run has this metric; {remedy}")
    raise_invalid(messages)


def notes(arms: Mapping[str, Sequence[Run]], baseline: str, upto: int) -> list[str]:
    """Return a sentence for each limitation of the comparison."""
    from verl_trgrpo.runs.health import judge  # and numpy, which the help does not need

    runs = [run for own in arms.values() for run in own]
    seeds = {run.seed for run in runs if run.label == baseline} - {None}
    facts = {
        f"The comparison ends at step {upto}; the curves show all steps. Longer runs": [
            f"{run.name} to {run.last_step}" for run in runs if run.last_step > upto
        ],
        f"Left out, because these runs end before step {upto}": [
            f"{run.name} at {run.last_step}" for run in runs if run.last_step < upto
        ],
        "Resumed from an earlier checkpoint; the abandoned steps are grey in the curves and not compared": [
            f"{run.name} left {branch.text}" for run in runs for branch in run.abandoned
        ],
        "Not finished": [run.name for run in runs if run.record.finished is False],
        f"Not paired, because {baseline} has no run with the same seed": [
            run.name for run in runs if run.label != baseline and run.seed not in seeds
        ],
        "With problems that `verl-trgrpo health` explains": [
            f"{run.name}, {found.signal.name} from step {found.first}"
            for run in runs
            for found in judge(run.steps)
            if found.is_sick
        ],
        "Not a number, and left out": [text for run in runs for text in _not_finite(run)],
    }
    return [f"{what}: {', '.join(names)}." for what, names in facts.items() if names]


def _not_finite(run: Run) -> list[str]:
    first: dict[str, int] = {}
    for step in run.steps:
        for metric, value in step.metrics.items():
            if not math.isfinite(value):
                first.setdefault(metric, step.number)
    return [f"{metric} of {run.name} from step {number}" for metric, number in sorted(first.items())]
