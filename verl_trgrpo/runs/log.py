"""A training's log, read while it is written and after it has failed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# vLLM's last word when its engine process is gone; every request to it fails with this. Between steps veRL then waits for
# ever: the ranks send weights that nobody takes. Amid a rollout it ends by itself.
_ENGINE_DEAD = "EngineDeadError"
# veRL drops a prompt whose rollout or reward raised, says so in the log, and trains on the others.
_PROMPT_LOST = "Error in _run_prompt"
# Long enough for a run that ends by itself, the usual end among them, to do so.
_GRACE = 30.0
# Bytes kept from one look to the next, so that no word is cut in two.
_OVERLAP = 64

_RAY_PREFIX = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=\d+[^)]*\)\s?")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# Ray's and Hydra's own lines around an error say nothing about it.
_WRAPPER = re.compile(r"^(?:ray\.exceptions|hydra\.errors)\.|^Exception raised in creation task")

# torch.save's own words on a full disk, and the system's.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
# Ray's report of an actor that was killed; one that raised an error has that error above.
_WORKER_DIED = "died unexpectedly"
_CLASS_NAME = re.compile(r"class_name:.*?(\w+)\s*$")
# A disk with less room counts as full.
_FULL = 64 << 20


class EngineDeadError(RuntimeError):
    """vLLM's engine process died and the training did not end."""


class LogWatch:
    """What a log says so far.

    Args:
        log_file: may not exist yet.
        grace: seconds between vLLM's last word and :class:`EngineDeadError`.
        clock: in seconds.
    """

    def __init__(self, log_file: Path, grace: float = _GRACE, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._grace, self._clock = log_file, grace, clock
        self._offset = 0
        self._tail = b""
        self._dead_since: float | None = None
        self.prompts_were_lost = False

    def look(self) -> None:
        """Read what is new."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        text = self._tail + new
        self._tail = text[-_OVERLAP:]
        self.prompts_were_lost |= _PROMPT_LOST.encode() in text
        if _ENGINE_DEAD.encode() in text and self._dead_since is None:
            self._dead_since = self._clock()

    def check_alive(self) -> None:
        """Read what is new, of a training that has not ended.

        Raises:
            EngineDeadError: when vLLM's engine has been dead for longer than the grace.
        """
        self.look()
        if self._dead_since is not None and self._clock() - self._dead_since > self._grace:
            raise EngineDeadError("vLLM's engine process died (killed, or out of memory) and veRL did not end")


def failure(log_file: Path) -> str:
    """Why a training failed: the errors of its log, and what they mean where their own words do not say it."""
    lines = [
        _RAY_PREFIX.sub("", _RAY_PREFIX.sub("", line)) for line in log_file.read_text(errors="replace").splitlines()
    ]
    # Libraries mention harmless errors in passing; one that ended something stands below a traceback.
    first = next((i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), 0)
    found = [
        line.strip() for line in lines[first:] if _EXCEPTION.match(line.strip()) and not _WRAPPER.match(line.strip())
    ]
    # The first error is the cause; Ray repeats it, and the last one may be no more than its consequence.
    errors = [found[0], *(f"(finally: {line})" for line in found[-1:] if line != found[0])] if found else []
    explained = [f"({hint})" for hint in _hints(lines, log_file.parent)]
    # Ray's own words about a killed process say less than the hint, and the last lines may be about anything.
    return "\n".join([*errors, *explained] or lines[-5:]) or "no output"


def _hints(lines: Sequence[str], run_dir: Path) -> list[str]:
    """Explanations with a remedy, a sentence each."""
    hints = []
    free = shutil.disk_usage(run_dir).free
    room = f"{free >> 20} MiB are free at {run_dir}; make room"
    if any(_CANNOT_WRITE.search(line) for line in lines):
        hints.append(f"a file could not be written; {room}")
    elif free < _FULL:  # the log itself may end before the error
        hints.append(f"only {room}")
    if any(_ENGINE_DEAD in line for line in lines):
        hints.append(
            "vLLM's engine process died: an error of its own above, killed from outside, or by the system for its memory"
        )
    if died := [number for number, line in enumerate(lines) if _WORKER_DIED in line]:
        near = [line for number in died for line in lines[number : number + 3]]
        name = next((f" ({match[1]})" for line in near if (match := _CLASS_NAME.search(line))), "")
        hints.append(f"a worker process{name} died: killed from outside, or by the system for its memory (see dmesg)")
    return hints
