"""The tables of a study: means with intervals, and paired tests against the baseline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.tables import markdown_table
from verl_trgrpo.runs.compare.comparison import OUTCOME, TESTED, Comparison, Difference, Entry, Test, compare
from verl_trgrpo.runs.compare.figures import FIGURES, prompt_outcomes, run_figures
from verl_trgrpo.runs.compare.runner import run_directory
from verl_trgrpo.runs.compare.study import Study
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.statistics import Estimate


def finished_runs(study: Study, out: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Return the figures of the study's finished runs, by arm and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {arm: {} for arm in study.arms}
    for arm in study.arms:
        for seed in study.seeds:
            run_dir = run_directory(out, arm, seed)
            if read_record(run_dir).get("finished"):
                found[arm][seed] = run_figures(MetricsLog(run_dir).read(), study.accuracy or None)
    return found


def write_tables(study: Study, out: Path) -> str:
    """Write ``table.md`` and ``table.json`` to `out`, and return the former.

    Raises:
        ValueError: when no run of the study is finished.
    """
    figures = finished_runs(study, out)
    if not any(figures.values()):
        raise ValueError(f"{out} has no finished run of this study; run it without --table, or check --out")
    outcomes = {
        arm: {
            seed: prompt_outcomes(run_directory(out, arm, seed), study.accuracy or None, run[OUTCOME])
            for seed, run in runs.items()
            if OUTCOME in run
        }
        for arm, runs in figures.items()
    }
    found = compare(figures, study.baseline, study.primary, study.margin, outcomes)
    missing = sum(seed not in figures[arm] for arm in study.arms for seed in study.seeds)
    text = "\n".join(_lines(study, found, {arm: len(runs) for arm, runs in figures.items()}, missing)) + "\n"
    write_text(out / "table.md", text)
    content = {
        "title": study.title,
        "hypotheses": list(study.hypotheses),
        "baseline": study.baseline,
        "primary": study.primary,
        "margin": study.margin,
        "accuracy": study.accuracy or "mean over data sources",
        "runs": {arm: {str(seed): run for seed, run in runs.items()} for arm, runs in figures.items()},
        "means": {arm: {name: asdict(entry.estimate) for name, entry in row.items()} for arm, row in found.items()},
        "differences": {
            arm: {name: _as_dict(entry.difference) for name, entry in row.items() if entry.difference}
            for arm, row in found.items()
            if arm != study.baseline
        },
    }
    write_text(out / "table.json", json.dumps(content, indent=2) + "\n")
    return text


def _as_dict(difference: Difference) -> dict[str, Any]:
    """As JSON types; ``p_holm`` is null for the primary outcome."""
    found: dict[str, Any] = {**asdict(difference.estimate), "pairs": difference.pairs}
    for name, test in (("p", difference.test), ("p_equivalent", difference.equivalence)):
        if test:
            found |= {name: test.p, f"{name}_holm": test.corrected}
    if difference.over_prompts:
        found["over_prompts"] = asdict(difference.over_prompts)
    return found


def _lines(study: Study, found: Comparison, runs: dict[str, int], missing: int) -> list[str]:
    names = [name for name in FIGURES if any(name in row for row in found.values())]
    others = {
        f"{arm} (primary)" if arm == study.primary else arm: row for arm, row in found.items() if arm != study.baseline
    }
    lines = [f"## {study.title}", ""]
    if missing:
        lines += [f"{missing} of {len(study.arms) * len(study.seeds)} runs are not finished.", ""]
    lines += ["Means over seeds, with 95 % intervals.", ""]
    lines += [_table(found, names, lambda entry: _estimate(entry.estimate), [str(count) for count in runs.values()])]
    about = "mean, interval, p (sign-flip test), p corrected for all tests but the primary"
    lines += ["", f"Differences from {study.baseline}, paired by seed: {about}.", ""]
    lines += [_table(others, [name for name in TESTED if name in names], lambda entry: _difference(entry.difference))]
    equivalence = {arm: row[OUTCOME].difference for arm, row in others.items() if OUTCOME in row}
    if any(one and (one.equivalence or one.over_prompts) for one in equivalence.values()):
        head = ["arm", "over seeds and prompts", f"p of equivalence within {study.margin}"][: 3 if study.margin else 2]
        rows = [
            [arm, _estimate(one.over_prompts, "+") if one.over_prompts else "-", _test(one.equivalence) or "-"]
            for arm, one in equivalence.items()
            if one
        ]
        lines += [
            "",
            f"{OUTCOME.replace('_', ' ')}: the same difference with an interval over other seeds and other prompts",
        ]
        lines[-1] += ", and a test that it is small (TOST)." if study.margin else "."
        lines += ["", markdown_table([row[: len(head)] for row in rows], head)]
    lines += ["", *(f"- {name.replace('_', ' ')}: {FIGURES[name]}" for name in names)]
    if study.hypotheses:
        lines += ["", "Stated before the runs:", "", *(f"- {text}" for text in study.hypotheses)]
    return lines


def _table(
    found: Comparison, names: Sequence[str], cell: Callable[[Entry], str], counts: Sequence[str] | None = None
) -> str:
    """A line for each arm, a column for each figure; with `counts` a column of seeds."""
    header = ["arm", *(["seeds"] if counts else []), *(name.replace("_", " ") for name in names)]
    rows = [[arm, *(cell(row[name]) if name in row else "-" for name in names)] for arm, row in found.items()]
    if counts:
        rows = [[row[0], count, *row[1:]] for row, count in zip(rows, counts, strict=True)]
    return markdown_table(rows, header)


def _estimate(value: Estimate, sign: str = "") -> str:
    if value.low is None or value.high is None:
        return f"{value.mean:{sign}.3f}"
    return f"{value.mean:{sign}.3f} [{value.low:{sign}.3f}, {value.high:{sign}.3f}]"


def _difference(value: Difference | None) -> str:
    return " ".join(filter(None, [_estimate(value.estimate, "+"), _test(value.test)])) if value else "-"


def _test(value: Test | None) -> str:
    if value is None:
        return ""
    return f"p={value.p:.3f}" + (f" ({value.corrected:.2f})" if value.corrected is not None else "")
