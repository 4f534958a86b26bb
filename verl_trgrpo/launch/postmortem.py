"""Explain why a training failed: what the process that failed first said last, what ended it, and what to do.

The log has the lines of all processes. What a process says last (`last_words.py`) is a cause only if no step was logged
behind it. What the driver itself raises is the cause, unless it reports the end of another process: the error that came before
may be one that the run survived, as that of a prompt or of a thread. A process that is killed says nothing, and the kernel's
counters (`memory_kills.py`) say whether that was for its memory.
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
from verl_trgrpo.launch.last_words import LOGGED, TRACEBACK, WRAPPER, Message, Process
from verl_trgrpo.launch.log import (
    ENGINE_DEAD,
    LITTLE_MEMORY,
    MEMORY_KILLED,
    NO_NODE,
    PROMPT_LOST,
    STEP,
    WORKER_KILLED,
    Lines,
    events_in,
    parse_line,
)
from verl_trgrpo.launch.memory_kills import MemoryKills
from verl_trgrpo.launch.remedies import remedies, shared_memory
from verl_trgrpo.memory.crash import block_meaning, refused_bytes, remedy_of
from verl_trgrpo.runs.run_directory import read_config

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_WAITED = re.compile(
    r"Rank (\d{1,6})\] Watchdog caught collective operation timeout: Work\w{1,20}\((?:.{0,200}?OpType=(\w{1,40}))?"
)
_NCCL_WARNED = re.compile(r"[^\n]{0,200}NCCL WARN (.{1,500})")
# Hydra says it before the traceback that ends the driver.
_ENDS = "Error executing job with overrides"
# What veRL raises if all prompts of a step were lost.
_NO_PROMPT_LEFT = "no materializable trajectories"
# Errors that report the end or the silence of another process.
_OF_ANOTHER = re.compile(
    rf"{_NO_PROMPT_LEFT}|root cause|error messages? above|Connection (?:closed|reset|refused|aborted)|Broken pipe|"
    r"[Dd]isconnected|[Cc]annot connect|[Tt]imed? ?out|Timeout|[NH]CCL|[Gg]loo"
)
# Paths and keys, whose words say nothing of a process.
_NAMES = re.compile(r"\S{0,300}/\S{0,300}|\b[a-z_]{1,40}(?:\.[a-z_]{1,40}){1,9}\b")
_ENDED_BY = re.compile(r"The process receives a (SIG[A-Z]{2,5})")
# Errors of torch.save and of the system on a full disk.
_CANNOT_WRITE = re.compile(r"No space left on device|Disk quota exceeded|unexpected pos \d+ vs \d+|iostream error")
_SHARED = re.compile(r"/dev/shm")
# A disk with less free space counts as full.
_FULL = 64 << 20
_LONGEST_PART = 1000
# Most processes whose words are kept.
_MOST_PROCESSES = 2000

_NO_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError: CUDA|NPU out of memory|CUDA [Ee]rror: out of memory|"
    r"Free memory on device .{0,200}less than desired|No available memory for the cache blocks|"
    r"CUBLAS_STATUS_ALLOC_FAILED"
)


@dataclass
class _Signs:
    """What was said since the last step that was logged: messages, events of Ray by name, and what explains them.

    Args:
        first, native, last: messages, of native code in the second case alone.
        raised: what the driver raised.
        before: a message that came before the cause, of an error that the run may have survived.
        lost: processes that have lost prompts, which veRL survives.
        traced: whether a message had a traceback; harmless errors of libraries have none, one that ended a process has.
        died: numbers of processes, in order.
        waited: by rank, for which collective operation.
        nccl, ended_by: the reason of NCCL, a signal; "" without any.
    """

    first: Message | None = None
    native: Message | None = None
    last: Message | None = None
    raised: Message | None = None
    before: Message | None = None
    lost: set[tuple[str, int | None]] = field(default_factory=set)
    traced: bool = False
    events: dict[str, re.Match[str]] = field(default_factory=dict)
    died: dict[int, None] = field(default_factory=dict)
    waited: dict[int, str] = field(default_factory=dict)
    nccl: str = ""
    ended_by: str = ""

    def add(self, message: Message) -> None:
        """Add a message; wrappers of other errors are left out before."""
        if message.survived or ((message.name, message.pid) in self.lost and not message.native):
            self.before = self.before or message
            return
        harmless = self.first and not self.traced and not self.first.native and message.native
        self.first = message if harmless or self.first is None else self.first
        if message.native:
            self.native = self.native or message
            return
        self.last = message
        if not message.name and message.functions:
            self.raised = self.raised or message

    def is_empty(self) -> bool:
        """Return whether nothing was said that can have ended the run."""
        return not (self.first or self.native or self.events.keys() - {PROMPT_LOST})

    def decide(self) -> None:
        """Find the cause, when all has been read: what the driver raised, if it is one of its own, then what was said first."""
        if self.is_empty() or (self.raised and _NO_PROMPT_LEFT in self.raised.text):
            self.first, self.before = self.before or self.first, None
        self.first = self.first or self.native
        if self.raised and self.raised is not self.first and not _OF_ANOTHER.search(_NAMES.sub("", self.raised.text)):
            self.before, self.first = self.first, self.raised
        if self.before and self.first and self.before.text == self.first.text:
            self.before = None
        none_reported = not self.died and self.events.keys().isdisjoint((WORKER_KILLED, ENGINE_DEAD))
        if self.native and self.native.death and self.raised is self.first and none_reported:
            self.before = None if self.before is self.native else self.before
            self.native = None  # of a process of the user's, such as one that runs a program of a response

    @property
    def cannot_write(self) -> str:
        """Return the line of a message, of those that can be the cause, that says that a file could not be written."""
        lines = [line for each in (self.first, self.native, self.last) if each for line in each.lines]
        return next(filter(_CANNOT_WRITE.search, lines), "")


class PostMortem:
    """Read a whole log once; `text` explains the failure.

    Args:
        log_file: of the training.
        code: exit code of its process; None where it was ended from here.
        kills: made before the training.
    """

    def __init__(self, log_file: Path, code: int | None = None, kills: MemoryKills | None = None) -> None:
        self._run_dir, self._code, self._kills = log_file.parent, code, kills
        self._processes: dict[tuple[str, int | None], Process] = {}
        self._ending: deque[str] = deque(maxlen=5)
        self._signs, self._steps = _Signs(), 0
        before = _Signs()
        for raw in Lines(log_file).read(last=True):
            steps = self._steps
            self._read(raw)
            before, self._signs = (self._signs, _Signs()) if self._steps > steps else (before, self._signs)
        if self._signs.is_empty() and not before.is_empty():  # the step was logged late
            self._signs = before
        self._signs.native = self._signs.native or before.native
        self._signs.decide()

    def _read(self, raw: str) -> None:
        said, signs = parse_line(raw), self._signs
        for event, match in events_in(said):
            if event.name == STEP:
                self._steps += 1
                continue
            if event.name == PROMPT_LOST:
                signs.lost.add((said.name, said.pid))
            signs.events.setdefault(event.name, match)
            if event.name == WORKER_KILLED:
                signs.ended_by = signs.ended_by or ((ended := _ENDED_BY.search(said.text)) and ended[1]) or ""
                if match["pid"] and len(signs.died) < _MOST_PROCESSES:
                    signs.died[int(match["pid"])] = None
        line = _COLOR.sub("", said.text)
        name, pid = said.name, said.pid
        if (inner := parse_line(line)).pid is not None:  # of a process that an actor has started
            name, pid, line = inner.name, inner.pid, inner.text
        line = LOGGED.sub("", line, count=1) if LOGGED.match(line) else line
        self._ending.append(line)
        if line.startswith(_ENDS):
            signs.raised = None
        if waited := _WAITED.search(line[:_LONGEST_PART]):
            signs.waited.setdefault(int(waited[1]), waited[2] or "")
        if warned := _NCCL_WARNED.match(line[:_LONGEST_PART]):
            signs.nccl = warned[1]
        if (name, pid) in self._processes or len(self._processes) < _MOST_PROCESSES:
            self._note(self._processes.setdefault((name, pid), Process(name, pid)), line)

    def _note(self, process: Process, line: str) -> None:
        signs = self._signs
        if not signs.traced and line.startswith(TRACEBACK):
            signs.first = signs.first if signs.first and signs.first.native else None
            signs.last, signs.traced = None, True
        message = process.add(line, self._steps)
        if message and (message.native or not WRAPPER.match(message.lines[0])):
            signs.add(message)

    def text(self) -> str:
        """Return the cause, what came last, and explanations of what is known, in lines; control characters are escaped."""
        cause, native, last = self._signs.first, self._signs.native, self._signs.last
        told = [cause.text] if cause else []
        if (before := self._signs.before) and before is not native:
            told.append(f"(before, {_who(before.name)} said: {before.text})")
        if native and native is not cause:
            told.append(f"({_who(native.name)} said: {native.text})")
        if last and cause and last.text != cause.text:
            told.append(f"(finally: {last.text})")
        hints = [f"({hint})" for hint in (*self._machine_hints(), *self._death_hints(), *self._known_hints())]
        return escape_controls("\n".join([*told, *hints] or self._ending)) or "no output"

    def _machine_hints(self) -> Iterator[str]:
        """Yield what the machine lacked: room on a disk, memory, a node."""
        free = shutil.disk_usage(self._run_dir).free
        room = f"{free >> 20} MiB are free at {self._run_dir}; free some space, and run the same command again"
        if _SHARED.search(self._signs.cannot_write + self._signs.nccl):
            yield shared_memory()
        elif self._signs.cannot_write:
            yield f"a file could not be written; {room}"
        elif free < _FULL:  # the log itself may end before the error
            yield f"the disk may be full: {room}"
        if LITTLE_MEMORY in self._signs.events or MEMORY_KILLED in self._signs.events:
            used = self._signs.events[LITTLE_MEMORY]["used"] if LITTLE_MEMORY in self._signs.events else None
            yield (
                f"Ray ended workers because this machine had little memory left{f' ({used})' if used else ''}: close other "
                "programs, or give the run less to do at once (micro-batches, max_num_seqs, VLLM_CPU_KVCACHE_SPACE)"
            )
        if NO_NODE in self._signs.events:
            yield (
                f"Ray has no node with {self._signs.events[NO_NODE]['request']} for one process; give Ray more CPUs "
                "(ray_kwargs.ray_init.num_cpus) and GPUs, or start the cluster's nodes with more"
            )

    def _death_hints(self) -> Iterator[str]:
        """Yield for each process that is known to have ended why it did."""
        if ENGINE_DEAD in self._signs.events:
            engines = [each for each in self._processes.values() if each.name.startswith("EngineCore")]
            yield f"vLLM's engine process died: {self._reason(engines, 'EngineCore')}"
        if WORKER_KILLED in self._signs.events:
            dead = [each for pid in self._signs.died for each in self._of(pid)]
            names = ", ".join(dict.fromkeys(each.name for each in dead))
            pids = ",".join(map(str, [*self._signs.died][:3])) or "PID"
            yield f"a worker process{f' ({names})' if names else ''} died: {self._reason(dead, pids)}"
        if self._code is not None and self._code < 0:
            yield f"the process of the trainer was ended by {_signal_name(-self._code)}: {self._reason([], 'driver', True)}"

    def _of(self, pid: int) -> list[Process]:
        return [each for (_, number), each in self._processes.items() if number == pid]

    def _reason(self, dead: list[Process], which: str, by_signal: bool = False) -> str:
        """Return why processes ended: their own words, the kernel's count of kills, or where to look."""
        recent = [own for each in dead if (own := each.own) and own.is_recent(self._steps)]
        if words := [own for own in recent if own.native or not WRAPPER.match(own.lines[0])]:
            said = words[0] in (self._signs.first, self._signs.native)
            return "its error is above" if said else f"it said: {words[0].text}"
        if self._signs.ended_by:
            return f"{self._signs.ended_by} ended it: a scheduler, `ray stop`, or whoever sent the signal"
        if LITTLE_MEMORY in self._signs.events or MEMORY_KILLED in self._signs.events:
            return "Ray ended it for memory, or another process of the run"
        counted = self._kills.text() if self._kills else ""
        if counted and " no process" not in counted:
            return counted
        if self._signs.first:
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
        signs = self._signs
        messages = [
            each for each in (signs.first, signs.native, None if signs.first is signs.raised else signs.last) if each
        ]
        text = "\n".join(each.text for each in messages)
        if short := next((each for each in messages if _NO_MEMORY.search(each.text)), None):
            where, what = f" ({short.phase})" if short.phase else "", self._block(short.text)
            yield f"the card has too little memory{where}{what and f' for {what}'}: {remedy_of(short.phase)}"
        if waited := signs.waited:
            ranks, what = sorted(waited), next(iter(waited.values()))
            yield (
                f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))} waited in {what or 'a collective operation'} for "
                "the others: one that is not named is late or lost, so its own last lines have the cause"
            )
        elif "NCCL" in text and signs.nccl:
            yield f"NCCL's own reason: {signs.nccl}"
        yield from remedies(text)


def _who(name: str) -> str:
    return name or "the driver"


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def failure(log_file: Path, code: int | None = None, kills: MemoryKills | None = None) -> str:
    """Return why a training failed, see :class:`PostMortem`."""
    return PostMortem(log_file, code, kills).text()
