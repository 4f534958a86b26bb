"""What has to be kept in mind when the figures are read."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verl_trgrpo.runs.report.runs import Arm


def notes(arms: Sequence[Arm], baseline: str, upto: int) -> list[str]:
    """Return a sentence for each thing that limits what the figures say."""
    runs = [run for arm in arms for run in arm.runs]
    seeds = {run.seed for run in runs if run.label == baseline} - {None}
    facts = {
        f"The comparison takes steps up to {upto}, the curves all. Longer runs end later": [
            f"{run.name} at {run.last_step}" for run in runs if run.last_step > upto
        ],
        f"Not in the comparison, because they end before step {upto}": [
            f"{run.name} at {run.last_step}" for run in runs if run.last_step < upto
        ],
        "Not finished": [run.name for run in runs if run.record.get("finished") is False],
        "One run alone does not say how much another seed would differ": [
            arm.label for arm in arms if len(arm.runs) == 1
        ],
        f"Not paired, because {baseline} has no run with that seed": [
            run.name for run in runs if run.label != baseline and run.seed not in seeds
        ],
        "Not a number, and left out": [text for run in runs for text in _not_finite(run.name, run.steps)],
    }
    return [f"{what}: {_listed(names)}." for what, names in facts.items() if names]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _not_finite(name: str, steps: Sequence) -> list[str]:
    first: dict[str, int] = {}
    for step in steps:
        for metric, value in step.metrics.items():
            if not math.isfinite(value):
                first.setdefault(metric, step.number)
    return [f"{metric} of {name} from step {number}" for metric, number in sorted(first.items())]
