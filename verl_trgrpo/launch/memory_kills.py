"""Ask the kernel how many processes it has ended for their memory."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path


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
