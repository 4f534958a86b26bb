"""A report from runs: reading, drawing, comparing, and writing the page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.pages import write_page
from verl_trgrpo.runs.compare.comparison import OUTCOME, Comparison, compare
from verl_trgrpo.runs.compare.figures import prompt_outcomes, run_figures
from verl_trgrpo.runs.compare.table import comparison_tables, shown_figures
from verl_trgrpo.runs.metrics import Step
from verl_trgrpo.runs.report.charts import curve_charts
from verl_trgrpo.runs.report.page import notes, render, settings_table, summary
from verl_trgrpo.runs.report.runs import Arm, group_arms, last_common_step, read_runs
from verl_trgrpo.runs.report.samples import Samples, read_samples
from verl_trgrpo.runs.responses import DIRECTORY
from verl_trgrpo.runs.statistics import interval_text


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What to report, and where to.

    Args:
        runs: [LABEL=]PATH: directories with veRL's logs, files of its file logger, or directories with such runs below.
        out: HTML file, replaced if there.
        baseline: arm to compare with; that of the study, or grpo if there, or the first if left out.
        metric: validation metric; mean accuracy over data sources if left out.
    """

    runs: tuple[str, ...]
    out: Path = Path("report.html")
    baseline: str | None = None
    metric: str | None = None

    def __post_init__(self) -> None:
        problems = [] if self.runs else ["no runs were given; name at least one directory"]
        if self.out.is_dir():
            problems.append(f"--out {self.out} is a directory; name a file, such as {self.out / 'report.html'}")
        raise_invalid(problems)


class Report(NamedTuple):
    """What was written: the page, the comparison in a few lines, and the notes."""

    page: Path
    summary: list[str]
    notes: list[str]


def build_report(options: ReportOptions) -> Report:
    """Read the runs and write the page.

    Raises:
        ValueError: with all problems of the input; nothing is written then.
    """
    runs = read_runs(options.runs)
    # What `verl-trgrpo compare` was told beforehand, so that the page has the p-values of its table.
    studies = [run.record.get("study", {}) for run in runs]
    study = studies[0] if all(one == studies[0] for one in studies) else {}
    labels = list(dict.fromkeys(run.label for run in runs))
    choices = (options.baseline, study.get("baseline"), "grpo")
    baseline = next((label for label in choices if label in labels), labels[0])
    if baseline != study.get("baseline"):
        study = {}
    upto = last_common_step(runs)

    names = {name for run in runs for step in run.steps for name in step.metrics}
    problems = []
    if options.baseline not in (None, baseline):
        problems.append(f"--baseline {options.baseline} is none of the arms; they are {', '.join(labels)}")
    if options.metric is not None and options.metric not in names:
        known = sorted(name for name in names if name.startswith("val-"))
        problems.append(f"--metric {options.metric} is in no run; they have {', '.join(known) or 'no validation'}")
    raise_invalid(problems)

    arms = group_arms(runs, baseline)
    primary, margin = study.get("primary", ""), study.get("margin")
    comparison = compare_arms(arms, baseline, options.metric, upto, primary, margin)
    charts = curve_charts(arms, options.metric, upto)
    glance = summary(comparison, baseline, options.metric or "validation accuracy")
    remarks = notes(arms, baseline, upto)
    one_run = len(runs) == 1
    tables = [] if one_run else comparison_tables(comparison, baseline, primary, margin)
    settings_head, settings = settings_table(arms)
    page = render(
        upto=upto,
        one_run=one_run,
        figures_of_one={name: interval_text(entry.estimate) for name, entry in comparison[baseline].items()}
        if one_run
        else {},
        settings_head=settings_head,
        settings=settings,
        tables=tables,
        figures=shown_figures(comparison),
        glance=glance,
        notes=remarks,
        charts=charts,
        samples=list(_samples(arms)),
        arms=arms,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_page(options.out, page)
    return Report(options.out, glance, remarks)


def compare_arms(
    arms: Sequence[Arm],
    baseline: str,
    metric: str | None = None,
    upto: int = 0,
    primary: str = "",
    margin: float | None = None,
) -> Comparison:
    """Compare arms over the steps up to `upto`, so that all had the same training; runs that ended before are left out.

    Values that are not finite are left out, too; the report's notes name them.
    """
    figures: dict[str, dict[int, dict[str, float]]] = {}
    outcomes: dict[str, dict[int, dict[tuple[str, str], float]]] = {}
    unknown = itertools.count(-1, -1)  # seeds that nothing says have a number of their own, and no pair
    for arm in arms:
        for run in arm.runs:
            steps = [
                Step(step.number, {name: value for name, value in step.metrics.items() if math.isfinite(value)})
                for step in run.steps
                if step.number <= upto <= run.last_step
            ]
            seed = next(unknown) if run.seed is None else run.seed
            own = run_figures(steps, metric)
            figures.setdefault(arm.label, {})[seed] = own
            if OUTCOME in own:
                found = prompt_outcomes(run.path, metric, own[OUTCOME], upto)
                outcomes.setdefault(arm.label, {})[seed] = found
    return compare(figures, baseline, primary, margin, outcomes)


def _samples(arms: Sequence[Arm]) -> Iterator[Samples]:
    """Samples of the first run of each arm that has some."""
    for arm in arms:
        found = (read_samples(run.path / DIRECTORY, run.name) for run in arm.runs)
        yield from itertools.islice(filter(None, found), 1)
