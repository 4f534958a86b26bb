"""Functions that a judge is asked to call: what a policy's text could run if a verifier evaluated it."""

import contextlib
import ctypes
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

_count = 0


def call(action, *arguments):
    """Do one thing that an honest verifier would not do, and return 1 if it worked."""
    return ACTIONS[action](*arguments)


def _add(a, b):
    return a + b


def _count_calls():
    global _count
    _count += 1
    return _count


def _write(path):
    Path(path).write_text("x")
    return 1


def _create(path):
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY))
    return 1


def _delete(path):
    Path(path).unlink()
    return 1


def _connect():
    socket.create_connection(("127.0.0.1", 9), timeout=1)
    return 1


def _start():
    return int(subprocess.run(["true"], check=True).returncode == 0)


def _kill(pid):
    os.kill(pid, 9)
    return 1


def _forge():
    """Send a false reply through every connection of the process, and then the true one."""
    reply = b"[77, 0.0]"
    for descriptor in range(64):
        with contextlib.suppress(OSError):
            os.write(descriptor, struct.pack("!i", len(reply)) + reply)
    return 1


def _half_a_reply():
    """Begin a reply, and do not end it."""
    for descriptor in range(64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\x00\x00")
    signal.setitimer(signal.ITIMER_PROF, 0)
    time.sleep(10_000)


def _work(seconds):
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass
    return 1


def _count_connections():
    return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir())


def _raise_limits():
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return 1


def _raise():
    raise ArithmeticError("no value")


ACTIONS = {
    "add": _add,
    "count": _count_calls,
    "write": _write,
    "create": _create,
    "delete": _delete,
    "connect": _connect,
    "start": _start,
    "fork": lambda: int(os.fork() >= 0),
    "kill": _kill,
    "raise limits": _raise_limits,
    "raise": _raise,
    "exit": lambda: os._exit(0),
    "crash": lambda: ctypes.string_at(0) and 1,
    "loop": lambda: [None for _ in iter(int, 1)],
    "tower": lambda: len(str(9**9**9)),
    "memory": lambda: len(bytearray(8 << 30)),
    "connections": _count_connections,
    "forge": _forge,
    "half a reply": _half_a_reply,
    "work": _work,
    "text": lambda: "1.0",
    "NaN": lambda: float("nan"),
    "huge": lambda: 10**400,
}
