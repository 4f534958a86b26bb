"""Write one HTML page about training runs: their comparison, curves, responses, and the settings that differ."""

from __future__ import annotations

import base64
import logging
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo import __version__
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.foreign import ForeignFileError, check_no_link
from verl_trgrpo.common.text import render_page
from verl_trgrpo.compare.arms import Run
from verl_trgrpo.compare.dumps import DumpedResponse, read_responses
from verl_trgrpo.compare.finished import CompareOptions, compare_finished
from verl_trgrpo.compare.plots import plot_arms
from verl_trgrpo.compare.tables import Table, shown_figures, words
from verl_trgrpo.compare.verdicts import NotableVerdict, worth_a_look
from verl_trgrpo.runs.run_directory import run_settings

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
# Subdirectory of a run directory into which the launcher and the single-file trainer dump responses of validations.
_RESPONSES = "validation"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CompareOptions):
    """Runs to report, and the page to write.

    Args:
        out: HTML file, replaced if it exists.
    """

    out: Path = Path("report.html")

    def problems(self) -> list[str]:
        """Return a message for each problem of runs and page."""
        messages = super().problems()
        if self.out.is_dir():
            messages.append(f"--out {self.out}: is a directory; name a file, such as {self.out / 'report.html'}")
        return messages


def write_report(options: ReportOptions) -> list[str]:
    """Read the runs, write the page, and return notes on what limits the comparison.

    Raises:
        ValueError: the input is wrong, with all messages; nothing is written.
    """
    found = compare_finished(options)
    plots = plot_arms(found.arms, options.metric, found.upto)
    page = render_page(
        _TEMPLATE,
        upto=found.upto,
        notes=found.notes,
        tables=found.tables,
        budget=found.budget,
        figures={words(name): meaning for name, meaning in shown_figures(found.comparison).items()},
        plots={name: base64.b64encode(png).decode() for name, png in plots.items()},
        samples=_samples(found.arms),
        run_tables=_run_tables(found.arms),
        version=__version__,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(options.out, page)
    return found.notes


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
        read = ((run.name, _samples_of(run)) for run in own)
        if first := next(((name, samples) for name, samples in read if samples), None):
            found.append(first)
    return found


def _samples_of(run: Run) -> Samples | None:
    """Return the samples of a run; None with a warning if their directory is a link, which may lead to another's responses."""
    directory = run.path / _RESPONSES
    try:
        check_no_link(directory)
    except ForeignFileError as error:
        logger.warning("%s; its responses are not shown", error)
        return None
    left = {step.number for branch in run.abandoned for step in branch.steps if step.accuracy is not None}
    validated = {step.number for step in run.steps if step.accuracy is not None}
    return read_samples(directory, without=left - validated)


class ResponsePair(NamedTuple):
    """Responses to one prompt at the first validation, None if there is only one validation, and at the last."""

    before: DumpedResponse | None
    after: DumpedResponse

    @property
    def kind(self) -> str:
        """Return both verdicts, such as "wrong to right"; "right" for a single validation."""
        return f"{self.before.verdict} to {self.after.verdict}" if self.before else self.after.verdict


class Samples(NamedTuple):
    """Responses of a run before and after training.

    Args:
        first, last: steps of both validations.
        counts: number of prompts by kind.
        pairs: drawn ones.
        verdicts: those of the last validation that are worth a look.
    """

    first: int
    last: int
    counts: dict[str, int]
    pairs: list[ResponsePair]
    verdicts: list[NotableVerdict]


def read_samples(directory: Path, most: int = 4, without: Collection[int] = ()) -> Samples | None:
    """Read the first and the last dump in a directory, and draw `most` prompts with a fixed seed.

    Dumps of the steps `without` are of abandoned attempts.

    Of several responses to one prompt, the first counts. None without a dump, or if two dumps have no prompt in common.
    """
    files = {int(path.stem): path for path in directory.glob("*.jsonl") if path.stem.isdecimal() and path.is_file()}
    files = {step: path for step, path in files.items() if step not in without}
    if not files:
        return None
    first, last = min(files), max(files)
    before, after = (read_responses(files[step]) for step in (first, last))
    pairs = [ResponsePair(before[key] if first < last else None, after[key]) for key in before if key in after]
    if not pairs:
        return None
    counts = dict(Counter(pair.kind for pair in pairs).most_common())
    drawn = random.Random(0).sample(pairs, min(most, len(pairs)))
    return Samples(first, last, counts, drawn, worth_a_look(files[last]))
