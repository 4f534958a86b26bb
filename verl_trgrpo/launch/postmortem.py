"""Explain why a training failed: what the process that failed first said last, what ended it, and what to do.

The log has the lines of all processes. A process that raises leaves a traceback and a message, often of several lines; one that
ends in native code leaves words of its runtime (`_NATIVE`); one that is killed leaves nothing, and the kernel's counters
(:class:`MemoryKills`) say whether that was for its memory.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from verl_trgrpo.common.text import escape_controls
from verl_trgrpo.launch.log import (
    ENGINE_DEAD,
    LITTLE_MEMORY,
    MEMORY_KILLED,
    NO_NODE,
    WORKER_KILLED,
    Lines,
    events_in,
    parse_line,
)
from verl_trgrpo.memory.crash import PHASES, block_meaning, refused_bytes, remedy_of
from verl_trgrpo.runs.run_directory import read_config

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
# What vLLM's logger puts in front of each line of an error.
_LOGGED = re.compile(r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^]]{1,80}\] ?")
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# What ends a traceback, whatever the exception's name.
_RAISED = re.compile(r"[A-Za-z_][\w.]{0,200}(?::|$)")
# Lines that Ray and Hydra put around an error, and errors that follow from the end of another process.
_WRAPPER = re.compile(
    r"ray\.exceptions\.(?:RayError|RayTaskError|RayActorError|Actor\w{1,20}Error|WorkerCrashedError|OwnerDiedError|ObjectLostError)\b|"
    r"hydra\.errors\.|Exception raised in creation task"
)
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r' *File "([^"\n]{1,300})", line (\d{1,9})(?: in|, in) (\w{1,80}|<\w{1,20}>)')
# What begins a line that is not the rest of a message.
_OTHER = re.compile(
    r"Traceback \(|During handling of|The above exception|Set the environment variable|Error executing job|step:|"
    r"Unhandled error \(suppress|Top \d{1,4} memory users|PID\s{1,9}MEM\(GB\)|\[?\d{4}-\d\d-\d\d|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|:job_id:|:actor_name:|:task_name:|\*\*\* |\[rank"
)
# The last words of a process that ends in native code: its runtime, torch.distributed, Ray's C++ and Python's fault handler, an
# assertion of a kernel, and a compiler.
_NATIVE = re.compile(
    r"terminate called |Fatal Python error: |\*\*\* SIG[A-Z]{2,5}(?: \(@| received)|(?:Bus error|Segmentation fault|Aborted)\b|"
    r"(?:\[rank\d{1,6}\]:)?(?:\[[^]\n]{1,120}\] ?){0,2}\[[^]\n]{0,80}Rank \d{1,6}\] (?:Watchdog caught|Process group watchdog)|"
    r"\[[^]\n]{0,60} [CE] \d{1,9} \d{1,9}\] .{0,200}?(?:Check failed|Unhandled exception: )|"
    r"[^\s:]{1,300}:\d{1,9}: \w{1,80}: block: \[[\d,]{1,30}\], thread: \[[\d,]{1,30}\] Assertion|"
    r"[^\s:]{1,300}:\d{1,9}:\d{1,9}: fatal error: "
)
_SIGNAL = re.compile(
    r"\*\*\* (SIG[A-Z]{2,5})|Fatal Python error: (Segmentation fault|Bus error|Aborted|Illegal instruction)"
)
_NAMES = {"Segmentation fault": "SIGSEGV", "Bus error": "SIGBUS", "Aborted": "SIGABRT", "Illegal instruction": "SIGILL"}
_WAITED = re.compile(
    r"Rank (\d{1,6})\] Watchdog caught collective operation timeout: WorkNCCL\((?:.{0,200}?OpType=(\w{1,40}))?"
)
_NCCL_WARNED = re.compile(r"[^\n]{0,200}NCCL WARN (.{1,500})")
_ENDED_BY = re.compile(r"The process receives a (SIG[A-Z]{2,5})")
# Errors of torch.save and of the system on a full disk.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
_SHARED = re.compile(r"/dev/shm")
# A disk with less free space counts as full.
_FULL = 64 << 20
_MOST_LINES, _LONGEST_MESSAGE, _LONGEST_PART = 12, 4000, 1000
# Most processes whose words are kept.
_MOST_PROCESSES = 2000

_NO_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError: CUDA|NPU out of memory|CUDA [Ee]rror: out of memory|"
    r"Free memory on device .{0,200}less than desired|No available memory for the cache blocks|"
    r"CUBLAS_STATUS_ALLOC_FAILED"
)


class MemoryKills:
    """How many processes the kernel has ended for their memory since this object was made: in this cgroup, on this machine."""

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._group, self._machine = self._counts()

    def text(self) -> str:
        """Return in words what the kernel has counted, "" where its counters cannot be read."""
        group, machine = self._counts()
        if group is not None and group > (self._group or 0):
            return f"the kernel ended {group - (self._group or 0)} of them for memory: its cgroup reached the limit (oom_kill)"
        if machine is not None and machine > (self._machine or 0):
            return "the kernel ended a process of this machine for memory meanwhile (oom_kill); `dmesg` says which"
        return "" if group is machine is None else "the kernel ended no process for its memory meanwhile (oom_kill)"

    def _counts(self) -> tuple[int | None, int | None]:
        own = _lines(self._proc / "self" / "cgroup")
        paths = [line.split(":", 2)[2].lstrip("/") for line in own if re.match(r"0::|\d+:memory:", line)]
        places = [self._cgroups / kind / path for kind in ("", "memory") for path in (*paths, "")]
        files = [place / name for place in places for name in ("memory.events", "memory.oom_control")]
        counts = [count for file in files if (count := _counted(file)) is not None]
        return (counts[0] if counts else None), _counted(self._proc / "vmstat")


def _counted(path: Path) -> int | None:
    """Return the number behind ``oom_kill`` in a file of the kernel, None without one."""
    found = (number for name, _, number in (line.partition(" ") for line in _lines(path)) if name == "oom_kill")
    return next((int(number) for number in found if number.isdecimal()), None)


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").splitlines()
    return []


@dataclass
class Message:
    """What a process said last before it ended: the lines of an exception, or of native code.

    Args:
        name, pid: of the process, as in :class:`~verl_trgrpo.launch.log.Said`.
        lines: the whole message, as far as `_MOST_LINES`.
        place: file, line and function that raised, where the traceback has them.
        functions: those of the traceback, outermost first.
        native: whether the process ended in native code.
    """

    name: str
    pid: int | None
    lines: list[str]
    place: str = ""
    functions: tuple[str, ...] = ()
    native: bool = False

    @property
    def text(self) -> str:
        """Return the message; one without words with the place that raised it."""
        lines = [line[:_LONGEST_PART] for line in self.lines]
        while lines and not lines[-1].strip():
            lines.pop()
        bare = len(lines) == 1 and not lines[0].partition(":")[2].strip()
        return "\n  ".join([*map(str.rstrip, lines), *([self.place] if bare and self.place else [])])[:_LONGEST_MESSAGE]

    @property
    def phase(self) -> str:
        """Return the part of a step, a key of `PHASES`, "" where the traceback does not say."""
        for function in (*reversed(self.functions), self.name, *self.lines):
            for phase, known in PHASES.items():
                if known.search(function):
                    return phase
        return ""


@dataclass
class _Process:
    """The lines of one process so far: the message that it is in, and the traceback before."""

    name: str
    pid: int | None
    latest: Message | None = None
    own: Message | None = None
    is_open: bool = False
    in_frames: bool = False
    place: str = ""
    functions: deque[str] = field(default_factory=lambda: deque(maxlen=60))
    ending: deque[str] = field(default_factory=lambda: deque(maxlen=3))

    def add(self, line: str) -> Message | None:
        """Read a line; return the message that it begins."""
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
        if line.startswith(_TRACEBACK):
            self.functions.clear()
            self.place = ""
        elif frame := _FRAME.match(line):
            self.functions.append(frame[3])
            self.place = f"raised in {frame[1]}, line {frame[2]}, {frame[3]}"
        if not begins:
            return None
        native = begins.re is _NATIVE
        self.latest = Message(self.name, self.pid, [line.strip()], self.place, tuple(self.functions), native)
        self.own = self.own if self.own and self.own.native else self.latest  # what ends in native code says several
        return self.latest


class PostMortem:
    """Read a whole log once; `text` explains the failure.

    Args:
        log_file: of the training.
        code: exit code of its process; None where it was ended from here.
        kills: made before the training.
    """

    def __init__(self, log_file: Path, code: int | None = None, kills: MemoryKills | None = None) -> None:
        self._run_dir, self._code, self._kills = log_file.parent, code, kills
        self._processes: dict[tuple[str, int | None], _Process] = {}
        self._events: dict[str, re.Match[str]] = {}
        self._died: dict[int, None] = {}
        self._ending: deque[str] = deque(maxlen=5)
        self._first: Message | None = None
        self._native: Message | None = None
        self._last: Message | None = None
        self._waited: dict[int, str] = {}
        self._nccl, self._cannot_write, self._ended_by, self._traced = "", "", "", False
        for raw in Lines(log_file).read(last=True):
            self._read(raw)

    def _read(self, raw: str) -> None:
        said = parse_line(raw)
        for event, match in events_in(said):
            self._events.setdefault(event.name, match)
            if event.name == WORKER_KILLED:
                self._ended_by = self._ended_by or ((ended := _ENDED_BY.search(said.text)) and ended[1]) or ""
                if match["pid"] and len(self._died) < _MOST_PROCESSES:
                    self._died[int(match["pid"])] = None
        line = _COLOR.sub("", said.text)
        name, pid = said.name, said.pid
        if (inner := parse_line(line)).pid is not None:  # of a process that an actor has started
            name, pid, line = inner.name, inner.pid, inner.text
        line = _LOGGED.sub("", line, count=1) if _LOGGED.match(line) else line
        self._ending.append(line)
        if waited := _WAITED.search(line[:_LONGEST_PART]):
            self._waited.setdefault(int(waited[1]), waited[2] or "")
        if warned := _NCCL_WARNED.match(line[:_LONGEST_PART]):
            self._nccl = warned[1]
        if (name, pid) in self._processes or len(self._processes) < _MOST_PROCESSES:
            self._note(self._processes.setdefault((name, pid), _Process(name, pid)), line)

    def _note(self, process: _Process, line: str) -> None:
        if not self._traced and line.startswith(_TRACEBACK):
            # Harmless errors of libraries have no traceback; one that ended a process has.
            self._first = self._first if self._first and self._first.native else None
            self._last, self._traced = None, True
        message = process.add(line)
        if (message or process.is_open) and _CANNOT_WRITE.search(line):
            self._cannot_write = line
        if message is None or (not message.native and _WRAPPER.match(message.lines[0])):
            return
        if message.native:
            self._native = self._native or message
        else:
            self._last = message
        harmless = self._first and not self._traced and not self._first.native and message.native
        self._first = message if harmless or self._first is None else self._first

    def text(self) -> str:
        """Return the cause, what came last, and explanations of what is known, in lines; control characters are escaped."""
        cause = self._first
        told = [cause.text] if cause else []
        if self._native and self._native is not cause:
            told.append(f"({_who(self._native.name)} said: {self._native.text})")
        if self._last and cause and self._last.text != cause.text:
            told.append(f"(finally: {self._last.text})")
        hints = [f"({hint})" for hint in (*self._machine_hints(), *self._death_hints(), *self._known_hints())]
        return escape_controls("\n".join([*told, *hints] or self._ending)) or "no output"

    def _machine_hints(self) -> Iterator[str]:
        """Yield what the machine lacked: room on a disk, memory, a node."""
        free = shutil.disk_usage(self._run_dir).free
        room = f"{free >> 20} MiB are free at {self._run_dir}; free some space, and run the same command again"
        if _SHARED.search(self._cannot_write + self._nccl):
            yield _shared_memory()
        elif self._cannot_write:
            yield f"a file could not be written; {room}"
        elif free < _FULL:  # the log itself may end before the error
            yield f"the disk may be full: {room}"
        if LITTLE_MEMORY in self._events or MEMORY_KILLED in self._events:
            used = self._events[LITTLE_MEMORY]["used"] if LITTLE_MEMORY in self._events else None
            yield (
                f"Ray ended workers because this machine had little memory left{f' ({used})' if used else ''}: close other "
                "programs, or give the run less to do at once (micro-batches, max_num_seqs, VLLM_CPU_KVCACHE_SPACE)"
            )
        if NO_NODE in self._events:
            yield (
                f"Ray has no node with {self._events[NO_NODE]['request']} for one process; give Ray more CPUs "
                "(ray_kwargs.ray_init.num_cpus) and GPUs, or start the cluster's nodes with more"
            )

    def _death_hints(self) -> Iterator[str]:
        """Yield for each process that is known to have ended why it did."""
        if ENGINE_DEAD in self._events:
            engines = [each for each in self._processes.values() if each.name.startswith("EngineCore")]
            yield f"vLLM's engine process died: {self._reason(engines, 'EngineCore')}"
        if WORKER_KILLED in self._events:
            dead = [each for pid in self._died for each in self._of(pid)]
            names = ", ".join(dict.fromkeys(each.name for each in dead))
            pids = ",".join(map(str, [*self._died][:3])) or "PID"
            yield f"a worker process{f' ({names})' if names else ''} died: {self._reason(dead, pids)}"
        if self._code is not None and self._code < 0:
            yield f"the process of the trainer was ended by {_signal_name(-self._code)}: {self._reason([], 'driver', True)}"

    def _of(self, pid: int) -> list[_Process]:
        return [each for (_, number), each in self._processes.items() if number == pid]

    def _reason(self, dead: list[_Process], which: str, by_signal: bool = False) -> str:
        """Return why processes ended: their own words, the kernel's count of kills, or where to look."""
        words = [own for each in dead if (own := each.own) and (own.native or not _WRAPPER.match(own.lines[0]))]
        if words:
            own = words[0]
            return "its error is above" if own in (self._first, self._native) else f"it said: {own.text}"
        if self._ended_by:
            return f"{self._ended_by} ended it: a scheduler, `ray stop`, or whoever sent the signal"
        if LITTLE_MEMORY in self._events or MEMORY_KILLED in self._events:
            return "Ray ended it for memory, or another process of the run"
        counted = self._kills.text() if self._kills else ""
        if counted and " no process" not in counted:
            return counted
        if self._first or self._native:
            return "it said nothing; the error above may be the cause" + (f"; {counted}" if counted else "")
        ending = " / ".join(line.strip()[:200] for each in dead[:1] for line in each.ending)
        look = (
            "the kernel's record (`dmesg`)"
            if by_signal
            else (
                f"Ray's log of it (/tmp/ray/session_latest/logs/*{which}*.err, raylet.out) and the kernel's record (`dmesg`)"
            )
        )
        last = f"; its last lines: {ending}" if ending else ""
        return f"why is not known{f' ({counted})' if counted else ''}; look in {look}{last}"

    def _block(self, text: str) -> str:
        """Return what a block that the card did not have would have held, "" where message and model do not say."""
        size = refused_bytes(text)
        if size is None:
            return ""
        from verl_trgrpo.memory.run import model_config
        from verl_trgrpo.memory.shape import UnknownModelError

        with contextlib.suppress(ValueError, UnknownModelError, OSError):
            if config := read_config(self._run_dir):
                model = model_config(config)
                words, width = model.get("vocab_size"), model.get("hidden_size")
                if isinstance(words, int) and isinstance(width, int) and words > 0:
                    return block_meaning(size, words, width)
        return ""

    def _known_hints(self) -> Iterator[str]:
        """Yield remedies of known causes."""
        messages = [each for each in (self._first, self._native, self._last) if each]
        text = "\n".join(each.text for each in messages)
        if short := next((each for each in messages if _NO_MEMORY.search(each.text)), None):
            where, what = f" ({short.phase})" if short.phase else "", self._block(short.text)
            yield f"the card has too little memory{where}{what and f' for {what}'}: {remedy_of(short.phase)}"
        if self._waited:
            ranks, what = sorted(self._waited), next(iter(self._waited.values()))
            yield (
                f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))} waited in {what or 'a collective operation'} for "
                "the others: one that is not named is late or lost, so its own last lines have the cause"
            )
        elif "NCCL" in text and self._nccl:
            yield f"NCCL's own reason: {self._nccl}"
        for pattern, hint in _KNOWN:
            if pattern.search(text):
                yield hint() if callable(hint) else hint


