"""The tables of a study: means with intervals, and paired tests against the baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_trgrpo.runs.compare.differences import TESTED, Difference, RunFigures, differences
from verl_trgrpo.runs.compare.figures import FIGURES, run_figures
from verl_trgrpo.runs.compare.runner import run_directory
from verl_trgrpo.runs.compare.study import Study
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.statistics import Estimate, mean_interval


def finished_runs(study: Study, out: Path) -> dict[str, dict[int, dict[str, float]]]:
    """Return the figures of the study's finished runs, by arm and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {arm: {} for arm in study.arms}
    for arm in study.arms:
        for seed in study.seeds:
            run_dir = run_directory(out, arm, seed)
            if read_record(run_dir).get("finished"):
                found[arm][seed] = run_figures(MetricsLog(run_dir).read(), study.accuracy or None)
    return found


def means(figures: RunFigures) -> dict[str, dict[str, Estimate]]:
    """Return mean and interval of every figure, by arm and name."""
    result: dict[str, dict[str, Estimate]] = {}
    for arm, runs in figures.items():
        columns = {name: [run[name] for run in runs.values() if name in run] for name in FIGURES}
        result[arm] = {name: mean_interval(values) for name, values in columns.items() if values}
    return result


def write_tables(study: Study, out: Path) -> str:
    """Write ``table.md`` and ``table.json`` to `out`, and return the former.

    Raises:
        ValueError: when no run of the study is finished.
    """
    figures = finished_runs(study, out)
    if not any(figures.values()):
        raise ValueError(f"{out} has no finished run of this study; run it without --table, or check --out")
    averages, apart = means(figures), differences(figures, study.baseline, study.primary)
    text = "\n".join(_lines(study, figures, averages, apart)) + "\n"
    (out / "table.md").write_text(text, encoding="utf-8")
    content: dict[str, Any] = {
        "title": study.title,
        "hypotheses": list(study.hypotheses),
        "baseline": study.baseline,
        "primary": study.primary,
        "accuracy": study.accuracy or "mean over data sources",
        "runs": {arm: {str(seed): dict(run) for seed, run in runs.items()} for arm, runs in figures.items()},
        "means": {arm: {name: asdict(value) for name, value in row.items()} for arm, row in averages.items()},
        "differences": {
            arm: {
                name: {**asdict(value.interval), "p": value.p, "p_holm": value.p_holm, "pairs": value.pairs}
                for name, value in row.items()
            }
            for arm, row in apart.items()
        },
    }
    (out / "table.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return text


def _lines(
    study: Study,
    figures: RunFigures,
    averages: Mapping[str, Mapping[str, Estimate]],
    apart: Mapping[str, Mapping[str, Difference]],
) -> list[str]:
    names = [name for name in FIGURES if any(name in row for row in averages.values())]
    lines = [f"## {study.title}", ""]
    missing = sum(seed not in figures[arm] for arm in study.arms for seed in study.seeds)
    if missing:
        lines += [f"{missing} of {len(study.arms) * len(study.seeds)} runs are not finished.", ""]
    lines += ["Means over seeds, with 95 % bootstrap intervals.", ""]
    rows = [
        [arm, str(len(figures[arm])), *(_interval(row[name]) if name in row else "-" for name in names)]
        for arm, row in averages.items()
    ]
    lines += _table(["arm", "seeds", *(name.replace("_", " ") for name in names)], rows)
    lines += [
        "",
        f"Differences from {study.baseline}, paired by seed: mean, interval, p (sign-flip test), p corrected.",
        "",
    ]
    tested = [name for name in TESTED if any(name in row for row in apart.values())]
    rows = [
        [f"{arm} (primary)" if arm == study.primary else arm]
        + [_difference(row[name]) if name in row else "-" for name in tested]
        for arm, row in apart.items()
    ]
    lines += _table(["arm", *(name.replace("_", " ") for name in tested)], rows)
    lines += ["", *(f"- {name.replace('_', ' ')}: {FIGURES[name].about}" for name in names)]
    if study.hypotheses:
        lines += ["", "Stated before the runs:", "", *(f"- {text}" for text in study.hypotheses)]
    return lines


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Markdown that is readable as text, too: columns are padded."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return [f"| {line} |" for line in (padded[0], " | ".join("-" * width for width in widths), *padded[1:])]


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"{value.mean:.3g}"
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _difference(value: Difference) -> str:
    interval = value.interval
    text = f"{interval.mean:+.3f}"
    if interval.low is not None:
        text += f" [{interval.low:+.3f}, {interval.high:+.3f}]"
    if value.p is not None:
        text += f" p={value.p:.3f}"
    return text + (f" ({value.p_holm:.2f})" if value.p_holm is not None else "")
