"""A run's metrics as veRL's ``tensorboard`` logger writes them: scalars in event files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from verl_trgrpo.runs.report.metrics import Step


def event_files(directory: Path) -> list[Path]:
    """Event files in a directory, oldest first: their names begin with the second they were opened in."""
    return sorted(directory.glob("events.out.tfevents.*"))


def read_events(files: Sequence[Path]) -> list[Step]:
    """Read the scalars of event files.

    Args:
        files: oldest first; a step that was repeated after a resume counts once, the later wins.

    Returns:
        steps in order. Values are single precision, as tensorboard stores them. A record still being written ends its
        file.
    """
    # verl requires tensorboard; its import takes a moment.
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    steps: dict[int, dict[str, float]] = {}
    for path in files:
        for event in LegacyEventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.WhichOneof("value") == "simple_value":
                    steps.setdefault(event.step, {})[value.tag] = value.simple_value
    return [Step(number, steps[number]) for number in sorted(steps)]
