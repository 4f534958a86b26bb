"""Read what a process said last before it ended.

A process that raises leaves a traceback and a message, often of several lines; one that ends in native code leaves words of its
runtime (`_NATIVE`).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from verl_trgrpo.memory.crash import PHASES

# What vLLM's logger puts in front of each line of an error.
LOGGED = re.compile(r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^]]{1,80}\] ?")
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# What ends a traceback, whatever the exception's name.
_RAISED = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
# Lines that Ray and Hydra put around an error, and errors that follow from the end of another process.
WRAPPER = re.compile(
    r"ray\.exceptions\.(?:RayError|RayTaskError|RayActorError|Actor\w{1,20}Error|WorkerCrashedError|OwnerDiedError|ObjectLostError)\b|"
    r"hydra\.errors\.|Exception raised in creation task"
)
TRACEBACK = "Traceback (most recent call last)"
# What Python and its libraries say in front of the traceback of an error that ends neither the process nor the run.
_SURVIVED = re.compile(
    r"Exception in thread |Exception ignored in|Task exception was never retrieved|--- Logging error ---|"
    r"exception calling callback"
)
# What the standard library's `logging` puts in front of an error that was caught and logged.
_CAUGHT = re.compile(
    r"(?:WARNING|ERROR|CRITICAL):[\w.]{1,200}:|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.\d]{0,10} - [\w.]{1,200} - (?:WARNING|ERROR|CRITICAL) - "
)
_CHAINED = re.compile(r"During handling of|The above exception")
_FRAME = re.compile(r' *File "([^"\n]{1,300})", line (\d{1,9})(?: in|, in) (\w{1,80}|<\w{1,20}>)')
# What begins a line that is not the rest of a message.
_OTHER = re.compile(
    r"Traceback \(|During handling of|The above exception|Set the environment variable|Error executing job|step:|"
    r"Unhandled error \(suppress|Top \d{1,4} memory users|PID\s{1,9}MEM\(GB\)|\[?\d{4}-\d\d-\d\d|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|:job_id:|:actor_name:|:task_name:|\*\*\* |\[rank"
)
# The last words of a process that the C++ runtime, Python's fault handler, the shell or a handler of signals ends, as these write
# them: whole lines, or a beginning that ordinary lines do not have.
_DEATH = (
    r"terminate called (?:after throwing an instance of '|(?:without an active exception|recursively)\s*$)|"
    r"Fatal Python error: (?:(?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating[- ]point exception|"
    r"Stack overflow|deallocating None)\b|[A-Za-z_]\w{0,80}: \S)|\*\*\* SIG[A-Z]{2,5}(?: \(@| received)|"
    r"(?:Bus error|Segmentation fault|Aborted)(?: \([\w ]{1,40}\))?\s*$"
)
# And those of torch.distributed and of Ray's C++, a fatal line of glog, absl or torch, an assertion of a kernel, and a compiler.
# Those of slurm, which ends all, begin alike.
_NATIVE = re.compile(
    rf"(?P<death>{_DEATH})|"
    r"!{3,20} (?:Segfault|Fatal error) encountered|"
    r"(?:\[rank\d{1,6}\]:)?(?:\[[^]\n]{1,120}\] ?){0,2}\[[^]\n]{0,80}Rank \d{1,6}\] (?:Watchdog caught|Process group watchdog)|"
    r"\[[^]\n]{0,60} [CE] \d{1,9} \d{1,9}\] .{0,200}?(?:Check failed|Unhandled exception: |"
    r"Failed to register worker to Raylet|Failed to connect to GCS within|have not registered within the timeout)|"
    r"[^\s:]{1,300}:\d{1,9}: \w{1,80}: block: \[[\d,]{1,30}\], thread: \[[\d,]{1,30}\] Assertion|"
    r"[^\s:]{1,300}:\d{1,9}:\d{1,9}: fatal error: |"
    r"(?:\[rank\d{1,6}\]:)?\[?F\d{3,4} \d\d:\d\d:[\d.]{2,20}(?: {1,9}\d{1,9})? [^\s:]{1,300}:\d{1,9}\] |"
    r"slurmstepd\S{0,300}: (?:error: )?(?:\*\*\* (?:JOB|STEP) .{1,300}? CANCELLED AT |Detected \d{1,9} oom[-_]kill event)"
)

_MOST_LINES, _LONGEST_MESSAGE, _LONGEST_PART = 12, 4000, 1000


@dataclass
class Message:
    """What a process said last before it ended: the lines of an exception, or of native code.

    Args:
        name, pid: of the process, as in :class:`~verl_trgrpo.launch.log.Said`.
        lines: the whole message, as far as `_MOST_LINES`.
        place: file, line and function that raised, where the traceback has them.
        functions: those of the traceback, outermost first.
        native: whether the process ended in native code.
        death: whether it says that the process itself ends, which a process that it had started may have said.
        survived: whether the process says that the error did not end it.
        step: how many steps had been logged before.
    """

    name: str
    pid: int | None
    lines: list[str]
    place: str = ""
    functions: tuple[str, ...] = ()
    native: bool = False
    step: int = 0
    survived: bool = False
    death: bool = False

    @property
    def text(self) -> str:
        """Return the message; one without words with the place that raised it."""
        lines = [line[:_LONGEST_PART] for line in self.lines]
        while lines and not lines[-1].strip():
            lines.pop()
        bare = len(lines) == 1 and not lines[0].partition(":")[2].strip()
        return "\n  ".join([*map(str.rstrip, lines), *([self.place] if bare and self.place else [])])[:_LONGEST_MESSAGE]

    def is_recent(self, steps: int) -> bool:
        """Return whether it can be a cause after so many steps: no step follows it, or one that was logged late."""
        return self.step >= steps - self.native

    @property
    def phase(self) -> str:
        """Return the part of a step, a key of `PHASES`, "" where the traceback does not say."""
        for function in (*reversed(self.functions), self.name, *self.lines):
            for phase, known in PHASES.items():
                if known.search(function):
                    return phase
        return ""


@dataclass
class Process:
    """The lines of one process so far: the message that it is in, and the traceback before."""

    name: str
    pid: int | None
    latest: Message | None = None
    own: Message | None = None
    is_open: bool = False
    in_frames: bool = False
    survived: bool = False
    place: str = ""
    functions: deque[str] = field(default_factory=lambda: deque(maxlen=60))
    ending: deque[str] = field(default_factory=lambda: deque(maxlen=3))

    def add(self, line: str, step: int) -> Message | None:
        """Read a line, after so many steps; return the message that it begins."""
        if line.strip():
            self.ending.append(line)
        inside = self.is_open and self.latest and self.latest.native  # where a line can look like an exception
        raised = _RAISED.match(line) if self.in_frames else None
        begins = (not inside and (raised or _EXCEPTION.match(line.strip()))) or _NATIVE.match(line)
        self.in_frames = bool(_FRAME.match(line)) or (self.in_frames and line[:1].isspace())
        if self.is_open and self.latest and not begins and not _OTHER.match(line):
            self.latest.lines.append(line.rstrip())
            self.is_open = len(self.latest.lines) < (_MOST_LINES // 2 if self.latest.native else _MOST_LINES)
            return None
        self.is_open = bool(begins)
        if line.startswith(TRACEBACK):
            chained = self.survived and any(map(_CHAINED.match, self.ending))
            caught = len(self.ending) > 1 and _CAUGHT.match(self.ending[-2])
            self.survived = chained or bool(caught) or any(map(_SURVIVED.search, self.ending))
            self.functions.clear()
            self.place = ""
        elif frame := _FRAME.match(line):
            self.functions.append(frame[3])
            self.place = f"raised in {frame[1]}, line {frame[2]}, {frame[3]}"
        if not begins:
            return None
        native = begins.re is _NATIVE
        survived = self.survived and bool(raised) and not native
        self.latest = Message(
            self.name,
            self.pid,
            [line.strip()],
            self.place,
            tuple(self.functions),
            native,
            step,
            survived,
            native and bool(begins["death"]),
        )
        # What ends in native code says several.
        if not survived and not (self.own and self.own.native and self.own.is_recent(step)):
            self.own = self.latest
        return self.latest
