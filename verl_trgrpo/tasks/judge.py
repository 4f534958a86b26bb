"""Run code that a policy's answer reaches in a process of its own, bounded in time, memory and rights.

Each process that scores starts a judge at its first question: a new program, not a fork, so threads, CUDA and Ray in the caller
do not matter, and a daemonic process may have one. The judge imports the libraries once and forks a worker, which gives up all
rights but computing (see `sandbox`) and answers. The worker's CPU time for a question is limited by a timer whose signal ends it,
whatever code it is in; it is replaced then, and after `RENEW_AFTER` answers. The caller reads JSON, so an answer that has taken
over a worker can lie about that worker's answers, but reaches neither the caller nor the next worker.

CPU time does not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from verl_trgrpo.tasks.sandbox import restrict

MEMORY_LIMIT = 2 << 30
WALL_SECONDS = 60.0
"""Time to wait for the start or, beyond 20 limits of CPU time, for a reply; only a starved machine needs it."""
RENEW_AFTER = 256
_MAX_REPLY = 1000
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]

logger = logging.getLogger(__name__)


class Judge:
    """One judge process for one function; safe to use from several threads, which wait for one another.

    Args:
        function: ``module:function``. It takes JSON values and returns a bool or number; its module may have a function
            ``warm_up``, which is called once.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self.forget()
        # A forked child begins without a process: the parent keeps the one it has.
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without a process, leaving the present one to whoever else has it."""
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, *arguments: Any, limit: float) -> tuple[float | None, float]:
        """Return the value of the function, None if it raised, and the seconds of CPU time that it took.

        Args:
            arguments: JSON values.
            limit: seconds of CPU time.

        Raises:
            TimeoutError: it takes more than `limit`, or too much memory, or ends its process.
            RuntimeError: the judge cannot be started; the message has its reason.
        """
        question = json.dumps([arguments, limit]).encode()
        with self._lock:
            for _ in range(2):
                connection = self._connection or self._start()
                try:
                    connection.send_bytes(question)
                    if not connection.poll(WALL_SECONDS + 20 * limit):
                        raise TimeoutError("the judge of answers gives no reply")
                    reply = json.loads(connection.recv_bytes(_MAX_REPLY))
                except BaseException as error:
                    self.close()  # after Ctrl-C too: the reply that is under way must not meet the next question
                    if not isinstance(error, (EOFError, ConnectionError)):
                        raise  # otherwise somebody ended it: start another, once
                else:
                    if reply is None:
                        raise TimeoutError(f"judging an answer takes more than {limit:g} s or too much memory")
                    return reply[0], reply[1]
        raise RuntimeError("the judge of answers ends while it works; is the machine out of memory?")

    def close(self) -> None:
        """End the judge; the next question starts another."""
        with self._lock:
            if self.process:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process = self._connection = None

    def _start(self) -> Connection:
        self.close()
        search_path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        connection, other_end = Pipe()
        with other_end:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, self.function],
                stdin=other_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Sympy's order of terms follows Python's hashes; a fixed seed makes verdicts repeatable. A safe path keeps
                # files of the working directory from standing in for the libraries (Python 3.11 and later).
                env=os.environ
                | {"PYTHONPATH": search_path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
                | {"OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # its worker ends with it, and the terminal's Ctrl-C reaches neither
            )
        reason, unfiltered = "it is not ready in time", ""
        try:
            if connection.poll(WALL_SECONDS):
                reason, unfiltered = json.loads(connection.recv_bytes())
        except EOFError:
            reason = "it ends at once"
        if reason:
            self.close()
            raise RuntimeError(
                f"the judge of answers cannot start: {reason}; are the extras rewards and puzzles installed?"
            )
        if unfiltered:
            _warn_unfiltered(unfiltered)
        self._connection = connection
        return connection


@cache
def _warn_unfiltered(reason: str) -> None:
    """Warn once in this process that workers keep the rights which the filter of system calls would take."""
    logger.warning(
        "the kernel refuses the seccomp filter of the processes that judge answers (%s): only their limits of memory, "
        "time and file size hold, so code that an answer reaches could open connections or delete files; allow prctl "
        "where a container forbids it",
        reason,
    )


class _Worker:
    """A forked process that answers questions with the function's values, without rights.

    Its first message, before it has seen an answer, is `unfiltered`: why its system calls are not filtered, empty if
    they are.
    """

    def __init__(self, function: Any, caller: Connection) -> None:
        self.connection, other_end = Pipe()
        self.answered = 0
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
        try:
            self.connection.send_bytes(question)
            if self.connection.poll(WALL_SECONDS / 2 + 10 * limit):
                value, seconds = json.loads(self.connection.recv_bytes(_MAX_REPLY))
                if value is None or isinstance(value, (bool, int, float)):
                    reply = [value and float(value), max(float(seconds), 0.0)]
                    return json.dumps(reply, allow_nan=False).encode()
        except (EOFError, OSError, ValueError, TypeError, OverflowError):
            pass  # among others NaN or infinity, which no function returns
        self.answered = RENEW_AFTER
        return b"null"

    def end(self) -> None:
        """End the process."""
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _work(function: Any, connection: Connection) -> None:
    """Answer questions until the connection closes. Out of memory, the worker ends early."""
    connection.send_bytes(json.dumps(restrict(MEMORY_LIMIT, int(WALL_SECONDS))).encode())
    while True:
        try:
            arguments, limit = json.loads(connection.recv_bytes())
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


def main(connection: Connection, name: str) -> None:
    """Keep a worker until the caller is gone.

    The first message is a pair: why the worker could not start, and why it is not filtered; empty where it did and is.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(2000)
    try:
        module_name, _, function_name = name.partition(":")
        module = importlib.import_module(module_name)
        function = getattr(module, function_name)
        getattr(module, "warm_up", lambda: None)()
    except Exception as error:
        connection.send_bytes(json.dumps([f"{type(error).__name__}: {error}", ""]).encode())
        return
    worker = _Worker(function, connection)
    connection.send_bytes(json.dumps(["", worker.unfiltered]).encode())
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            question = connection.recv_bytes()
            if worker.answered >= RENEW_AFTER:
                worker.end()
                worker = _Worker(function, connection)
            connection.send_bytes(worker.answer(question, json.loads(question)[1]))
    worker.end()


if __name__ == "__main__":
    to_caller = Connection(os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # a worker must not have the caller's connection, also not as its standard input
    main(to_caller, sys.argv[1])
