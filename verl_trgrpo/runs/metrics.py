"""Read what a run logs: metrics of veRL's ``file`` logger, per line ``{"step": ..., "data": {...}}``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import field_validator

from verl_trgrpo.common.foreign import open_foreign
from verl_trgrpo.common.typed import OptionalNumber, Schema, Text, Whole, typed_lines

# Names of the main metrics.
MEAN_REWARD = "critic/score/mean"
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


@dataclass
class MetricsLog:
    """Read all attempts of a run incrementally; of a step that was repeated after a resume, the later one counts.

    A resumed attempt may begin with a validation of its checkpoint. If there is one of the same step already, that one counts.

    Args:
        run_dir: directory with ``metrics-N.jsonl`` for each attempt N, or one such file.
        first: first attempt to read.
    """

    run_dir: Path
    first: int = 1
    _offsets: dict[Path, int] = field(default_factory=dict)
    _lines: dict[Path, int] = field(default_factory=dict)
    _steps: dict[int, dict[str, float]] = field(default_factory=dict)

    def attempts(self) -> list[Path]:
        """Return the files of the attempts so far, oldest first."""
        if self.run_dir.is_file():
            return [self.run_dir]
        matches = [(_ATTEMPT.fullmatch(path.name), path) for path in self.run_dir.iterdir() if path.is_file()]
        found = {int(match[1]): path for match, path in matches if match}
        return [found[number] for number in sorted(found) if number >= self.first]

    def read(self) -> list[Step]:
        """Read what was written since the last call, and return all steps so far in order.

        A line that veRL's logger did not write is left out; there is a warning for each file with such lines.
        """
        for path in self.attempts():
            start, lines = self._offsets.get(path, 0), self._lines.get(path, 0)
            for size, found in typed_lines(MetricsLine, path, start, lines):
                begins = path not in self._offsets
                self._offsets[path] = self._offsets.get(path, 0) + size
                self._lines[path] = self._lines.get(path, 0) + 1
                if found:
                    data = {name: value for name, value in found.data.items() if value is not None}
                    self._add(found.step, data, begins)
        return [Step(number, dict(self._steps[number])) for number in sorted(self._steps)]

    def _add(self, number: int, data: dict[str, float], begins: bool) -> None:
        """Add a line; `begins` is True for the first one of an attempt."""
        step = self._steps.setdefault(number, {})
        if begins and all(name.startswith("val-") for name in data):
            # The validation before a resumed training is logged under the step it resumed from.
            data = {name: value for name, value in data.items() if name not in step}
        step |= data


def series(steps: Sequence[Step], metric: str | None) -> list[tuple[float, float]]:
    """Return (step, value) for each step that logged a metric; None stands for the mean accuracy over data sources."""
    values = [(step.number, step.accuracy if metric is None else step.metrics.get(metric)) for step in steps]
    return [(float(number), value) for number, value in values if value is not None]


def read_steps(path: Path) -> list[Step]:
    """Return the steps of a run directory, or of one file of veRL's ``file`` logger; [] for any other path."""
    if path.is_file():
        if path.suffix != ".jsonl":
            return []
        with open_foreign(path) as file:
            first = file.readline(1 << 20).lstrip()  # dumps of responses have the same suffix
        if not first.startswith(b'{"step"') or b'"data"' not in first:
            return []
    return MetricsLog(path).read()
