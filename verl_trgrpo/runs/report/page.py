"""The page: the template filled in, and what it says in words."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_trgrpo import __version__
from verl_trgrpo.common.pages import render_page
from verl_trgrpo.common.text import count_of
from verl_trgrpo.runs.compare.comparison import OUTCOME, Comparison, Difference
from verl_trgrpo.runs.compare.table import difference_text
from verl_trgrpo.runs.report.runs import Arm
from verl_trgrpo.runs.report.samples import VERDICTS
from verl_trgrpo.runs.settings import BASE_MODEL, TRAINING_DATA, run_settings
from verl_trgrpo.runs.statistics import interval_text

_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def render(**content: Any) -> str:
    """Return the page, one file that needs nothing else, with `content` by the names that the template uses."""
    filters = {
        "data_uri": lambda png: f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}",
        "verdict": VERDICTS.__getitem__,
    }
    return render_page(_TEMPLATE, filters, **content, version=__version__)


def summary(comparison: Comparison, baseline: str, what: str) -> list[str]:
    """Return a sentence for each arm: the validation accuracy at the end, and whether it differs from the baseline's."""
    found = []
    one_run = len(comparison) == 1 and all(entry.runs == 1 for entry in comparison[baseline].values())
    for arm, row in comparison.items():
        if (entry := row.get(OUTCOME)) is None:
            continue
        if one_run:
            found.append(f"{arm}: {what} {entry.estimate.mean:.3f}")
            continue
        if arm == baseline:
            verdict = "the baseline"
        elif entry.difference is None:
            verdict = f"no seed in common with {baseline}"
        else:
            verdict = f"{difference_text(entry.difference)} against {baseline}: {_verdict(entry.difference)}"
        found.append(f"{arm}: {what} {interval_text(entry.estimate)}, {count_of(entry.runs, 'run')}; {verdict}")
    return found or [f"no {what} was logged; --metric NAME takes another metric"]


def _verdict(difference: Difference) -> str:
    if difference.test and difference.test.significant:
        return "they differ"
    if difference.equivalence and difference.equivalence.significant:
        return "they are equivalent"
    if difference.test and not difference.test.possible:
        low, high = difference.estimate.low, difference.estimate.high
        ends = (
            ""
            if low is None or high is None
            else "; the interval " + ("holds 0" if low <= 0 <= high else "does not hold 0")
        )
        return f"with so few runs no such test could tell them apart{ends}"
    return "these runs do not tell them apart"


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


def settings_table(arms: Sequence[Arm]) -> tuple[list[str], list[tuple[bool, list[str]]]]:
    """What was run: head, and rows of a setting with its value in each arm, those that differ first and marked.

    An arm's settings are those of its first run. Where there are some without model and data, as in the records of an
    archive, the table says so.
    """
    found = [run_settings(arm.runs[0].path) if arm.runs[0].path.is_dir() else {} for arm in arms]
    asked = dict.fromkeys((BASE_MODEL, TRAINING_DATA), "not recorded")
    found = [settings and asked | settings for settings in found]
    rows = []
    for name in dict.fromkeys(name for settings in found for name in settings):
        values = [str(settings.get(name, "-")) for settings in found]
        rows.append((len(set(values)) > 1, [name, *values]))
    return ["setting", *(arm.label for arm in arms)], sorted(rows, key=lambda row: not row[0])
