"""Compare the finished runs of a study, and write its tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from verl_trgrpo.common.files import write_json, write_text
from verl_trgrpo.runs.arms import Run
from verl_trgrpo.runs.compare.comparison import OUTCOME, Comparison, compare_runs
from verl_trgrpo.runs.compare.study import Study, run_directory
from verl_trgrpo.runs.compare.table import as_markdown, comparison_tables, shown_figures, words
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.run_directory import read_record


def finished_runs(study: Study, out: Path) -> dict[str, list[Run]]:
    """Read the finished runs of a study in `out`, by arm."""
    found: dict[str, list[Run]] = {arm: [] for arm in study.arms}
    for arm in study.arms:
        for seed in study.seeds:
            path = run_directory(out, arm, seed)
            record = read_record(path)
            if record.get("finished"):
                found[arm].append(Run(arm, seed, path, tuple(MetricsLog(path).read()), record))
    return found


def study_comparison(study: Study, out: Path) -> tuple[dict[str, dict[int, dict[str, float]]], Comparison]:
    """Return the figures of a study's finished runs in `out`, by arm and seed, and their comparison.

    Raises:
        ValueError: no run of the study is finished, or none logged the study's accuracy.
    """
    arms = finished_runs(study, out)
    if not any(arms.values()):
        raise ValueError(f"{out} has no finished run of this study")
    figures, found = compare_runs(arms, study.baseline, study.accuracy or None, study.primary, study.margin)
    if study.accuracy and not any(OUTCOME in row for row in found.values()):
        logged = {
            name
            for runs in arms.values()
            for run in runs
            for step in run.steps
            for name in step.metrics
            if name.startswith("val-core/")
        }
        have = f"they have {', '.join(sorted(logged))}" if logged else "they have no validation"
        raise ValueError(f"accuracy={study.accuracy}: no finished run logged it; {have}")
    return figures, found


def write_tables(study: Study, out: Path) -> str:
    """Write ``table.md`` and ``table.json`` of a study's finished runs to `out`, and return the content of the former.

    Raises:
        ValueError: see `study_comparison`.
    """
    figures, found = study_comparison(study, out)
    total = len(study.arms) * len(study.seeds)
    missing = total - sum(map(len, figures.values()))
    parts = [
        f"## {study.title}",
        f"{missing} of {total} runs are not finished." if missing else "",
        as_markdown(comparison_tables(found, study.baseline, study.primary, study.margin)),
        "\n".join(f"- {words(name)}: {about}" for name, about in shown_figures(found).items()),
    ]
    if study.hypotheses:
        parts += ["Stated before the runs:", "\n".join(f"- {text}" for text in study.hypotheses)]
    text = "\n\n".join(filter(None, parts)) + "\n"
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
