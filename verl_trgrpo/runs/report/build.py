"""A report from runs: reading, drawing, comparing, and writing the page with its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.runs.report.arms import Arm, group_arms
from verl_trgrpo.runs.report.charts import Chart
from verl_trgrpo.runs.report.comparison import compare, last_common_step
from verl_trgrpo.runs.report.gradient_charts import gradient_charts
from verl_trgrpo.runs.report.origin import notes, origin, validation_metrics
from verl_trgrpo.runs.report.page import Content, RunSamples, render, summary
from verl_trgrpo.runs.report.runs import Run, read_runs, split_label
from verl_trgrpo.runs.report.samples import VALIDATION, read_samples
from verl_trgrpo.runs.report.training_charts import curve_charts, gradient_share_chart, weight_charts

DEFAULT_BASELINE = "grpo"


@dataclass(frozen=True)
class ReportOptions:
    """What to report, and where to.

    Args:
        runs: places of the runs, as :func:`~verl_trgrpo.runs.report.runs.read_runs` takes them.
        out: HTML file; its pictures go to ``<stem>_figures`` beside it.
        title: of the page.
        baseline: label of the arm to compare with; None for ``grpo`` or, without it, the first.
        metric: validation metric; None for the mean accuracy over data sources.
        gradients: files that ``verl-trgrpo analyze`` wrote.
        generations: directories of veRL's validation dumps, ``[LABEL=]DIR``, beside those in the runs' directories.
        samples: prompts shown of each arm; 0 for none.
        upto: step to compare at; runs that end before are left out of the comparison. None for the last step that all
            reached, unfinished ones apart.

    Raises:
        ValueError: with all problems.
    """

    runs: tuple[str, ...]
    out: Path
    title: str = "Training runs compared"
    baseline: str | None = None
    metric: str | None = None
    gradients: tuple[Path, ...] = ()
    generations: tuple[str, ...] = ()
    samples: int = 4
    upto: int | None = None

    def __post_init__(self) -> None:
        problems = [] if self.runs else ["no runs were given; name at least one directory"]
        if self.out.is_dir():
            problems.append(f"--out {self.out} is a directory; name a file, such as {self.out / 'report.html'}")
        if self.samples < 0:
            problems.append(f"--samples is {self.samples}; use 0 or more")
        problems += [
            f"--gradients {path} is not a file; check the path" for path in self.gradients if not path.is_file()
        ]
        places = [split_label(text)[1] for text in self.generations]
        problems += [f"--generations {path} is not a directory; check the path" for path in places if not path.is_dir()]
        raise_problems(problems)

    @property
    def figures(self) -> Path:
        """Directory of the pictures."""
        return self.out.with_name(f"{self.out.stem}_figures")


@dataclass(frozen=True)
class Report:
    """What was written: the page, its pictures, the comparison in a few lines, and the notes."""

    page: Path
    pictures: list[Path]
    summary: list[str]
    notes: list[str]


def build_report(options: ReportOptions) -> Report:
    """Read the runs and write the page and its pictures; files that were there before are replaced, each as a whole.

    Raises:
        ValueError: with all problems of the input; nothing is written then.
    """
    runs = read_runs(options.runs)
    baseline = _baseline(options, runs)
    arms = group_arms(runs, baseline)
    upto = last_common_step(runs) if options.upto is None else options.upto
    sections = compare(arms, baseline, options.metric, upto)
    weights, weight_notes = weight_charts(arms, upto)
    share = gradient_share_chart(arms, upto)
    gradients = [(path, gradient_charts(path, place)) for place, path in enumerate(options.gradients, start=1)]
    content = Content(
        title=options.title,
        baseline=baseline,
        metric=options.metric,
        upto=upto,
        sections=sections,
        notes=notes(arms, baseline, options.metric, upto),
        curves=curve_charts(arms, options.metric, upto),
        weights=weights,
        weight_notes=weight_notes,
        shares=[share] if share else [],
        gradients=[(str(path), charts) for path, charts in gradients],
        samples=list(_samples(arms, options)),
        origin=origin(arms, options.metric),
    )
    page = render(content)
    pictures = _write_pictures(options.figures, content.charts())
    _write(options.out, page.encode("utf-8", errors="replace"))
    return Report(options.out, pictures, summary(content), content.notes)


def _baseline(options: ReportOptions, runs: Sequence[Run]) -> str:
    labels = list(dict.fromkeys(run.label for run in runs))
    problems = []
    if options.baseline is not None and options.baseline not in labels:
        problems.append(f"--baseline {options.baseline} is none of the arms; they are {', '.join(labels)}")
    if options.metric is not None and not any(options.metric in step.metrics for run in runs for step in run.steps):
        known = ", ".join(validation_metrics(runs)) or "no validation metrics at all"
        problems.append(f"--metric {options.metric} is in no run; they have {known}")
    last = max(run.last_step for run in runs)
    if options.upto is not None and not 0 <= options.upto <= last:
        problems.append(f"--upto {options.upto} is no step of any run; the longest ends at {last}")
    raise_problems(problems)
    return options.baseline or (DEFAULT_BASELINE if DEFAULT_BASELINE in labels else labels[0])


def _samples(arms: Sequence[Arm], options: ReportOptions) -> Iterator[RunSamples]:
    """Samples of the first run of each arm that has some, then of the directories the user named."""
    places = [next(_dumps(arm, options.samples), None) for arm in arms]
    for found in places:
        if found:
            yield found
    for text in options.generations:
        label, path = split_label(text)
        if samples := read_samples(path, options.samples):
            yield RunSamples(label or str(path), samples)


def _dumps(arm: Arm, most: int) -> Iterator[RunSamples]:
    for run in arm.runs:
        if (run.path / VALIDATION).is_dir() and (samples := read_samples(run.path / VALIDATION, most)):
            yield RunSamples(run.name, samples)


def _write_pictures(directory: Path, charts: Sequence[Chart]) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{chart.name}.png" for chart in charts]
    for path, chart in zip(paths, charts, strict=True):
        _write(path, chart.png)
    return paths


def _write(path: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
