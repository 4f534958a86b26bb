"""Compare the validation of a resumed run with the one that was recorded at the same step before.

The weights at that step are the same, so only sampling and rounding differ. A larger difference means that the run does not go on
with what it saved, whatever the reason.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from omegaconf import DictConfig

from verl_trgrpo.checks.files import local_data_files
from verl_trgrpo.data.rows import UnreadableError
from verl_trgrpo.data.verl_files import read_rows
from verl_trgrpo.runs.checkpoints import step_of
from verl_trgrpo.runs.compose import flat, selected
from verl_trgrpo.runs.metrics import MetricsLog, Step
from verl_trgrpo.runs.run_directory import REPEATED, read_config, read_record, write_record

# Differences of at least so many standard errors are not left to chance: about one in 16,000 validations by sampling alone.
LIMIT = 4.0

_METRIC = re.compile(r"val-core/(?P<source>.+)/\w+/mean@(?P<samples>\d+)")
# Settings with which two validations can be compared.
_SAME = (
    "data.val_files",
    "data.val_max_samples",
    "data.max_response_length",
    "reward.",
    "actor_rollout_ref.rollout.val_kwargs.",
)


@dataclass(frozen=True)
class Repetition:
    """A validation metric that was measured twice at one step.

    Args:
        step: global step of the checkpoint.
        metric: name, ``val-core/SOURCE/VARIABLE/mean@K``.
        before: recorded value.
        after: value after the resume.
        responses: number of responses of each value; None if it is not known.
        standard_errors: the difference in its standard errors; None if these are not known.
    """

    step: int
    metric: str
    before: float
    after: float
    responses: int | None
    standard_errors: float | None

    @property
    def differs(self) -> bool:
        """Return True for a difference beyond chance."""
        return self.standard_errors is not None and self.standard_errors >= LIMIT

    def message(self) -> str:
        """Return a line for the terminal; "" for a difference within chance."""
        values = f"{self.metric} is {self.after:.3f} after resuming at step {self.step}, and was {self.before:.3f} there before"
        if self.differs:
            return (
                f"warning: {values} ({self.responses} responses each, {self.standard_errors:.1f} standard errors): the run does "
                "not go on with the weights or the validation that it had; stop it, and check the checkpoint and the log"
            )
        if self.standard_errors is None and self.before != self.after:
            return f"note: {values}; whether this is chance is not known"
        return ""


def repetitions(before: Step, after: Step, rows: Mapping[str, int]) -> list[Repetition]:
    """Compare the main metrics of two validations of the same weights.

    The standard error of the difference of two shares, sqrt(2 p (1 - p) / n) with their mean p and n responses each, is that
    of independent responses. Both validations have the same prompts, and greedy decoding repeats most responses, so that it
    is an upper bound. Values that are not finite are left out; those outside of [0, 1] have none.

    Args:
        before: recorded.
        after: of the resumed run, at the same step.
        rows: validation prompts by data source.
    """
    found = []
    for metric, value in after.metrics.items():
        recorded = before.metrics.get(metric, math.nan)
        if not (match := _METRIC.fullmatch(metric)) or not math.isfinite(value) or not math.isfinite(recorded):
            continue
        responses = rows.get(match["source"], 0) * int(match["samples"]) or None
        errors = None
        if responses and 0 <= recorded <= 1 and 0 <= value <= 1:
            mean = (recorded + value) / 2
            errors = abs(value - recorded) / math.sqrt(2 * mean * (1 - mean) / responses) if value != recorded else 0.0
        found.append(Repetition(before.number, metric, recorded, value, responses, errors))
    return found


def validation_rows(config: DictConfig) -> dict[str, int]:
    """Return the validation prompts by data source, before veRL's filter; {} where they cannot be read."""
    counts: Counter[str] = Counter()
    try:
        for file in local_data_files(config, "data.val_files"):
            counts.update(row["data_source"] for row in read_rows(file, ["data_source"]) if "data_source" in row)
    except UnreadableError:
        return {}
    limit = selected(config, "data.val_max_samples") or -1
    share = min(1.0, limit / counts.total()) if limit > 0 and counts else 1.0
    return {source: round(count * share) for source, count in counts.items()}


class ResumeWatch:
    """Compare the first validation of an attempt with the one that was recorded at the step of its checkpoint.

    Make it before the attempt writes anything.

    Args:
        config: of the run.
        checkpoint: that it resumes from, or None.
        run_dir: its directory, whose ``run.json`` receives the comparison.
        stream: receives a line for each difference.
    """

    def __init__(self, config: DictConfig, checkpoint: Path | None, run_dir: Path, stream: TextIO) -> None:
        self._config, self._run_dir, self._stream = config, run_dir, stream
        self._before = _recorded(config, checkpoint) if checkpoint else None

    def update(self, steps: Sequence[Step]) -> None:
        """Compare once the validation is among the `steps` of the attempt."""
        before = self._before
        after = next((step for step in steps if before and step.number == before.number), None)
        if before is None or after is None:
            return
        self._before = None
        found = repetitions(before, after, validation_rows(self._config))
        for message in filter(None, (each.message() for each in found)):
            print(message, file=self._stream, flush=True)
        record = read_record(self._run_dir)
        kept = [*record.get(REPEATED, []), *({**asdict(each), "differs": each.differs} for each in found)]
        with contextlib.suppress(OSError):  # a full disk must not end a training here
            write_record(self._run_dir, record | {REPEATED: kept})


def _recorded(config: DictConfig, checkpoint: Path) -> Step | None:
    """Return the step of a checkpoint as its own run recorded it; None if that validated with other settings."""
    number = step_of(checkpoint)
    steps: list[Step] = []
    with contextlib.suppress(ValueError):  # a damaged file must not end a training; whoever reads the run is told
        recorded = read_config(checkpoint.parent)
        if recorded is not None and _validation_settings(recorded) == _validation_settings(config):
            steps = MetricsLog(checkpoint.parent).read()
    return next((step for step in steps if step.number == number), None)


def _validation_settings(config: DictConfig) -> dict[str, Any]:
    return {key: value for key, value in flat(config).items() if key.startswith(_SAME)}
