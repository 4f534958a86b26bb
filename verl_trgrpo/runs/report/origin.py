"""What was run, and what has to be kept in mind when the figures are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from verl_trgrpo.runs.compare.figures import accuracies
from verl_trgrpo.runs.report.arms import Arm
from verl_trgrpo.runs.report.charts import number
from verl_trgrpo.runs.report.runs import Run


class RunRow(NamedTuple):
    """A line of the table of runs, as text."""

    arm: str
    seed: str
    steps: str
    validation: str
    state: str
    path: str


class Origin(NamedTuple):
    """What was run.

    Args:
        runs: a line for each.
        facts: what all runs have in common, by name: commit, versions, machine, settings.
        differences: settings that are not the same everywhere: name, and by arm its value.
    """

    runs: list[RunRow]
    facts: list[tuple[str, str]]
    differences: list[tuple[str, list[tuple[str, str]]]]


def origin(arms: Sequence[Arm], metric: str | None) -> Origin:
    """Return what ``run.json`` and the logs say about the runs."""
    runs = [run for arm in arms for run in arm.runs]
    rows = [_row(run, metric) for run in runs]
    facts = []
    for name in ("trainer", "commit", "machine"):
        values = {str(run.record[name]) for run in runs if run.record.get(name)}
        if len(values) == 1:
            facts.append((name, values.pop()))
    versions = [_flat(run.record.get("versions")) for run in runs]
    facts += [
        (name, own[0]) for name, own in _columns(versions).items() if len(own) == len(runs) and len(set(own)) == 1
    ]
    settings = {arm.label: [_flat(run.record.get("settings")) for run in arm.runs] for arm in arms}
    names = _columns([one for own in settings.values() for one in own])
    same = {name for name, own in names.items() if len(own) == len(runs) and len(set(own)) == 1}
    facts += [(name, names[name][0]) for name in names if name in same]
    differences = [
        (name, [(label, _either(one.get(name, "not set") for one in own)) for label, own in settings.items()])
        for name in names
        if name not in same
    ]
    return Origin(rows, facts, differences)


def notes(arms: Sequence[Arm], baseline: str, metric: str | None, upto: int) -> list[str]:
    """Return a sentence for each thing that limits what the figures say."""
    runs = [run for arm in arms for run in arm.runs]
    found = []
    longer = [f"{run.name} at {run.last_step}" for run in runs if run.last_step > upto]
    if longer:
        found.append(
            f"The comparison takes steps up to {upto}, the curves all. Longer runs end later: {_listed(longer)}."
        )
    shorter = [f"{run.name} at {run.last_step}" for run in runs if run.last_step < upto]
    if shorter:
        found.append(f"Not in the comparison, because they end before step {upto}: {_listed(shorter)}.")
    unfinished = [run.name for run in runs if run.record.get("finished") is False]
    if unfinished:
        found.append(f"Not finished: {_listed(unfinished)}.")
    if any(run.record.get("uncommitted_changes") for run in runs):
        found.append("Some runs were made from a checkout with changes that are in no commit.")
    if len({run.record["commit"] for run in runs if run.record.get("commit")}) > 1:
        found.append("The runs were made at different commits; see the table of runs.")
    for arm in arms:
        found += _about_arm(arm, arms, baseline, metric, upto)
    return found + [note for run in runs if (note := _not_finite(run))]


def validation_metrics(runs: Sequence[Run]) -> list[str]:
    """Names of all validation metrics in the logs."""
    names = {name for run in runs for step in run.steps for name in step.metrics if name.startswith("val-")}
    return sorted(names)


def _about_arm(arm: Arm, arms: Sequence[Arm], baseline: str, metric: str | None, upto: int) -> list[str]:
    found = []
    if len(arm.runs) == 1:
        found.append(f"{arm.label} has one run: nothing says how much another seed would differ.")
    without = [run.name for run in arm.runs if not accuracies(run.steps, metric)]
    if without:
        names = validation_metrics(arm.runs)
        others = f"; logged are {_listed(names)}, see --metric" if names else ""
        found.append(f"No {metric or 'validation accuracy'} was logged by {_listed(without)}{others}.")
    ends = {
        points[-1][0]
        for run in arm.runs
        if run.last_step >= upto and (points := [p for p in accuracies(run.steps, metric) if p[0] <= upto])
    }
    if len(ends) > 1:
        found.append(f"{arm.label}: the last validations before step {upto} are of different steps.")
    if arm.label != baseline:
        (base,) = (other for other in arms if other.label == baseline)
        seeds = {run.seed for run in base.runs} - {None}
        single = [run.name for run in arm.runs if run.seed not in seeds]
        if single:
            found.append(f"Not paired, because {baseline} has no run with that seed: {_listed(single)}.")
    return found


def _not_finite(run: Run) -> str:
    where: dict[str, list[int]] = {}
    for step in run.steps:
        for name, value in step.metrics.items():
            if not math.isfinite(value):
                where.setdefault(name, []).append(step.number)
    texts = [f"{name} at step {_listed([str(step) for step in steps], 3)}" for name, steps in sorted(where.items())]
    return (
        f"{run.name} logged values that are not numbers: {_listed(texts)}. They are gaps in the curves."
        if texts
        else ""
    )


def _row(run: Run, metric: str | None) -> RunRow:
    points = accuracies(run.steps, metric)
    validation = f"{number(points[-1][1])} at step {points[-1][0]:g}" if points else "none"
    finished = run.record.get("finished")
    state = "" if finished is None else "finished" if finished else "not finished"
    commit = str(run.record.get("commit") or "")[:10]
    about = ", ".join(filter(None, (f"{run.logger} logger", state, f"commit {commit}" if commit else "")))
    seed = "unknown" if run.seed is None else str(run.seed)
    return RunRow(run.label, seed, f"{run.steps[0].number} to {run.last_step}", validation, about, str(run.path))


def _columns(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: [table[name] for table in tables if name in table] for name in names}


def _flat(value: Any) -> dict[str, str]:
    return {str(name): str(one) for name, one in value.items()} if isinstance(value, Mapping) else {}


def _either(values: Any) -> str:
    return " or ".join(dict.fromkeys(values)) or "unknown"


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
