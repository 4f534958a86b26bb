"""Write one HTML page about training runs: their comparison, curves, responses, and the settings that differ."""

from __future__ import annotations

import base64
import json
import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from verl_trgrpo import __version__
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.foreign import ForeignFileError, check_no_link
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.text import render_page
from verl_trgrpo.common.typed import Number, Schema, typed_lines
from verl_trgrpo.compare.arms import Run, group_arms, last_common_step, read_runs
from verl_trgrpo.compare.comparison import compare_runs
from verl_trgrpo.compare.plots import plot_arms
from verl_trgrpo.compare.tables import Table, comparison_tables, shown_figures, words
from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.records import StudyRecord
from verl_trgrpo.runs.run_directory import run_settings

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
# Subdirectory of a run directory into which the launcher and the single-file trainer dump responses of validations.
_RESPONSES = "validation"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """Runs to report, and the page to write.

    Args:
        runs: directories with veRL's logs, files of its file logger, or directories with such runs below.
        out: HTML file, replaced if it exists.
        baseline: arm to compare with; that of the study, or grpo if there, or the first if left out.
        metric: validation metric; mean accuracy over data sources if left out.
    """

    runs: tyro.conf.Positional[tuple[str, ...]]
    out: Path = Path("report.html")
    baseline: str | None = None
    metric: str | None = None

    def problems(self) -> list[str]:
        """Return a message for each problem of runs and page."""
        messages = [] if self.runs else ["no runs were given; name at least one directory"]
        if self.out.is_dir():
            messages.append(f"--out {self.out}: is a directory; name a file, such as {self.out / 'report.html'}")
        return messages


