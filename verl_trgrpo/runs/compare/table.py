"""The tables of a study: means with intervals, and paired tests against the baseline."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.common.files import write_json, write_text
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.runs.compare.comparison import OUTCOME, TESTED, Comparison, Difference, PValue, compare
from verl_trgrpo.runs.compare.figures import FIGURES, prompt_outcomes, run_figures
from verl_trgrpo.runs.compare.runner import run_directory
from verl_trgrpo.runs.compare.study import Study
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.statistics import interval_text, p_text


def finished_runs(study: Study, out: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Return the figures of the study's finished runs, by arm and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {arm: {} for arm in study.arms}
    for arm in study.arms:
        for seed in study.seeds:
            run_dir = run_directory(out, arm, seed)
            if read_record(run_dir).get("finished"):
                figures = run_figures(MetricsLog(run_dir).read(), study.accuracy or None)
                # A gradient norm that was not finite once has no mean.
                found[arm][seed] = {name: value for name, value in figures.items() if math.isfinite(value)}
    return found


def write_tables(study: Study, out: Path) -> str:
    """Write ``table.md`` and ``table.json`` to `out`, and return the former.

    Raises:
        ValueError: when no run of the study is finished.
    """
    figures, found = study_comparison(study, out)
    missing = len(study.arms) * len(study.seeds) - sum(map(len, figures.values()))
    text = _text(study, found, missing)
    write_text(out / "table.md", text)
    content = {
        "title": study.title,
        "hypotheses": list(study.hypotheses),
        "baseline": study.baseline,
        "primary": study.primary,
        "margin": study.margin,
        "accuracy": study.accuracy or "mean over data sources",
        "runs": figures,
        "comparison": {arm: {name: asdict(entry) for name, entry in row.items()} for arm, row in found.items()},
    }
    write_json(out / "table.json", content)
    return text


def study_comparison(study: Study, out: Path) -> tuple[dict[str, dict[int, dict[str, float]]], Comparison]:
    """Return the figures of the study's finished runs in `out`, by arm and seed, and what they say.

    Raises:
        ValueError: when no run of the study is finished, or none has the study's accuracy.
    """
    figures = finished_runs(study, out)
    if not any(figures.values()):
        raise ValueError(f"{out} has no finished run of this study")
    if study.accuracy and not any(OUTCOME in run for runs in figures.values() for run in runs.values()):
        raise ValueError(f"no finished run logged accuracy={study.accuracy}; {_validations(study, out)}")
    outcomes = {
        arm: {
            seed: prompt_outcomes(run_directory(out, arm, seed), study.accuracy or None, run[OUTCOME])
            for seed, run in runs.items()
            if OUTCOME in run
        }
        for arm, runs in figures.items()
    }
    return figures, compare(figures, study.baseline, study.primary, study.margin, outcomes)


def _validations(study: Study, out: Path) -> str:
    """Return what a study's runs logged that would do as its accuracy."""
    runs = [run_directory(out, arm, seed) for arm in study.arms for seed in study.seeds]
    logged = {
        name for run in runs for step in MetricsLog(run).read() for name in step.metrics if name.startswith("val-core/")
    }
    return f"they have {', '.join(sorted(logged))}" if logged else "they have no validation"


class Table(NamedTuple):
    """A table of the comparison; the first cell of a row names it."""

    about: str
    head: list[str]
    rows: list[list[str]]


def comparison_tables(found: Comparison, baseline: str, primary: str = "", margin: float | None = None) -> list[Table]:
    """Return what `compare` found, for the terminal and for the page: means, differences, and more about the outcome."""
    names = list(shown_figures(found))
    tested = [name for name in TESTED if name in names]
    means, differences = [], []
    for arm, row in found.items():
        runs = max((entry.runs for entry in row.values()), default=0)
        means.append([arm, str(runs), *(interval_text(row[name].estimate) if name in row else "-" for name in names)])
        if arm == baseline:
            continue
        own = {name: row[name].difference for name in tested if name in row}
        differences.append(
            [_label(arm, primary), *(difference_text(one) if (one := own.get(name)) else "-" for name in tested)]
        )
    tables = [
        Table("Means over seeds, with 95 % intervals.", ["arm", "seeds", *(name.replace("_", " ") for name in names)], means),
        Table(
            f"Differences from {baseline}, paired by seed: mean, interval, p (sign-flip test), p corrected for all tests but "
            "the primary.",
            ["arm", *(name.replace("_", " ") for name in tested)],
            differences,
        ),
        _outcome_table(found, primary, margin),
    ]  # fmt: skip
    return [table for table in tables if table.rows]


def shown_figures(found: Comparison) -> dict[str, str]:
    """Return name and meaning of the figures that any arm has, which are those in the tables."""
    return {name: about for name, about in FIGURES.items() if any(name in row for row in found.values())}


def _outcome_table(found: Comparison, primary: str, margin: float | None) -> Table:
    """More about the differences in the outcome; a column in which no arm has a value is left out."""
    own = {arm: row[OUTCOME].difference for arm, row in found.items() if OUTCOME in row}
    known = {_label(arm, primary): one for arm, one in own.items() if one and (one.over_prompts or one.equivalence)}
    what: list[str] = []
    columns: dict[str, list[str]] = {}
    if any(one.over_prompts for one in known.values()):
        what.append("the same difference with an interval over other seeds and other prompts")
        columns["over seeds and prompts"] = [
            interval_text(one.over_prompts, "+") if one.over_prompts else "-" for one in known.values()
        ]
    if any(one.equivalence for one in known.values()):
        what.append(f"a test that {'it' if what else 'the difference'} is smaller than the margin (TOST)")
        columns[f"equivalence within {margin}"] = [_test(one.equivalence).strip() or "-" for one in known.values()]
    rows = [[label, *cells] for label, *cells in zip(known, *columns.values(), strict=True)]
    return Table(f"final accuracy: {', and '.join(what)}.", ["arm", *columns], rows)


def _label(arm: str, primary: str) -> str:
    return f"{arm} (primary)" if arm == primary else arm


def difference_text(difference: Difference) -> str:
    """Mean difference with its interval, and the p-values of its test, the corrected one in parentheses."""
    return f"{interval_text(difference.estimate, '+')}{_test(difference.test)}"


def _test(test: PValue | None) -> str:
    if test is None:
        return ""
    return f" p={p_text(test.p)}" + (f" ({p_text(test.corrected)})" if test.corrected is not None else "")


def _text(study: Study, found: Comparison, missing: int) -> str:
    parts = [f"## {study.title}"]
    if missing:
        parts.append(f"{missing} of {len(study.arms) * len(study.seeds)} runs are not finished.")
    for table in comparison_tables(found, study.baseline, study.primary, study.margin):
        parts += [table.about, markdown_table(table.rows, table.head)]
    parts.append("\n".join(f"- {name.replace('_', ' ')}: {about}" for name, about in shown_figures(found).items()))
    if study.hypotheses:
        parts += ["Stated before the runs:", "\n".join(f"- {text}" for text in study.hypotheses)]
    return "\n\n".join(parts) + "\n"
