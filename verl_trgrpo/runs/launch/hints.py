"""What a failed training's log means, where its own words do not say it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

# torch.save's own words on a full disk, and the system's.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
_WORKER_DIED = "died unexpectedly"
# What every request to a dead engine fails with. veRL then hangs, or says something else about the rollouts it lacks.
ENGINE_DEAD = "EngineDeadError"
_CLASS_NAME = re.compile(r"class_name:.*?(\w+)\s*$")
# A disk with less room counts as full.
_FULL = 64 << 20


def hints(lines: Sequence[str], run_dir: Path) -> list[str]:
    """Explanations with a remedy, a sentence each.

    Args:
        lines: of the log, without Ray's prefixes.
        run_dir: where the run writes.
    """
    return [*_disk_hints(lines, run_dir), *_engine_hints(lines), *_worker_hints(lines)]


def _disk_hints(lines: Sequence[str], run_dir: Path) -> list[str]:
    free = shutil.disk_usage(run_dir).free
    room = f"{free >> 20} MiB are free at {run_dir}; make room"
    if any(_CANNOT_WRITE.search(line) for line in lines):
        return [f"a file could not be written; {room}"]
    # On a full disk the log itself may end before the error.
    return [f"only {room}"] if free < _FULL else []


def _engine_hints(lines: Sequence[str]) -> list[str]:
    if not any(ENGINE_DEAD in line for line in lines):
        return []
    return [
        "vLLM's engine process died: an error of its own above, killed from outside, or by the system for its memory"
    ]


def _worker_hints(lines: Sequence[str]) -> list[str]:
    """Ray's report of an actor that was killed; one that raised an error has that error above."""
    found = [number for number, line in enumerate(lines) if _WORKER_DIED in line]
    names = [match[1] for number in found for line in lines[number : number + 3] if (match := _CLASS_NAME.search(line))]
    if not found:
        return []
    who = f" ({names[0]})" if names else ""
    return [f"a worker process{who} died: killed from outside, or by the system for its memory (see dmesg)"]
