"""Read a training's log: detect dead processes while it is written, and explain a failure afterwards."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from verl_trgrpo.common.foreign import open_foreign
from verl_trgrpo.common.text import escape_controls

# Responses of the model stand in the same log, so a message counts only at its place in a line: behind the name of the process
# that Ray puts in front, in its colors.
_COLOR = r"(?:\x1b\[[0-9;]*m)*"


def _said_by(name: str, message: str) -> re.Pattern[str]:
    return re.compile(rf"^{_COLOR}\({name}\b[^)\n]*\){_COLOR}[^\n]*{message}", re.MULTILINE)


# Every request to a dead vLLM engine process fails with this error.
_ENGINE_DEAD = re.compile(
    rf"^{_COLOR}(?:\([^)\n]*\))?{_COLOR} *(?:ERROR\b[^\n]* )?vllm\.[\w.]*\bEngineDeadError: EngineCore encountered",
    re.MULTILINE,
)
# Ray's message about a dead actor process.
_WORKER_KILLED = _said_by("raylet", "A worker died or was killed while executing a task")
# Ray's message after it has killed workers to save memory. They may have been idle: what decides is whether the training goes on.
_MEMORY_KILLED = _said_by("raylet", r"killed due to memory pressure \(OOM\)")
# Ray's message about an actor that no node is large enough for, and for which it waits forever; it prints a dict or defaultdict.
_NO_NODE = _said_by(
    "autoscaler", r"No available node types can fulfill resource request [^{\n]*(?P<request>\{[^}\n]*\})"
)
# Seconds without a line in the log after that message, until the training counts as dead.
_SILENCE = 1800.0
# veRL drops a prompt whose rollout or reward raised, says so in the log, and trains on the others.
_PROMPT_LOST = "Error in _run_prompt"
# Seconds in which veRL ends by itself if a process dies during a rollout. Between two steps it waits forever: the ranks
# send weights that no process receives. No actor of a training is restarted.
_GRACE = 30.0
# Characters of a line without an end that are kept between two reads.
_LONGEST_LINE = 1 << 16

_RAY_PREFIX = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=\d+[^)]*\)\s?")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# Lines that Ray and Hydra put around an error.
_WRAPPER = re.compile(r"^(?:ray\.exceptions|hydra\.errors)\.|^Exception raised in creation task")

# Errors of torch.save and of the system on a full disk.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
# Ray kills workers itself before the kernel does.
_LITTLE_MEMORY = re.compile(
    r"killed due to the node running low on memory\..*? was (?P<used>[\d.]+GB used / [\d.]+GB) limit"
)
# Ray prefixes each line with the actor's class and process id, and names a dead actor by its process id only.
_SPEAKER = re.compile(r"\((?P<name>\w+) pid=(?P<pid>\d+)")
_DEAD_PID = re.compile(_WORKER_KILLED.pattern + r".*? Worker PID: (\d+)", re.MULTILINE)
# A disk with less free space counts as full.
_FULL = 64 << 20
_UNPLACED = "Ray cannot place the processes of the run, and would wait forever"
_DIED = "veRL went on waiting for a process that had died"


class WorkerDiedError(RuntimeError):
    """Report a training that waits for one of its processes, which has died or cannot start."""


class LogWatch:
    """Watch a growing log for dead processes, actors that Ray cannot place, and lost prompts.

    Args:
        log_file: may not exist yet.
        grace: seconds between the first message about a process and :class:`WorkerDiedError`.
        clock: returns a time in seconds.
    """

    def __init__(self, log_file: Path, grace: float = _GRACE, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._grace, self._clock = log_file, grace, clock
        self._offset = 0
        self._tail = b""
        self._dead_since: float | None = None
        self._unplaced = False
        self._grown_at, self._memory_was_low = clock(), False
        self.prompts_were_lost = False

    def look(self) -> None:
        """Read the new part of the log."""
        if not self._path.is_file():
            return
        with open_foreign(self._path) as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        if new:
            self._grown_at = self._clock()
        lines, end, rest = (self._tail + new).rpartition(b"\n")
        self._tail = rest[-_LONGEST_LINE:]
        text = (lines + end).decode(errors="replace")
        self.prompts_were_lost |= _PROMPT_LOST in text
        self._memory_was_low |= bool(_MEMORY_KILLED.search(text))
        if self._dead_since is None and any(sign.search(text) for sign in (_ENGINE_DEAD, _WORKER_KILLED, _NO_NODE)):
            self._dead_since = self._clock()
            self._unplaced = not (_ENGINE_DEAD.search(text) or _WORKER_KILLED.search(text))

    def check_alive(self) -> None:
        """Read the new part of the log of a training that has not ended.

        Raises:
            WorkerDiedError: vLLM's engine or a worker has been dead, or Ray has had no node for an actor, for longer than the
                grace; or nothing has been logged for half an hour after Ray killed workers to save memory.
        """
        self.look()
        now = self._clock()
        dead = self._dead_since is not None and now - self._dead_since > self._grace
        if dead or (self._memory_was_low and now - self._grown_at > _SILENCE):
            raise WorkerDiedError(_UNPLACED if self._unplaced else _DIED)


def failure(log_file: Path) -> str:
    """Return why a training failed: the first and the last error in its log, with explanations of known ones.

    Control characters of the log are escaped.
    """
    with open_foreign(log_file) as file:
        text = file.read().decode(errors="replace")
    lines = [_RAY_PREFIX.sub("", _RAY_PREFIX.sub("", line)) for line in text.splitlines()]
    # Harmless errors of libraries have no traceback; one that ended a process has.
    first = next((i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), 0)
    found = [
        line.strip() for line in lines[first:] if _EXCEPTION.match(line.strip()) and not _WRAPPER.match(line.strip())
    ]
    # The first error is the cause; Ray repeats it, and the last one is often only a consequence.
    errors = [found[0], *(f"(finally: {line})" for line in found[-1:] if line != found[0])] if found else []
    explained = [f"({hint})" for hint in _hints(text, log_file.parent)]
    return escape_controls("\n".join([*errors, *explained] or lines[-5:])) or "no output"


def _hints(text: str, run_dir: Path) -> list[str]:
    """Return an explanation with a fix for each known cause in the log."""
    hints = []
    free = shutil.disk_usage(run_dir).free
    room = f"{free >> 20} MiB are free at {run_dir}; free some space"
    if _CANNOT_WRITE.search(text):
        hints.append(f"a file could not be written; {room}")
    elif free < _FULL:  # the log itself may end before the error
        hints.append(f"only {room}")
    memory = _LITTLE_MEMORY.search(text)
    if memory or _MEMORY_KILLED.search(text):
        used = f" ({memory['used']})" if memory else ""
        hints.append(
            f"Ray ended workers because this machine had little memory left{used}: close other programs, or give "
            "the run less to do at once (micro-batches, max_num_seqs, VLLM_CPU_KVCACHE_SPACE)"
        )
    if unplaced := _NO_NODE.search(text):
        hints.append(
            f"Ray has no node with {unplaced['request']} for one process: give it more CPUs (ray_kwargs.ray_init.num_cpus) and "
            "GPUs, or start the cluster's nodes with more"
        )
    if _ENGINE_DEAD.search(text):
        hints.append(
            "vLLM's engine process died: an error of its own above, killed from outside, or by the system for its memory"
        )
    if _WORKER_KILLED.search(text):
        names = {match["pid"]: match["name"] for match in _SPEAKER.finditer(text)}
        died = {names[pid]: None for pid in _DEAD_PID.findall(text) if pid in names}
        name = f" ({', '.join(died)})" if died else ""
        hints.append(f"a worker process{name} died: killed from outside, or by the system for its memory (see dmesg)")
    return hints
