"""A run's metrics as veRL's loggers write them.

``file``: one JSON object a line, ``{"step": ..., "data": {...}}``. ``tensorboard``: scalars in event files.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What people look at first, and where veRL puts it.
REWARD = "critic/score/mean"
GRAD_NORM = "actor/grad_norm"
WEIGHT = "actor/tr_weight_mean"
STEP_SECONDS = "timing_s/step"

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
        return sum(found) / len(found) if found else None


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
    _steps: dict[int, Step] = field(default_factory=dict)

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
                        self._take(line)
                    except (ValueError, KeyError, TypeError, AttributeError) as error:
                        text = line[:60].decode(errors="replace").rstrip()
                        raise ValueError(
                            f"{path} has a line that veRL's file logger did not write ({text!r}); remove it"
                        ) from error
        return [self._steps[number] for number in sorted(self._steps)]

    def _take(self, line: bytes) -> None:
        record = json.loads(line)
        # The logger writes NaN as null; a loss that is not a number must not look like one that was not logged.
        data = {name: math.nan if value is None else value for name, value in record["data"].items()}
        metrics = {name: value for name, value in data.items() if isinstance(value, (int, float))}
        known = self._steps.get(record["step"])
        # The validation before a resumed training is logged under the step it resumed from.
        self._steps[record["step"]] = Step(record["step"], {**known.metrics, **metrics} if known else metrics)


def logger_of(path: Path) -> str | None:
    """Return which of veRL's loggers wrote a file or into a directory: ``file``, ``tensorboard``, or None.

    Where both did it is ``file``, whose figures have more digits.
    """
    if path.is_dir():
        return "file" if MetricsLog(path).attempts() else "tensorboard" if _event_files(path) else None
    if path.suffix != ".jsonl":
        return None
    with path.open("rb") as file:
        first = file.readline(1 << 20).lstrip()  # generations are dumped under the same suffix
    return "file" if first.startswith(b'{"step"') and b'"data"' in first else None


def read_steps(path: Path, logger: str) -> list[Step]:
    """Read what a run has logged so far.

    Args:
        path: the run's directory, or a file of the ``file`` logger.
        logger: as `logger_of` returns it.

    Returns:
        steps in order; one that was repeated after a resume counts once, the later wins. Values that tensorboard stored are
        single precision. What is still being written is left out.

    Raises:
        ValueError: for a line that veRL's ``file`` logger did not write.
    """
    if logger == "file":
        return MetricsLog(path).read()
    # verl requires tensorboard; its import takes a moment.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    steps: dict[int, dict[str, float]] = {}
    for events in _event_files(path):
        for event in LegacyEventFileLoader(str(events)).Load():
            for value in event.summary.value:
                if value.WhichOneof("value") == "simple_value":
                    steps.setdefault(event.step, {})[value.tag] = value.simple_value
    return [Step(number, steps[number]) for number in sorted(steps)]


def _event_files(directory: Path) -> list[Path]:
    """Event files in a directory, oldest first: their names begin with the second they were opened in."""
    return sorted(directory.glob("events.out.tfevents.*"))


def summarize(steps: list[Step]) -> dict[str, Any]:
    """First, last and best figures of a run.

    Returns:
        ``steps``, ``accuracy_first``, ``accuracy_last``, ``accuracy_best``, ``accuracy_best_step``, ``reward_first``,
        ``reward_last`` (means over the first and last five steps) and ``training_seconds``; None where there is nothing.
    """
    accuracies = [(step.accuracy, step.number) for step in steps if step.accuracy is not None]
    rewards = [step.reward for step in steps if step.reward is not None]
    best = max(accuracies, key=lambda pair: pair[0], default=(None, None))
    return {
        "steps": max((step.number for step in steps), default=0),
        "accuracy_first": accuracies[0][0] if accuracies else None,
        "accuracy_last": accuracies[-1][0] if accuracies else None,
        "accuracy_best": best[0],
        "accuracy_best_step": best[1],
        "reward_first": _mean(rewards[:5]),
        "reward_last": _mean(rewards[-5:]),
        "training_seconds": sum(step.metrics.get(STEP_SECONDS, 0.0) for step in steps),
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