def build_report(options: ReportOptions) -> list[str]:
    """Read the runs, write the page, and return notes on what limits the comparison.

    Raises:
        ValueError: the input is wrong, with all messages; nothing is written.
    """
    runs = read_runs(options.runs)
    labels = list(dict.fromkeys(run.label for run in runs))
    # Of a study, the tests that were chosen beforehand, so that the page has the p-values of its table.
    studies = [run.record.study for run in runs]
    study = studies[0] if all(one == studies[0] for one in studies) else StudyRecord()
    choices = (options.baseline, study.baseline, "grpo")
    baseline = next((label for label in choices if label in labels), labels[0])
    if baseline != study.baseline:
        study = StudyRecord()
    _check(options, runs, labels, baseline)
    primary, margin = study.primary or "", study.margin

    arms, upto = group_arms(runs, baseline), last_common_step(runs)
    _, comparison = compare_runs(arms, baseline, options.metric, primary, margin, upto)
    remarks = notes(arms, baseline, upto)
    page = render_page(
        _TEMPLATE,
        upto=upto,
        notes=remarks,
        tables=comparison_tables(comparison, baseline, primary, margin),
        figures={words(name): meaning for name, meaning in shown_figures(comparison).items()},
        plots={name: base64.b64encode(png).decode() for name, png in plot_arms(arms, options.metric, upto).items()},
        samples=_samples(arms),
        run_tables=_run_tables(arms),
        version=__version__,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(options.out, page)
    return remarks


def _check(options: ReportOptions, runs: Sequence[Run], labels: Sequence[str], baseline: str) -> None:
    names = {name for run in runs for step in run.steps for name in step.metrics}
    messages = []
    if options.baseline not in (None, baseline):
        messages.append(f"--baseline {options.baseline}: not an arm; they are {', '.join(labels)}")
    if options.metric is not None and options.metric not in names:
        known = sorted(name for name in names if name.startswith("val-"))
        messages.append(f"--metric {options.metric}: no run logged it; they have {', '.join(known) or 'no validation'}")
    raise_invalid(messages)


def notes(arms: Mapping[str, Sequence[Run]], baseline: str, upto: int) -> list[str]:
    """Return a sentence for each limitation of the comparison."""
    runs = [run for own in arms.values() for run in own]
    seeds = {run.seed for run in runs if run.label == baseline} - {None}
    facts = {
        f"The comparison uses steps up to {upto}, the curves all. Longer runs": [
            f"{run.name} to {run.last_step}" for run in runs if run.last_step > upto
        ],
        f"Not in the comparison, because they end before step {upto}": [
            f"{run.name} at {run.last_step}" for run in runs if run.last_step < upto
        ],
        "Not finished": [run.name for run in runs if run.record.finished is False],
        f"Not paired, because {baseline} has no run with that seed": [
            run.name for run in runs if run.label != baseline and run.seed not in seeds
        ],
        "Sick (verl-trgrpo health)": [
            f"{run.name}, {found.signal.name} from step {found.first}"
            for run in runs
            for found in judge(run.steps)
            if found.sick
        ],
        "Not a number, and left out": [text for run in runs for text in _not_finite(run)],
    }
    return [f"{what}: {', '.join(names)}." for what, names in facts.items() if names]


def _not_finite(run: Run) -> list[str]:
    first: dict[str, int] = {}
    for step in run.steps:
        for metric, value in step.metrics.items():
            if not math.isfinite(value):
                first.setdefault(metric, step.number)
    return [f"{metric} of {run.name} from step {number}" for metric, number in sorted(first.items())]


def _run_tables(arms: Mapping[str, Sequence[Run]]) -> list[Table]:
    """Return a table of all runs, after one of the settings in which the first runs of the arms differ."""
    runs = [
        [
            run.label,
            "unknown" if run.seed is None else str(run.seed),
            f"{run.steps[0].number} to {run.last_step}",
            (run.record.commit or "unknown")[:12],
            str(run.path),
        ]
        for own in arms.values()
        for run in own
    ]
    places = [own[0].path for own in arms.values()]
    settings = [_settings(path) for path in places]
    rows = []
    for name in dict.fromkeys(name for own in settings for name in own):
        values = [str(own.get(name, "-" if own else "not recorded")) for own in settings]
        if len({*values}) > 1:
            rows.append([name, *values])
    tables = [Table("Settings that differ between the arms.", ["setting", *arms], rows)]
    return [*(tables if rows else []), Table("All runs.", ["arm", "seed", "steps", "commit", "path"], runs)]


def _settings(path: Path) -> dict[str, Any]:
    """Return the settings of a run, {} with a warning if they cannot be read."""
    try:
        return run_settings(path) if path.is_dir() else {}
    except ValueError as error:
        logger.warning("%s; its settings are not shown", error)
        return {}


def _samples(arms: Mapping[str, Sequence[Run]]) -> list[tuple[str, Samples]]:
    """Return the name and the samples of the first run with dumped responses of each arm."""
    found = []
    for own in arms.values():
        read = ((run.name, _samples_of(run.path / _RESPONSES)) for run in own)
        if first := next(((name, samples) for name, samples in read if samples), None):
            found.append(first)
    return found


def _samples_of(directory: Path) -> Samples | None:
    """Return the samples of a run; None with a warning if their directory is a link, which may lead to another's responses."""
    try:
        check_no_link(directory)
    except ForeignFileError as error:
        logger.warning("%s; its responses are not shown", error)
        return None
    return read_samples(directory)


class DumpedResponse(NamedTuple):
    """One line of a dump; `score` is the reward, None if it is not a finite number.

    The verdict is ``right`` or ``wrong``, by whether ``acc`` or, for rewards without it, ``score`` is above 0.5; ``not scored``
    without either.
    """

    prompt: str
    truth: str
    text: str
    verdict: str
    score: float | None


class DumpedLine(Schema):
    """One line of veRL's dump of a validation; a model may have written lone surrogates."""

    input: str
    output: str
    gts: Any = None
    score: Number = None
    acc: Number = None


class ResponsePair(NamedTuple):
    """Responses to one prompt at the first validation, None if there is only one validation, and at the last."""

    before: DumpedResponse | None
    after: DumpedResponse

    @property
    def kind(self) -> str:
        """Return both verdicts, such as "wrong to right"; "right" for a single validation."""
        return f"{self.before.verdict} to {self.after.verdict}" if self.before else self.after.verdict


class Samples(NamedTuple):
    """Responses of a run before and after training: steps of both validations, number of prompts by kind, and drawn ones."""

    first: int
    last: int
    counts: dict[str, int]
    pairs: list[ResponsePair]


def read_samples(directory: Path, most: int = 4) -> Samples | None:
    """Read the first and the last dump in a directory, and draw `most` prompts with a fixed seed.

    Of several responses to one prompt, the first counts. None without a dump, or if two dumps have no prompt in common.
    """
    files = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal() and path.is_file()}
    if not files:
        return None
    first, last = min(files), max(files)
    before, after = (read_responses(files[step]) for step in (first, last))
    pairs = [ResponsePair(before[key] if first < last else None, after[key]) for key in before if key in after]
    if not pairs:
        return None
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    return Samples(first, last, counts, random.Random(0).sample(pairs, min(most, len(pairs))))


def read_responses(path: Path) -> dict[tuple[str, str], DumpedResponse]:
    """Return the first response of a dump by prompt and ground truth, which several questions with one prompt tell apart.

    A line has ``input``, ``output``, ``gts``, ``score`` and, if the reward reports it, ``acc``. One that has not is left out,
    with a warning; a last line that is still being written is skipped.
    """
    found: dict[tuple[str, str], DumpedResponse] = {}
    for _, row in typed_lines(DumpedLine, path):
        if row is None:
            continue
        score, accuracy = _finite(row.score), _finite(row.acc)
        known = score if accuracy is None else accuracy
        verdict = "not scored" if known is None else "right" if known > 0.5 else "wrong"
        truth = row.gts if isinstance(row.gts, str) else json.dumps(row.gts, ensure_ascii=False)
        found.setdefault((row.input, truth), DumpedResponse(row.input, truth, row.output, verdict, score))
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
