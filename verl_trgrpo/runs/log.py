"""A training's log, read while it is written and after it has failed."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

# vLLM's last word when its engine process is gone: every request to it fails with this.
_ENGINE_DEAD = "EngineDeadError"
# Ray's word about an actor's process that is gone.
_WORKER_KILLED = "A worker died or was killed while executing a task"
# veRL drops a prompt whose rollout or reward raised, says so in the log, and trains on the others.
_PROMPT_LOST = "Error in _run_prompt"
# Amid a rollout veRL then ends by itself, within this time. Between steps it waits for ever: the ranks send weights that
# nobody takes. No actor of a training is started again.
_GRACE = 30.0
# Bytes kept from one look to the next, so that no word is cut in two.
_OVERLAP = 64

_RAY_PREFIX = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=\d+[^)]*\)\s?")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# Ray's and Hydra's own lines around an error say nothing about it.
_WRAPPER = re.compile(r"^(?:ray\.exceptions|hydra\.errors)\.|^Exception raised in creation task")

# torch.save's own words on a full disk, and the system's.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
# Ray ends workers itself before the system does.
_LITTLE_MEMORY = re.compile(
    r"killed due to the node running low on memory\..*? was (?P<used>[\d.]+GB used / [\d.]+GB) limit"
)
# Ray puts the class of an actor and the number of its process before each of its lines, and names a dead one by number.
_SPEAKER = re.compile(r"\((?P<name>\w+) pid=(?P<pid>\d+)")
_DEAD_PID = re.compile(re.escape(_WORKER_KILLED) + r".*? Worker PID: (\d+)")
# A disk with less room counts as full.
_FULL = 64 << 20


class WorkerDiedError(RuntimeError):
    """A process of the training died and the training did not end."""


class LogWatch:
    """What a log says so far.

    Args:
        log_file: may not exist yet.
        grace: seconds between the first word of a dead process and :class:`WorkerDiedError`.
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
        if self._dead_since is None and any(word.encode() in text for word in (_ENGINE_DEAD, _WORKER_KILLED)):
            self._dead_since = self._clock()

    def check_alive(self) -> None:
        """Read what is new, of a training that has not ended.

        Raises:
            WorkerDiedError: when vLLM's engine or a worker has been dead for longer than the grace.
        """
        self.look()
        if self._dead_since is not None and self._clock() - self._dead_since > self._grace:
            raise WorkerDiedError("veRL went on waiting for a process that had died")


def failure(log_file: Path) -> str:
    """Why a training failed: the errors of its log, and what they mean where their own words do not say it."""
    text = log_file.read_text(errors="replace")
    lines = [_RAY_PREFIX.sub("", _RAY_PREFIX.sub("", line)) for line in text.splitlines()]
    # Libraries mention harmless errors in passing; one that ended something stands below a traceback.
    first = next((i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), 0)
    found = [
        line.strip() for line in lines[first:] if _EXCEPTION.match(line.strip()) and not _WRAPPER.match(line.strip())
    ]
    # The first error is the cause; Ray repeats it, and the last one may be no more than its consequence.
    errors = [found[0], *(f"(finally: {line})" for line in found[-1:] if line != found[0])] if found else []
    explained = [f"({hint})" for hint in _hints(text, log_file.parent)]
    # Ray's own words about a killed process say less than the hint, and the last lines may be about anything.
    return "\n".join([*errors, *explained] or lines[-5:]) or "no output"


def _hints(text: str, run_dir: Path) -> list[str]:
    """Explanations with a remedy, a sentence each."""
    hints = []
    free = shutil.disk_usage(run_dir).free
    room = f"{free >> 20} MiB are free at {run_dir}; make room"
    if _CANNOT_WRITE.search(text):
        hints.append(f"a file could not be written; {room}")
    elif free < _FULL:  # the log itself may end before the error
        hints.append(f"only {room}")
    if memory := _LITTLE_MEMORY.search(text):
        hints.append(
            f"Ray ended workers because this machine had little memory left ({memory['used']}): close other programs, or give "
            "the run less to do at once (micro-batches, max_num_seqs, VLLM_CPU_KVCACHE_SPACE)"
        )
    if _ENGINE_DEAD in text:
        hints.append(
            "vLLM's engine process died: an error of its own above, killed from outside, or by the system for its memory"
        )
    if _WORKER_KILLED in text:
        names = {match["pid"]: match["name"] for match in _SPEAKER.finditer(text)}
        died = {names[pid]: None for pid in _DEAD_PID.findall(text) if pid in names}
        name = f" ({', '.join(died)})" if died else ""
        hints.append(f"a worker process{name} died: killed from outside, or by the system for its memory (see dmesg)")
    return hints
