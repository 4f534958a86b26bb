"""The runs to report: found below what the user named, with label, seed, steps and what is known of their origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.runs.metrics import Step, read_steps
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.settings import OPTIONS_FILE

_SEED = re.compile(r"(?P<label>.*?)[-_]?seed[-_]?(?P<seed>\d+)")
# runs/ARM/SEED of a comparison.
_DEPTH = 3


@dataclass(frozen=True, eq=False)
class Run:
    """One training run.

    Args:
        label: its arm.
        seed: of sampling and data order; None where nothing says it.
        path: directory or file it was read from.
        steps: in order; not empty.
        record: content of ``run.json``, or nothing.
    """

    label: str
    seed: int | None
    path: Path
    steps: tuple[Step, ...]
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.label if self.seed is None else f"{self.label} seed {self.seed}"

    @property
    def last_step(self) -> int:
        return self.steps[-1].number


@dataclass(frozen=True, eq=False)
class Arm:
    """All runs with one label; ``number`` is its place among the arms, which decides how it is drawn."""

    label: str
    number: int
    runs: tuple[Run, ...]


def group_arms(runs: Sequence[Run], baseline: str) -> list[Arm]:
    """Return the arms in the order of their first runs, the baseline first."""
    labels = sorted(dict.fromkeys(run.label for run in runs), key=lambda label: label != baseline)
    return [Arm(label, number, tuple(run for run in runs if run.label == label)) for number, label in enumerate(labels)]


def last_common_step(runs: Sequence[Run]) -> int:
    """The last step that all runs reached; those that are known not to be finished do not count where others are there."""
    counted = [run for run in runs if run.record.get("finished") is not False] or runs
    return min(run.last_step for run in counted)


def split_label(argument: str) -> tuple[str | None, Path]:
    """Return label and path of ``LABEL=PATH`` or ``PATH``; what exists as it stands is a path, whatever its name."""
    label, sign, rest = argument.partition("=")
    if not sign or not label.strip() or Path(argument).exists():
        return None, Path(argument)
    return label.strip(), Path(rest)


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
    names: dict[str, Path] = {}
    for run in runs:
        other = names.setdefault(run.name if run.seed is not None else str(run.path), run.path)
        if other is not run.path:
            problems.append(f"{other} and {run.path} are both {run.name}; tell them apart with LABEL=DIR")
    raise_invalid(problems)
    return runs


def _below(path: Path, label: str | None) -> list[Run]:
    if not path.exists():
        raise ValueError(f"{path} does not exist; give a run's directory or a file of veRL's file logger")
    runs = sorted(_search(path, _DEPTH), key=lambda run: (run.label, -1 if run.seed is None else run.seed))
    if not runs:
        raise ValueError(
            f"{path} has no metrics: neither metrics-N.jsonl nor another file of veRL's file logger; train with "
            'trainer.logger=["console","file"]'
        )
    return [replace(run, label=label) for run in runs] if label else runs


def _search(path: Path, depth: int) -> Iterator[Run]:
    """Every run at or below a path; what is inside a run is not looked at."""
    if steps := read_steps(path):
        yield _run(path, steps)
    elif depth and path.is_dir():
        for child in sorted(path.iterdir()):
            if not child.name.startswith("."):
                yield from _search(child, depth - 1)


def _run(path: Path, steps: Sequence[Step]) -> Run:
    """``run.json`` says arm and seed, or else the name: ``ARM-seedN``, ``ARM/seed-N``, or all of it the arm.

    A seed that neither says may stand in the single-file trainer's options.
    """
    full = path.resolve()
    label, seed = full.stem if full.is_file() else full.name, None
    if match := _SEED.fullmatch(label):
        label, seed = match["label"] or full.parent.name, int(match["seed"])
    record = read_record(path) if path.is_dir() else {}
    if seed is None and path.is_dir():
        seed = read_record(path, OPTIONS_FILE).get("seed")
    return Run(record.get("arm", label), record.get("seed", seed), path, tuple(steps), record)
