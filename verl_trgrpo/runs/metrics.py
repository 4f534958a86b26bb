"""A run's metrics as veRL's ``file`` logger writes them: one JSON object a line, ``{"step": ..., "data": {...}}``."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

# What people look at first, and where veRL puts it.
REWARD = "critic/score/mean"
GRAD_NORM = "actor/grad_norm"
WEIGHT = "actor/tr_weight_mean"
EQUAL_GROUPS = "critic/equal_groups_frac"
NO_ANSWER = "critic/no_answer_frac"

_ATTEMPT = re.compile(r"metrics-(\d+)\.jsonl")


@dataclass(frozen=True)
class Step:
    """One line of the log: the global step and its metrics by name."""

    number: int
    metrics: dict[str, float]

    @property
    def reward(self) -> float | None:
        return self.metrics.get(REWARD)

    @property
    def accuracy(self) -> float | None:
        """Validation accuracy: mean over data sources of ``val-core/<source>/acc/mean@k``; None without validation."""
        found = [value for name, value in self.metrics.items() if name.startswith("val-core/") and "/acc/mean@" in name]
        return fmean(found) if found else None


@dataclass
class MetricsLog:
    """All attempts of a run, read incrementally; a step that was repeated after a resume counts once, the later wins.

    Args:
        run_dir: directory with ``metrics-1.jsonl``, ``metrics-2.jsonl``, ... one per attempt; or one file.
        first: read from this attempt on.
    """

    run_dir: Path
    first: int = 1
    _offsets: dict[Path, int] = field(default_factory=dict)
    _steps: dict[int, dict[str, float]] = field(default_factory=dict)

    def attempts(self) -> list[Path]:
        """Files of the attempts so far, oldest first."""
        if self.run_dir.is_file():
            return [self.run_dir]
        found = {int(match[1]): path for path in self.run_dir.iterdir() if (match := _ATTEMPT.fullmatch(path.name))}
        return [found[number] for number in sorted(found) if number >= self.first]

    def read(self) -> list[Step]:
        """Steps read so far, in order; picks up what was written since the last call.

        Raises:
            ValueError: for a line that veRL's ``file`` logger did not write; the message names file and line.
        """
        for path in self.attempts():
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    try:
                        record = json.loads(line)
                        number, data = record["step"], record["data"]
                    except (ValueError, KeyError, TypeError) as error:
                        message = f"{path} has a line that veRL's file logger did not write ({line[:60]!r}); remove it"
                        raise ValueError(message) from error
                    # The logger writes NaN as null; a loss that is not a number must not look like one that was not logged.
                    data = {name: math.nan if value is None else value for name, value in data.items()}
                    # The validation before a resumed training is logged under the step it resumed from.
                    step = self._steps.setdefault(number, {})
                    step |= {name: value for name, value in data.items() if isinstance(value, (int, float))}
        return [Step(number, dict(self._steps[number])) for number in sorted(self._steps)]


def read_steps(path: Path) -> list[Step]:
    """Return the steps that a directory of `MetricsLog`, or one file of veRL's ``file`` logger, has; none for other paths.

    Raises:
        ValueError: for a line that veRL's ``file`` logger did not write.
    """
    if path.is_file():
        if path.suffix != ".jsonl":
            return []
        with path.open("rb") as file:
            first = file.readline(1 << 20).lstrip()  # generations are dumped under the same suffix
        if not first.startswith(b'{"step"') or b'"data"' not in first:
            return []
    return MetricsLog(path).read()