def _shared_memory() -> str:
    """Say how much shared memory there is."""
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage("/dev/shm")
        return (
            f"shared memory was full or is small: {usage.free >> 20} of {usage.total >> 20} MiB of /dev/shm are free now; "
            "start the container with more (--shm-size=64g, or --ipc=host)"
        )
    return "shared memory (/dev/shm) is full or small; start the container with more (--shm-size=64g, or --ipc=host)"


def _who(name: str) -> str:
    return name or "the driver"


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


_KNOWN = (
    (
        re.compile(r"Resource temporarily unavailable|can't start new thread|pthread_create failed"),
        "the system allows no more processes or threads: raise `ulimit -u` (or pids.max of the cgroup), or give Ray fewer CPUs "
        "(ray_kwargs.ray_init.num_cpus)",
    ),
    (
        re.compile(r"Too many open files"),
        "raise `ulimit -n` before the command, to 65536; Ray opens files for each CPU (ray_kwargs.ray_init.num_cpus)",
    ),
    (
        re.compile(r"EADDRINUSE|[Aa]ddress already in use"),
        "another process has the port, perhaps one of an earlier run: `ss -ltnp` says which; end that process",
    ),
    (
        re.compile(r"undefined symbol|cannot open shared object file"),
        "the named package was built for another version of torch or CUDA: install its build for those that are here",
    ),
    (
        re.compile(r"srcIndex < srcSelectDimSize|index out of bounds"),
        "an index is outside of its tensor, most often a token id beyond the embedding: compare the tokenizer with the model's "
        "vocab_size",
    ),
    (
        re.compile(r"probability tensor contains either"),
        "the policy's probabilities are not finite: `verl-trgrpo health` says since when",
    ),
    (re.compile(r"Python\.h"), "the compiler lacks the headers of this Python: install python3-dev"),
    (re.compile(r"SIGBUS|Bus error"), _shared_memory),
    (
        re.compile(r"SIGSEGV|Segmentation fault|illegal memory access"),
        "native code read memory that is not its own: versions of torch, vLLM and the driver that do not fit, or a fault of a "
        "kernel; CUDA_LAUNCH_BLOCKING=1 makes the traceback name the operation",
    ),
    (
        re.compile(r"uncorrectable ECC error|CUDA error: ECC"),
        "the card itself is at fault: `nvidia-smi -q -d ECC,PAGE_RETIREMENT`; reset the card, or train on others "
        "(CUDA_VISIBLE_DEVICES)",
    ),
    (
        re.compile(r"Connection closed by peer|Connection reset by peer|Broken pipe"),
        "another rank ended first and closed the connection: its own last lines have the cause",
    ),
)


def failure(log_file: Path, code: int | None = None, kills: MemoryKills | None = None) -> str:
    """Return why a training failed, see :class:`PostMortem`."""
    return PostMortem(log_file, code, kills).text()
