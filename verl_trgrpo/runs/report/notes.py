"""What was run, and what has to be kept in mind when the figures are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from verl_trgrpo.runs.charts import number
from verl_trgrpo.runs.compare.figures import accuracies
from verl_trgrpo.runs.report.runs import Arm, Run


def run_table(runs: Sequence[Run], metric: str | None) -> list[dict[str, str]]:
    """Return a line for each run: arm, seed, steps, last validation, origin, path."""
    rows = []
    for run in runs:
        points = accuracies(run.steps, metric)
        state = (
            {True: "finished", False: "not finished"}.get(bool(run.record["finished"]))
            if "finished" in run.record
            else ""
        )
        commit = f"commit {str(run.record['commit'])[:10]}" if run.record.get("commit") else ""
        rows.append(
            {
                "arm": run.label,
                "seed": "unknown" if run.seed is None else str(run.seed),
                "steps": f"{run.steps[0].number} to {run.last_step}",
                "last validation": f"{number(points[-1][1])} at step {points[-1][0]:g}" if points else "none",
                "origin": ", ".join(filter(None, (f"{run.logger} logger", state, commit))),
                "path": str(run.path),
            }
        )
    return rows


def settings(arms: Sequence[Arm]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return what ``run.json`` says of all runs: what is the same, by name, and settings that differ, by name and arm."""
    runs = [run for arm in arms for run in arm.runs]
    tables = [{name: run.record[name] for name in ("trainer", "commit", "machine") if run.record.get(name)}
              | _table(run, "versions") | _table(run, "settings") for run in runs]  # fmt: skip
    names = dict.fromkeys(name for table in tables for name in table)
    values = {name: {str(table.get(name, "not set")) for table in tables} for name in names}
    same = {name: own.pop() for name, own in values.items() if len(own) == 1}
    own_settings = {arm.label: [_table(run, "settings") for run in arm.runs] for arm in arms}
    asked = dict.fromkeys(name for tables in own_settings.values() for table in tables for name in table)
    different = {
        name: {
            label: " or ".join(dict.fromkeys(str(table.get(name, "not set")) for table in tables))
            for label, tables in own_settings.items()
        }
        for name in asked
        if name not in same
    }
    return same, different


def _table(run: Run, name: str) -> dict[str, Any]:
    value = run.record.get(name)
    return value if isinstance(value, dict) else {}


def notes(arms: Sequence[Arm], baseline: str, metric: str | None, upto: int) -> list[str]:
    """Return a sentence for each thing that limits what the figures say."""
    runs = [run for arm in arms for run in arm.runs]
    found = []
    if longer := [f"{run.name} at {run.last_step}" for run in runs if run.last_step > upto]:
        found.append(
            f"The comparison takes steps up to {upto}, the curves all. Longer runs end later: {_listed(longer)}."
        )
    if shorter := [f"{run.name} at {run.last_step}" for run in runs if run.last_step < upto]:
        found.append(f"Not in the comparison, because they end before step {upto}: {_listed(shorter)}.")
    if unfinished := [run.name for run in runs if run.record.get("finished") is False]:
        found.append(f"Not finished: {_listed(unfinished)}.")
    if any(run.record.get("uncommitted_changes") for run in runs):
        found.append("Some runs were made from a checkout with changes that are in no commit.")
    if len({run.record["commit"] for run in runs if run.record.get("commit")}) > 1:
        found.append("The runs were made at different commits; see the table of runs.")
    seeds = {run.seed for run in runs if run.label == baseline} - {None}
    for arm in arms:
        found += _about_arm(arm, metric, upto)
        single = [run.name for run in arm.runs if run.seed not in seeds]
        if single and arm.label != baseline:
            found.append(f"Not paired, because {baseline} has no run with that seed: {_listed(single)}.")
    return [*found, *(note for run in runs for note in _not_finite(run))]


def validation_metrics(runs: Sequence[Run]) -> list[str]:
    """Names of all validation metrics in the logs."""
    return sorted({name for run in runs for step in run.steps for name in step.metrics if name.startswith("val-")})


def _about_arm(arm: Arm, metric: str | None, upto: int) -> Iterator[str]:
    if len(arm.runs) == 1:
        yield f"{arm.label} has one run: nothing says how much another seed would differ."
    if without := [run.name for run in arm.runs if not accuracies(run.steps, metric)]:
        names = validation_metrics(arm.runs)
        others = f"; logged are {_listed(names)}, see --metric" if names else ""
        yield f"No {metric or 'validation accuracy'} was logged by {_listed(without)}{others}."
    validations = [[step for step, _ in accuracies(run.steps, metric) if step <= upto]
                   for run in arm.runs if run.last_step >= upto]  # fmt: skip
    if len({steps[-1] for steps in validations if steps}) > 1:
        yield f"{arm.label}: the last validations before step {upto} are of different steps."


def _not_finite(run: Run) -> Iterator[str]:
    where: dict[str, list[str]] = {}
    for step in run.steps:
        for name, value in step.metrics.items():
            if not math.isfinite(value):
                where.setdefault(name, []).append(str(step.number))
    if where:
        texts = [f"{name} at step {_listed(steps, 3)}" for name, steps in sorted(where.items())]
        yield f"{run.name} logged values that are not numbers: {_listed(texts)}. They are gaps in the curves."


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
