"""Read a training's log while it is written, and detect dead processes; `postmortem.py` explains a failure afterwards."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from verl_trgrpo.common.foreign import open_foreign


class Event(NamedTuple):
    """What a process of Ray or veRL says when something happens to it, or that it alone can see.

    Responses and the output of rewards stand in the same log, behind the names of their own processes.

    Args:
        name: for this module.
        speakers: names that Ray puts in front of its lines: classes of actors, or parts of Ray; "" for the driver's own.
        message: from the beginning of the line; its groups ``pid``, ``request`` and ``used`` say more.
        child: part of the name of the speaker's child process that has ended, "" where `pid` is that process.
    """

    name: str
    speakers: tuple[str, ...]
    message: re.Pattern[str]
    child: str = ""


ENGINE_DEAD, WORKER_KILLED, NO_NODE = "engine dead", "worker killed", "no node"
MEMORY_KILLED, LITTLE_MEMORY, PROMPT_LOST = "killed for memory", "little memory", "prompt lost"
STEP = "step"
EVENTS = (
    # vLLM's server logs it when its engine process has ended; lines of the engine itself have a name of vLLM's in front.
    Event(ENGINE_DEAD, ("vLLMHttpServer",), child="EngineCor", message=re.compile(
        r"(?:\(EngineCore\w* pid=\d+\) )?(?:ERROR [^]\n]*\] |ERROR )?vllm\.[\w.]*\bEngineDeadError: EngineCore encountered")),
    Event(WORKER_KILLED, ("raylet",), re.compile(
        r".*?A worker died or was killed while executing a task(?:.*? Worker PID: (?P<pid>\d{1,9}))?")),
    # An actor that no node is large enough for, and for which Ray waits forever; it prints a dict or defaultdict.
    Event(NO_NODE, ("autoscaler",), re.compile(
        r".*?No available node types can fulfill resource request [^{]{0,99}(?P<request>\{[^}]{0,999}\})")),
    # The workers may have been idle: what decides is whether the training goes on.
    Event(MEMORY_KILLED, ("raylet",), re.compile(r".*?killed due to memory pressure \(OOM\)")),
    # Ray kills workers itself before the kernel does.
    Event(LITTLE_MEMORY, ("", "TaskRunnerV1"), re.compile(
        r"ray\.exceptions\.OutOfMemoryError: .*?killed due to the node running low on memory\."
        r"(?:.*? was (?P<used>[\d.]+GB used / [\d.]+GB) limit)?")),
    # veRL drops a prompt whose rollout or reward raised, and trains on the others.
    Event(PROMPT_LOST, ("AgentLoopWorkerTQ", "AgentLoopWorker"), re.compile(
        r"(?:ERROR:[\d ,:-]{1,40}:)?Error in _run_prompt")),
    # The metrics of a step: what was said before did not end the training.
    Event(STEP, ("", "TaskRunner", "TaskRunnerV1"), re.compile(r"step:\d{1,9} - ")),
)  # fmt: skip
_BY_SPEAKER = {
    speaker: [event for event in EVENTS if speaker in event.speakers] for event in EVENTS for speaker in event.speakers
}
# What Ray puts in front of a line: in yellow for its own parts, in another color for an actor, which can choose its name by
# printing ":actor_name:NAME". Ray draws its progress bars with "\r" and spaces in front of that.
_LINE = re.compile(
    r"(?:\r *)*(?P<color>\x1b\[\d+m)?\((?P<name>\w+)(?: pid=(?P<pid>\d{1,9})| \+\w+)?(?P<ip>, ip=[^)]*)?\)(?:\x1b\[0m)? "
    "(?P<said>.*)",
    re.DOTALL,
)
_YELLOW, _OF_RAY = "\x1b[33m", ("raylet", "autoscaler")
# Seconds without a line in the log, after a sign of a dead process that may be alive, until the training counts as dead.
_SILENCE = 1800.0
# Seconds in which veRL ends by itself if a process dies during a rollout. Between two steps it waits forever: the ranks
# send weights that no process receives. No actor of a training is restarted.
_GRACE = 30.0
# Bytes of a line that are looked at, and of the log that are read at a time.
_LONGEST_LINE, _BLOCK = 1 << 16, 1 << 18

_UNPLACED = "Ray cannot place the processes of the run, and would wait forever"
_DIED = "veRL went on waiting for a process that had died"


class Said(NamedTuple):
    """A line: name and process number in front, "" and None for the driver's own lines; whether from another node; the rest."""

    name: str
    pid: int | None
    elsewhere: bool
    text: str


