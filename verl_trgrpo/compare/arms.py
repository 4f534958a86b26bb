"""Find and read finished or running trainings, and group them by arm: runs of one setting with different seeds."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.runs.metrics import Branch, Step, read_run
from verl_trgrpo.runs.records import RunRecord, read_record, read_trainer_options

_SEED = re.compile(r"(?P<label>.*?)[-_]?seed[-_]?(?P<seed>\d+)")
logger = logging.getLogger(__name__)

# A study has runs/ARM/SEED.
_DEPTH = 3


@dataclass(frozen=True, eq=False)
class Run:
    """One training run: name of its arm, seed (None if unknown), where it was read from, steps in order, and ``run.json``.

    `abandoned` are the branches that it went back before, which no figure counts.
    """

    label: str
    seed: int | None
    path: Path
    steps: tuple[Step, ...]
    record: RunRecord = field(default_factory=RunRecord)
    abandoned: tuple[Branch, ...] = ()

    @property
    def name(self) -> str:
        return self.label if self.seed is None else f"{self.label} seed {self.seed}"

    @property
    def last_step(self) -> int:
        return self.steps[-1].number if self.steps else -1

    def until(self, step: float) -> Run:
        """Return the run with its steps up to `step`, values that are not finite left out; without steps if it ended before."""
        steps = (
            Step(each.number, {name: value for name, value in each.metrics.items() if math.isfinite(value)})
            for each in self.steps
            if each.number <= step <= self.last_step
        )
        return replace(self, steps=tuple(steps))


def group_arms(runs: Sequence[Run], baseline: str) -> dict[str, list[Run]]:
    """Return the runs by arm, in the order of the arms' first runs, the baseline first."""
    arms: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.label != baseline):
        arms.setdefault(run.label, []).append(run)
    return arms


def last_common_step(runs: Sequence[Run]) -> int:
    """Return the last step that all runs reached; unfinished runs do not count unless all are unfinished."""
    counted = [run for run in runs if run.record.finished is not False] or runs
    return min(run.last_step for run in counted)


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """Read all runs at or below paths, in the given order, below a directory sorted by label and seed.

    A path is a run directory, a file of veRL's ``file`` logger, or a directory with such runs below.

    Raises:
        InvalidInputError: a path has no runs, files are damaged, or two runs have the same label and seed.
    """
    runs: list[Run] = []
    messages: list[str] = []
    for argument in arguments:
        path = Path(argument)
        if not path.exists():
            messages.append(f"{path} does not exist; give a run directory or a file of veRL's file logger")
            continue
        try:
            found = sorted(_search(path, _DEPTH), key=lambda run: (run.label, -1 if run.seed is None else run.seed))
        except (ValueError, OSError) as error:
            messages.append(str(error))
            continue
        runs += found
        if not found:
            messages.append(
                f"{path} has no metrics (metrics-N.jsonl or another file of veRL's file logger); train with "
                'trainer.logger=["console","file"]'
            )
    names: dict[str, Path] = {}
    for run in runs:
        other = names.setdefault(run.name if run.seed is not None else str(run.path), run.path)
        if other is not run.path:
            messages.append(f"{other} and {run.path} are both {run.name}; rename one of the two, as ARM-seedN")
    raise_invalid(messages)
    return runs


def _search(path: Path, depth: int) -> Iterator[Run]:
    """Yield every run at or below a path; directories inside a run are not searched."""
    if run := find_run(path):
        yield run
    elif depth and path.is_dir():
        if read_record(path, needed=False).content():  # a training that ended before its first step
            logger.warning("%s has no metrics and is left out; continue or remove the run", path)
        for child in sorted(path.iterdir()):
            if child.is_symlink() and child.is_dir():
                logger.warning("%s is a link and not searched; name what it leads to", child)
            elif not child.name.startswith("."):
                yield from _search(child, depth - 1)


def find_run(path: Path) -> Run | None:
    """Read the metrics and the record of one run; None where there are no metrics.

    Arm and seed come from ``run.json``, else from ``ARM-seedN`` or ``ARM/seed-N``, else from the options.

    Raises:
        ValueError: a file is damaged.
    """
    steps, abandoned = read_run(path)
    if not steps:
        return None
    full = path.resolve()
    label, seed = full.stem if full.is_file() else full.name, None
    if match := _SEED.fullmatch(label):
        label, seed = match["label"] or full.parent.name, int(match["seed"])
    record = read_record(path, needed=False) if path.is_dir() else RunRecord()
    if seed is None and path.is_dir():
        seed = read_trainer_options(path, needed=False).seed
    seed = seed if record.seed is None else record.seed
    return Run(record.arm or label, seed, path, tuple(steps), record, tuple(abandoned))
