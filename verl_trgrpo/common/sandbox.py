"""Run code that foreign input reaches in a process of its own, bounded in time, memory and rights.

Answers of a policy (`judge.processes`), and chat templates and tokenizers of strangers (`data.prompts`) go this way. A
sandbox is a new program, not a fork, so threads, CUDA and Ray in the caller do not matter, and a daemonic process may have one.
It imports the libraries once and forks a worker, which gives up all rights but computing (see `seccomp`) and answers. The
worker's CPU time for a question is limited by a timer whose signal ends it, whatever code it is in; it is replaced then, and
after `renew_after` answers. The caller reads JSON, so input that has taken over a worker can lie about that worker's answers,
but reaches neither the caller nor the next worker. A sandbox ends with its caller.

CPU time does not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from verl_trgrpo.common.import_path import large_imports, same_path
from verl_trgrpo.common.seccomp import restrict

MEMORY_LIMIT = 2 << 30
WALL_SECONDS = 60.0
"""Time to wait, beyond 20 limits of CPU time, for a reply; only a starved machine needs it."""
RENEW_AFTER = 256
_MOST_NOTE = 10_000
_START_SECONDS = 600.0
_STARTS = 3

logger = logging.getLogger(__name__)


class Sandbox:
    """One process for one function; safe to use from several threads, which wait for one another.

    Args:
        function: ``module:function``. It takes and returns JSON values; its module may have a function ``warm_up``, which is
            called once, before any input is seen.
        most_reply: bytes of a reply; a longer one counts as too much memory.
        renew_after: answers of one worker; None to replace it only when it ends.
    """

    def __init__(self, function: str, most_reply: int = 1000, renew_after: int | None = RENEW_AFTER) -> None:
        self.function, self._most_reply, self._renew_after = function, most_reply, renew_after
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._begun: Connection | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, *arguments: Any, limit: float, renew: bool = False) -> tuple[Any, float]:
        """Return the value of the function, None if it raised, and the seconds of CPU time that it took.

        Args:
            arguments: JSON values.
            limit: seconds of CPU time.
            renew: another worker answers the next question, because this one may take over its worker.

        Raises:
            TimeoutError: it takes more than `limit`, or too much memory, or ends its process.
            RuntimeError: the process cannot be started; the message has its reason.
        """
        question = json.dumps([arguments, limit, renew]).encode()
        with self._lock:
            for _ in range(_STARTS):
                try:
                    connection = self._connection or self._start()
                    connection.send_bytes(question)
                    reply = json.loads(_receive(connection, WALL_SECONDS + 20 * limit, self._most_reply))
                except BaseException as error:
                    self.close()  # after Ctrl-C too: the reply that is under way must not meet the next question
                    if not isinstance(error, (EOFError, ConnectionError)):
                        raise
                    continue  # somebody ended it: start another
                if reply is None:
                    raise TimeoutError(f"it takes more than {limit:g} s or too much memory")
                return reply[0], reply[1]
        raise RuntimeError(
            f"the process for {self.function} ends at once or while it works, again and again; is the machine out of memory?"
        )

    def close(self) -> None:
        """End the process; the next question starts another."""
        with self._lock:
            if self.process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = self._connection = self._begun = None

    def begin(self) -> None:
        """Start the process without waiting for it, so that its imports go on beside the work of this one."""
        with self._lock:
            if self.process is None:
                self._begun = self._launch()

    def _launch(self) -> Connection:
        renew_after = str(self._renew_after or sys.maxsize)
        connection, other_end = Pipe()
        with other_end:
            self.process = subprocess.Popen(
                [*same_path(f"from {__name__} import run; run()"), self.function, str(self._most_reply), renew_after],
                stdin=other_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Sympy's order of terms follows Python's hashes; a fixed seed makes verdicts repeatable.
                env=os.environ
                | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
                # A worker may start no threads.
                | {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
                start_new_session=True,  # its worker ends with it, and the terminal's Ctrl-C reaches neither
            )
        return connection

    def _start(self) -> Connection:
        connection = self._begun
        if connection is None:
            self.close()
            connection = self._launch()
        self._begun = None
        reason, unfiltered = "it is not ready in time", ""
        with contextlib.suppress(TimeoutError):
            reason, unfiltered = json.loads(_receive(connection, _START_SECONDS, _MOST_NOTE))
        if reason:
            self.close()
            raise RuntimeError(
                f"the process for {self.function} cannot start: {reason}; are the packages installed that it needs (doctor)?"
            )
        if unfiltered:
            _warn_unfiltered(unfiltered)
        self._connection = connection
        return connection


def _receive(connection: Connection, seconds: float, most: int, other: Connection | None = None) -> bytearray:
    """Return a message that is there as a whole within some seconds.

    Args:
        connection: where it comes from.
        seconds: of the clock.
        most: bytes of the message.
        other: a connection that has to stay silent.

    Raises:
        TimeoutError: it is not there.
        EOFError: one of the connections is closed, or the message is longer than `most`.
    """
    deadline, found, length = time.monotonic() + seconds, bytearray(), 4
    while len(found) < length:
        ready = wait([connection, *([other] if other else [])], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("the sandbox gives no reply")
        piece = b"" if other in ready else os.read(connection.fileno(), min(length - len(found), 1 << 20))
        if not piece:
            raise EOFError
        found += piece
        if len(found) == length == 4:
            length += struct.unpack("!i", found)[0]  # as multiprocessing writes it
            if not 4 < length <= 4 + most:
                raise EOFError
    return found[4:]


@cache
def _warn_unfiltered(reason: str) -> None:
    """Warn once in this process that workers keep the rights which the filter of system calls would take."""
    logger.warning(
        "the kernel refuses the seccomp filter of the processes for foreign input (%s): only their limits of memory, "
        "time and file size hold, so code that the input reaches could open connections or delete files; allow prctl "
        "where a container forbids it",
        reason,
    )


class _Worker:
    """A forked process that answers questions with the function's values, without rights.

    Its first message, before it has seen an answer, is `unfiltered`: why its system calls are not filtered, empty if
    they are.
    """

    def __init__(self, function: Any, caller: Connection, most_reply: int) -> None:
        self.connection, other_end = Pipe()
        self.caller, self.most_reply = caller, most_reply
        self.answered, self.seconds, self.broken = 0, 0.0, False
        self.pid = os.fork()
        if self.pid == 0:
            try:
                caller.close()
                self.connection.close()
                _work(function, other_end)
            finally:
                os._exit(1)
        other_end.close()
        self.unfiltered = json.loads(self.connection.recv_bytes())

    def answer(self, question: bytes, limit: float) -> bytes:
        """Return the reply, ``null`` if the worker died or gives none."""
        self.answered += 1
        if hasattr(resource, "prlimit"):  # should the worker stop the timer that ends it
            most = int(self.seconds + 2 * limit) + 2
            resource.prlimit(self.pid, resource.RLIMIT_CPU, (most, resource.prlimit(self.pid, resource.RLIMIT_CPU)[1]))
        try:
            self.connection.send_bytes(question)
            most_seconds = WALL_SECONDS / 2 + 10 * limit
            value, seconds = json.loads(_receive(self.connection, most_seconds, self.most_reply, self.caller))
            self.seconds += min(max(float(seconds), 0.0), limit)
            return json.dumps([value, max(float(seconds), 0.0)], allow_nan=False).encode()
        except (TimeoutError, EOFError, OSError, ValueError, TypeError, RecursionError, OverflowError):
            pass  # among others NaN or infinity, which no function returns
        self.broken = True
        return b"null"

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _work(function: Any, connection: Connection) -> None:
    """Answer questions until the connection closes. Out of memory, the worker ends early."""
    connection.send_bytes(json.dumps(restrict(MEMORY_LIMIT)).encode())
    while True:
        try:
            arguments, limit, _ = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            value = function(*arguments)
        except MemoryError:
            raise
        except Exception:  # the libraries raise many kinds for what they do not understand
            value = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send_bytes(json.dumps([value, time.process_time() - start]).encode())


def main(connection: Connection, name: str, most_reply: int, renew_after: int) -> None:
    """Keep a worker until the caller is gone.

    The first message is a pair: why the worker could not start, and why it is not filtered; empty where it did and is.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(2000)
    try:
        with large_imports():
            module_name, _, function_name = name.partition(":")
            module = importlib.import_module(module_name)
            function = getattr(module, function_name)
            getattr(module, "warm_up", lambda: None)()
    except Exception as error:
        connection.send_bytes(json.dumps([f"{type(error).__name__}: {error}", ""]).encode())
        return
    gc.freeze()  # what was imported stays, and is shared with the workers
    worker = _Worker(function, connection, most_reply)
    connection.send_bytes(json.dumps(["", worker.unfiltered]).encode())
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            question = connection.recv_bytes()
            _, limit, renew = json.loads(question)
            if worker.broken or worker.answered >= renew_after:
                worker.end()
                worker = _Worker(function, connection, most_reply)
            reply = worker.answer(question, limit)
            worker.broken |= renew
            connection.send_bytes(reply)
    worker.end()


def run() -> None:
    """Begin as the process of a sandbox, whose caller is behind the standard input."""
    to_caller = Connection(os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # a worker must not have the caller's connection, also not as its standard input
    main(to_caller, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
