"""The runs to report: found below what the user named, with label, seed, steps and what is known of their origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.runs.metrics import MetricsLog, Step, event_files, read_events
from verl_trgrpo.runs.record import FILE, read_record

_SEED = re.compile(r"(?P<label>.*?)[-_]?seed[-_]?(?P<seed>\d+)")
# runs/ARM/SEED of a comparison, tensorboard_log/PROJECT/EXPERIMENT of veRL.
_DEPTH = 3


@dataclass(frozen=True)
class Run:
    """One training run.

    Args:
        label: its arm.
        seed: of sampling and data order; None where nothing says it.
        path: directory or file it was read from.
        steps: in order; not empty.
        logger: veRL's logger that wrote them: ``file`` or ``tensorboard``.
        record: content of ``run.json``, or nothing.
    """

    label: str
    seed: int | None
    path: Path
    steps: tuple[Step, ...]
    logger: str
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.label if self.seed is None else f"{self.label} seed {self.seed}"

    @property
    def last_step(self) -> int:
        return self.steps[-1].number


def read_runs(arguments: Sequence[str]) -> list[Run]:
    """Read all runs below the given places.

    Args:
        arguments: each a directory with veRL's logs, a directory that has such directories below, or a file of veRL's
            ``file`` logger; with ``LABEL=`` in front to say which arm it is.

    Returns:
        the runs, in the order given; below a directory sorted by label and seed.

    Raises:
        ValueError: with all problems: nothing there, damaged files, two runs with one label and seed.
    """
    runs: list[Run] = []
    problems: list[str] = []
    for argument in arguments:
        label, path = split_label(argument)
        try:
            runs += _below(path, label)
        except (ValueError, OSError) as error:
            problems.append(str(error))
    problems += _repeated(runs)
    raise_problems(problems)
    return runs


def _repeated(runs: Sequence[Run]) -> list[str]:
    problems = []
    places: set[Path] = set()
    names: dict[str, Path] = {}
    for run in runs:
        if (place := run.path.resolve()) in places:
            problems.append(f"{run.path} is given twice; give it once")
        elif run.seed is not None and (other := names.setdefault(run.name, run.path)) is not run.path:
            problems.append(f"{other} and {run.path} are both {run.name}; tell them apart with LABEL=DIR")
        places.add(place)
    return problems


def split_label(argument: str) -> tuple[str | None, Path]:
    """Return label and path of ``LABEL=PATH`` or ``PATH``; what exists as it stands is a path, whatever its name."""
    label, sign, rest = argument.partition("=")
    if not sign or not label.strip() or Path(argument).exists():
        return None, Path(argument)
    return label.strip(), Path(rest)


def _below(path: Path, label: str | None) -> list[Run]:
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a run's directory or a file of veRL's file logger")
    found = [_read(place, *log) for place in _places(path, _DEPTH) if (log := _log_of(place))]
    runs = sorted(
        (run for run in found if run.steps), key=lambda run: (run.label, -1 if run.seed is None else run.seed)
    )
    if not runs:
        raise ValueError(
            f"{path} has no metrics: neither metrics-N.jsonl or another file of veRL's file logger, nor tensorboard's "
            'events.out.tfevents.*; train with trainer.logger=["console","file"] or "tensorboard"'
        )
    if label is None:
        return runs
    several = len({run.label for run in runs}) > 1
    return [_relabelled(run, f"{label} {run.label}" if several else label) for run in runs]


def _relabelled(run: Run, label: str) -> Run:
    return Run(label, run.seed, run.path, run.steps, run.logger, run.record)


def _places(path: Path, depth: int) -> Iterator[Path]:
    """Everything that could be a run at or below a path; what is inside a run is not looked at."""
    yield path
    if depth and path.is_dir() and _log_of(path) is None:
        for child in sorted(path.iterdir()):
            if not child.name.startswith(".") and (child.is_dir() or child.suffix == ".jsonl"):
                yield from _places(child, depth - 1)


def _log_of(path: Path) -> tuple[str, list[Path]] | None:
    """Which logger wrote here, and its files; the file logger's figures have more digits, so it goes first."""
    if path.is_file():
        return ("file", [path]) if path.suffix == ".jsonl" and _is_metrics(path) else None
    if attempts := MetricsLog(path).attempts():
        return "file", attempts
    if files := event_files(path):
        return "tensorboard", files
    return None


def _is_metrics(path: Path) -> bool:
    """Whether the first line is the file logger's; generations are dumped under the same suffix."""
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    return first.lstrip().startswith(b'{"step"') and b'"data"' in first


def _read(path: Path, logger: str, files: Sequence[Path]) -> Run:
    steps = read_events(files) if logger == "tensorboard" else MetricsLog(path).read()
    record = read_record(path) if path.is_dir() else {}
    label, seed = _named(path)
    if "arm" in record:
        label, seed = str(record["arm"]), record.get("seed", seed)
    if seed is not None and not isinstance(seed, int):
        raise ValueError(f"{path / FILE} has seed {seed!r}; it must be a whole number")
    return Run(label, seed, path, tuple(steps), logger, record)


def _named(path: Path) -> tuple[str, int | None]:
    """Label and seed by name: ``ARM-seedN``, ``ARM/seed-N``, or all of it the label."""
    full = path.resolve()
    name = full.stem if full.is_file() else full.name
    match = _SEED.fullmatch(name)
    if not match:
        return name, None
    return match["label"] or full.parent.name, int(match["seed"])
