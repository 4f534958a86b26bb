"""Read what a run logs: metrics of veRL's ``file`` logger, per line ``{"step": ..., "data": {...}}``."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import field_validator

from verl_trgrpo.common.foreign import open_foreign
from verl_trgrpo.common.typed import OptionalNumber, Schema, Text, Whole, typed_lines

# Names of the main metrics.
MEAN_REWARD = "critic/score/mean"
TRAIN_ACCURACY = "critic/acc/mean"
GRAD_NORM = "actor/grad_norm"
WEIGHT = "actor/tr_weight_mean"
WEIGHT_STD = "actor/tr_weight_std"
# Share of tokens with p < 0.25 in the gradient proxy |A| w (1 - p), and in the same without the weights w.
WEIGHTED_SHARE = "actor/tr_grad_share_low_prob"
UNWEIGHTED_SHARE = "actor/tr_grad_share_low_prob_uniform"
EQUAL_GROUPS = "critic/equal_groups_frac"
NO_ANSWER = "critic/no_answer_frac"
CUT_OFF_SHARE = "critic/cut_off_frac"

_ATTEMPT = re.compile(r"metrics-(\d+)\.jsonl")


class MetricsLine(Schema):
    """A line of veRL's ``file`` logger."""

    step: Whole
    data: dict[Text, OptionalNumber]

    @field_validator("data", mode="before")
    @classmethod
    def _numbers(cls, data: Any) -> Any:
        """Keep numbers alone; the logger writes NaN as null, which must not be taken for a missing metric."""
        if not isinstance(data, dict):
            return data
        data = {name: math.nan if value is None else value for name, value in data.items()}
        return {name: value for name, value in data.items() if isinstance(value, (int, float))}


@dataclass(frozen=True)
class Step:
    """Global step and its metrics by name: one line of the log."""

    number: int
    metrics: dict[str, float]

    @property
    def reward(self) -> float | None:
        return self.metrics.get(MEAN_REWARD)

    @property
    def accuracy(self) -> float | None:
        """Mean over sources of ``val-core/<source>/acc/mean@k``, of ``reward`` if none has ``acc``; None without validation."""
        core = [
            (name, value) for name, value in self.metrics.items() if name.startswith("val-core/") and "/mean@" in name
        ]
        found = [value for name, value in core if "/acc/mean@" in name] or [value for _, value in core]
        return fmean(found) if found else None


@dataclass(frozen=True)
class Branch:
    """Steps of an attempt that the run has gone back before: an earlier checkpoint was loaded, and others took their place.

    Args:
        attempt: N of ``metrics-N.jsonl``; in a single file the number of the attempt in it, 1 for the first.
        steps: in order.
    """

    attempt: int
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        """Return which steps they are, in words."""
        first, last = self.steps[0].number, self.steps[-1].number
        return f"{f'step {first}' if first == last else f'steps {first} to {last}'} of attempt {self.attempt}"


class RunSteps(NamedTuple):
    """The steps that lead to the present state of a run, in order, and the branches that were left."""

    line: list[Step]
    abandoned: list[Branch]


@dataclass
class _Attempt:
    """What one attempt has logged, after it loaded the checkpoint of step `start`: its validation of that, and its own rows."""

    number: int
    start: int
    file: int = 0
    loaded: dict[str, float] = field(default_factory=dict)
    rows: dict[int, dict[str, float]] = field(default_factory=dict)
    last: int = -1

    def goes_on(self, step: int, data: dict[str, float], only_validates: bool) -> bool:
        """Return whether a line can be of this attempt: of the next step, or of the last one with other metrics."""
        if self.rows:
            return step == self.last + 1 or (step == self.last and not self.rows[step].keys() & data)
        return step == (self.start if only_validates else self.start + 1)

    def add(self, step: int, data: dict[str, float], only_validates: bool) -> None:
        if only_validates and not self.rows and step == self.start:
            self.loaded = data | self.loaded  # the first validation of the same weights counts
        else:
            self.rows[step] = self.rows.get(step, {}) | data
            self.last = max(self.last, step)