def parse_line(line: str) -> Said:
    """Split a line of the log into what Ray has put in front and what was said."""
    match = _LINE.match(line)
    if match is None:
        return Said("", None, False, line)
    name = match["name"]
    if name in _OF_RAY and (match["pid"] or match["color"] not in (None, _YELLOW)):
        name = "an actor of that name"
    return Said(name, int(match["pid"]) if match["pid"] else None, bool(match["ip"]), match["said"])


def events_in(said: Said) -> Iterator[tuple[Event, re.Match[str]]]:
    """Yield the events that a line reports, if its speaker can have them."""
    for event in _BY_SPEAKER.get(said.name, ()):
        if match := event.message.match(said.text):
            yield event, match


class Lines:
    """The lines of a growing file, of each its beginning, so that neither the file's size nor a line's matters."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._begun = path, 0, b""

    def read(self, last: bool = False) -> Iterator[str]:
        """Yield the lines that have ended since the last call; with `last` also one that has not."""
        with open_foreign(self._path) as file:
            file.seek(self._offset)
            while block := file.read(_BLOCK):
                self._offset += len(block)
                *ended, rest = block.split(b"\n")
                for line in ended:
                    yield (self._begun + line)[:_LONGEST_LINE].decode(errors="replace")
                    self._begun = b""
                self._begun = (self._begun + rest)[:_LONGEST_LINE]
        if last and self._begun:
            yield self._begun.decode(errors="replace")

    @property
    def size(self) -> int:
        """Return the number of bytes read so far."""
        return self._offset


class WorkerDiedError(RuntimeError):
    """Report a training that waits for one of its processes, which has died or cannot start."""


class LogWatch:
    """Watch a growing log for dead processes, actors that Ray cannot place, and lost prompts.

    Args:
        log_file: may not exist yet.
        has_lost: see :meth:`~verl_trgrpo.launch.process.TrainingProcess.has_lost`; by default the log alone decides.
        grace: seconds between the first message about a process and :class:`WorkerDiedError`.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        log_file: Path,
        has_lost: Callable[[int, str, str], bool] = lambda *_: True,
        grace: float = _GRACE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._has_lost, self._grace, self._clock = log_file, has_lost, grace, clock
        self._lines = Lines(log_file)
        # Signs of a death: when each was first seen, by what `has_lost` is asked, None for what needs no question.
        self._signs: dict[tuple[int, str, str] | None, float] = {}
        self._grown_at, self._doubtful = clock(), False
        self.prompts_were_lost = False

    def look(self) -> None:
        """Read the new part of the log."""
        if not self._path.is_file():
            return
        before = self._lines.size
        for line in self._lines.read():
            said = parse_line(line)
            for event, match in events_in(said):
                self._note(event, match, said)
        if self._lines.size > before:
            self._grown_at = self._clock()

    def _note(self, event: Event, match: re.Match[str], said: Said) -> None:
        if event.name == PROMPT_LOST:
            self.prompts_were_lost = True
        elif event.name in (ENGINE_DEAD, WORKER_KILLED):
            actor, pid = (said.name, said.pid) if event.child else ("", match["pid"])
            if pid is not None and said.elsewhere:
                self._signs.setdefault((0, "", ""), self._clock())
            elif pid is not None:
                self._signs.setdefault((int(pid), actor, event.child), self._clock())
            self._doubtful |= pid is None
        elif event.name == NO_NODE:
            self._signs.setdefault(None, self._clock())
        self._doubtful |= event.name == MEMORY_KILLED

    def check_alive(self) -> None:
        """Read the new part of the log of a training that has not ended.

        Raises:
            WorkerDiedError: vLLM's engine or a worker has been dead, or Ray has had no node for an actor, for longer than the
                grace; or nothing has been logged for half an hour after Ray killed workers to save memory, or after the log
                spoke of a process that `has_lost` does not confirm.
        """
        self.look()
        now = self._clock()
        for sign in [sign for sign, since in self._signs.items() if now - since > self._grace]:
            if sign is None:
                raise WorkerDiedError(_UNPLACED)
            if not sign[0] or self._has_lost(*sign):
                raise WorkerDiedError(_DIED)
            del self._signs[sign]
            self._doubtful = True
        if self._doubtful and now - self._grown_at > _SILENCE:
            raise WorkerDiedError(_DIED)
