"""The tables of a study: means with intervals, and paired tests against the baseline."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.tables import markdown_table
from verl_trgrpo.runs.compare.comparison import OUTCOME, TESTED, Comparison, PValue, compare
from verl_trgrpo.runs.compare.figures import FIGURES, prompt_outcomes, run_figures
from verl_trgrpo.runs.compare.runner import run_directory
from verl_trgrpo.runs.compare.study import Study
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.numbers import interval_text, p_text
from verl_trgrpo.runs.record import read_record


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
    write_text(out / "table.json", json.dumps(content, indent=2) + "\n")
    return text


def _text(study: Study, found: Comparison, missing: int) -> str:
    names = [name for name in FIGURES if any(name in row for row in found.values())]
    tested = [name for name in TESTED if name in names]
    means, differences, outcomes = [], [], []
    for arm, row in found.items():
        runs = max((entry.runs for entry in row.values()), default=0)
        means.append([arm, str(runs), *(interval_text(row[name].estimate) if name in row else "-" for name in names)])
        if arm == study.baseline:
            continue
        label = f"{arm} (primary)" if arm == study.primary else arm
        own = {name: row[name].difference for name in tested if name in row}
        cells = [
            f"{interval_text(one.estimate, '+')}{_test(one.test)}" if (one := own.get(name)) else "-" for name in tested
        ]
        differences.append([label, *cells])
        if (one := own.get(OUTCOME)) and (one.over_prompts or one.equivalence):
            over_prompts = interval_text(one.over_prompts, "+") if one.over_prompts else "-"
            outcomes.append([label, over_prompts, _test(one.equivalence).strip() or "-"])
    parts = [f"## {study.title}"]
    if missing:
        parts.append(f"{missing} of {len(study.arms) * len(study.seeds)} runs are not finished.")
    head = [name.replace("_", " ") for name in names]
    parts += ["Means over seeds, with 95 % intervals.", markdown_table(means, ["arm", "seeds", *head])]
    about = "mean, interval, p (sign-flip test), p corrected for all tests but the primary"
    parts.append(f"Differences from {study.baseline}, paired by seed: {about}.")
    parts.append(markdown_table(differences, ["arm", *(name.replace("_", " ") for name in tested)]))
    if outcomes:
        parts.append("final accuracy: the same difference with an interval over other seeds and other prompts, and, with a "
                     "margin, a test that it is smaller (TOST).")  # fmt: skip
        head = ["arm", "over seeds and prompts", f"equivalence within {study.margin}"]
        parts.append(markdown_table(outcomes, head))
    parts.append("\n".join(f"- {name.replace('_', ' ')}: {FIGURES[name]}" for name in names))
    if study.hypotheses:
        parts += ["Stated before the runs:", "\n".join(f"- {text}" for text in study.hypotheses)]
    return "\n\n".join(parts) + "\n"


def _test(test: PValue | None) -> str:
    if test is None:
        return ""
    return f" p={p_text(test.p)}" + (f" ({p_text(test.corrected)})" if test.corrected is not None else "")
