"""Restrict the current process to computing: no file is written, no connection opened, no process started.

On Linux (x86-64, AArch64) a seccomp filter lets an allow-list of system calls through and opens files for reading alone;
all others fail with EPERM, also for root. Elsewhere, and where the kernel refuses the filter, only the resource limits hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import sys
from pathlib import Path

# System calls of a computation, by number on (x86-64, AArch64); None where the machine has no such call.
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "pread64": (17, 67),
    "readv": (19, 65), "writev": (20, 66), "access": (21, None), "sched_yield": (24, 124), "mremap": (25, 216),
    "madvise": (28, 233), "nanosleep": (35, 101), "setitimer": (38, 103), "getpid": (39, 172), "exit": (60, 93),
    "getcwd": (79, 17), "readlink": (89, None), "gettimeofday": (96, 169), "getrusage": (98, 165), "sysinfo": (99, 179),
    "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175), "getegid": (108, 177),
    "sigaltstack": (131, 132), "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "getdents64": (217, 61), "restart_syscall": (219, 128), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "newfstatat": (262, 79), "readlinkat": (267, 78),
    "faccessat": (269, 48), "ppoll": (271, 73), "set_robust_list": (273, 99), "getrandom": (318, 278),
    "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293),
}  # fmt: skip
_OPENAT = (257, 56)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_WRITING = (
    os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (getattr(os, "O_TMPFILE", 0) & ~os.O_DIRECTORY)
)
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # 1 is EPERM
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 22, 38, 2


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("if_true", ctypes.c_ubyte),
        ("if_false", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def restrict(memory: int) -> str:
    """Give up everything but computing, for good; the open files stay open.

    Args:
        memory: bytes of address space, beyond what the process has now.

    Returns:
        Why the kernel refuses to filter system calls, so that only the limits of memory, time and file size hold;
        empty where they are filtered.
    """
    with contextlib.suppress(OSError):  # not Linux
        memory += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    column, architecture = _ARCHITECTURES.get(platform.machine(), (None, 0))
    if sys.platform != "linux" or column is None or sys.maxsize < 2**32:
        return f"there is none for {sys.platform} on {platform.machine()}"
    return _filter_system_calls(column, architecture)


def _filter_system_calls(column: int, architecture: int) -> str:
    """Install the filter for an architecture; return why the kernel refuses it, empty if it does not."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE),  # numbers of the x32 interface
    ]  # fmt: skip
    for numbers in _ALLOWED.values():
        if (number := numbers[column]) is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    program += [
        (_EQUAL, 1, 0, _OPENAT[column]), (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _THIRD_ARGUMENT), (_ANY_BIT, 0, 1, _WRITING), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    instructions = (_Instruction * len(program))(*(_Instruction(*line) for line in program))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    refused = prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(
        _PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(_Program(len(program), instructions)), 0, 0
    )
    return os.strerror(ctypes.get_errno()) if refused else ""