@dataclass
class MetricsLog:
    """Read the attempts of a run incrementally, as the branches of a tree.

    An attempt that loads the checkpoint of step s begins with step s + 1, or with a validation of step s. It goes on from the
    latest attempt before it that had trained step s; the steps behind s are abandoned. An attempt that has trained no step has
    no branch. The validation with which an attempt begins counts where the run had not validated that step.

    Args:
        run_dir: directory with ``metrics-N.jsonl`` for each attempt N, or one such file, in which attempts follow one another.
        begins: attempt that is about to begin, and the step of the checkpoint that it loads: steps behind are abandoned from
            then on, before its first line is there.
    """

    run_dir: Path
    begins: tuple[int, int] | None = None
    _offsets: dict[Path, int] = field(default_factory=dict)
    _lines: dict[Path, int] = field(default_factory=dict)
    _attempts: list[_Attempt] = field(default_factory=list)

    def files(self) -> list[Path]:
        """Return the files of the attempts so far, oldest first."""
        return [path for _, path in self._files()]

    def _files(self) -> list[tuple[int, Path]]:
        if self.run_dir.is_file():
            return [(0, self.run_dir)]
        matches = [(_ATTEMPT.fullmatch(path.name), path) for path in self.run_dir.iterdir() if path.is_file()]
        return sorted((int(match[1]), path) for match, path in matches if match)

    def read(self, upto: int | None = None) -> RunSteps:
        """Read what was written since the last call, and return the steps so far; with `upto` as `read_run` does.

        A line that veRL's logger did not write is left out; there is a warning for each file with such lines.
        """
        for number, path in self._files():
            start, lines = self._offsets.get(path, 0), self._lines.get(path, 0)
            for size, found in typed_lines(MetricsLine, path, start, lines):
                self._offsets[path] = self._offsets.get(path, 0) + size
                self._lines[path] = self._lines.get(path, 0) + 1
                if found:
                    data = {name: value for name, value in found.data.items() if value is not None}
                    self._add(number, found.step, data)
        attempts = self._attempts
        trained = [place for place, attempt in enumerate(attempts) if attempt.rows]
        if upto is not None:
            trained = [place for place in trained if upto in attempts[place].rows] or trained
        elif self.begins and (not trained or attempts[trained[-1]].number < self.begins[0]):
            return _line([*attempts, _Attempt(*self.begins)], len(attempts))
        return _line(attempts, trained[-1] if trained else len(attempts) - 1, math.inf if upto is None else upto)

    def _add(self, file: int, step: int, data: dict[str, float]) -> None:
        """Add a line of the file of a number."""
        only_validates = bool(data) and all(map(_is_validation, data))
        latest = self._attempts[-1] if self._attempts else None
        if latest is None or latest.file != file or not latest.goes_on(step, data, only_validates):
            # In a file alone, a step after a gap may go on from an attempt before the latest one.
            number = file or (1 if latest is None else latest.number + (step <= latest.last))
            self._attempts.append(_Attempt(number, step if only_validates else step - 1, file))
        self._attempts[-1].add(step, data, only_validates)


def _line(attempts: Sequence[_Attempt], end: int, upto: float = math.inf) -> RunSteps:
    """Return the line to the last step of the attempt at place `end`, or to a step of it, and what is not on that line."""
    holders: dict[int, list[int]] = defaultdict(list)
    for place, attempt in enumerate(attempts):
        for step in attempt.rows:
            holders[step].append(place)

    def parent(place: int) -> int:
        """Return the latest attempt that had trained what this one loaded; where none is logged, the one before."""
        before = holders.get(attempts[place].start, [])
        found = bisect_left(before, place) - 1
        return before[found] if found >= 0 else place - 1

    rows: dict[int, dict[str, float]] = {}
    taken: dict[int, float] = {-1: math.inf}  # by place of an attempt the last step of it that is on the line
    place = end
    while place >= 0:
        taken[place] = upto
        rows |= {step: data for step, data in attempts[place].rows.items() if step <= upto}
        upto = min(upto, attempts[place].start)
        place = parent(place)
    for place, attempt in enumerate(attempts):
        on_line = attempt.start <= max(taken.get(each, -1) for each in (place, parent(place)))
        known = rows.get(attempt.start, {})
        if attempt.loaded and on_line and not any(map(_is_validation, known)):
            rows[attempt.start] = known | attempt.loaded
    left = [
        Branch(
            attempt.number,
            tuple(_steps({step: data for step, data in attempt.rows.items() if step > taken.get(place, -1)})),
        )
        for place, attempt in enumerate(attempts)
    ]
    return RunSteps(_steps(rows), [branch for branch in left if branch.steps])


def _steps(rows: Mapping[int, dict[str, float]]) -> list[Step]:
    return [Step(number, dict(rows[number])) for number in sorted(rows)]


def _is_validation(name: str) -> bool:
    return name.startswith("val-")


def series(steps: Sequence[Step], metric: str | None) -> list[tuple[float, float]]:
    """Return (step, value) for each step that logged a metric; None stands for the mean accuracy over data sources."""
    values = [(step.number, step.accuracy if metric is None else step.metrics.get(metric)) for step in steps]
    return [(float(number), value) for number, value in values if value is not None]


def read_run(path: Path, upto: int | None = None) -> RunSteps:
    """Return the steps of a run directory, or of one file of veRL's ``file`` logger; none for any other path.

    With `upto` return those that lead to the checkpoint of a step: of the latest attempt that has trained it.
    """
    if path.is_file():
        if path.suffix != ".jsonl":
            return RunSteps([], [])
        with open_foreign(path) as file:
            first = file.readline(1 << 20).lstrip()  # dumps of responses have the same suffix
        if not first.startswith(b'{"step"') or b'"data"' not in first:
            return RunSteps([], [])
    return MetricsLog(path).read(upto)
