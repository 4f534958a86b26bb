"""Run code that a policy's answer reaches in a process of its own, bounded in time, memory and rights.

Each process that scores starts judges as it needs them, one for each question that it asks at a time: new programs,
not forks, so threads, CUDA and Ray in the caller
do not matter, and a daemonic process may have them. A judge imports the libraries once and forks a worker, which gives up all
rights but computing (see `sandbox`) and answers. The worker's CPU time for a question is limited by a timer whose signal ends it,
whatever code it is in; it is replaced then, and after `RENEW_AFTER` answers. The caller reads JSON, so an answer that has taken
over a worker can lie about that worker's answers, but reaches neither the caller nor the next worker. A judge ends with its
caller.

CPU time does not depend on how busy the machine is.
"""

from __future__ import annotations

import contextlib
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
from collections import OrderedDict
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from verl_trgrpo.tasks.sandbox import restrict

MEMORY_LIMIT = 2 << 30
WALL_SECONDS = 60.0
"""Time to wait for the start or, beyond 20 limits of CPU time, for a reply; only a starved machine needs it."""
RENEW_AFTER = 256
MAX_JUDGES = 4
"""Judges of one function in a process, at most one for each core."""
_MAX_VERDICTS = 4096
_STARTS = 3
_MAX_REPLY = 1000
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]

logger = logging.getLogger(__name__)


class Judges:
    """Judge processes for one function; safe to use from several threads, of which as many are served at a time as
    there are judges.

    Args:
        function: as for `Judge`.
        keep: keep verdicts by their arguments, where no argument can take over a worker: responses of a group often agree.
    """

    def __init__(self, function: str, *, keep: bool = False) -> None:
        self.function, self.keep = function, keep
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without processes, leaving the present ones to whoever else has them."""
        count = min(
            MAX_JUDGES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        self.judges = [Judge(self.function) for _ in range(count)]
        self._busy: set[Judge] = set()
        self._changed = threading.Condition()
        self._verdicts: OrderedDict[tuple[Any, ...], float | None] = OrderedDict()

    def ask(self, *arguments: Any, limit: float, renew: bool = False) -> tuple[float | None, float]:
        """Return the value of the function, None if it raised, and the seconds of CPU time that it took, 0 for a
        verdict that was kept.

        Args:
            arguments: JSON values.
            limit: seconds of CPU time.
            renew: another worker answers the next question, because this one may take over its worker.

        Raises:
            TimeoutError: it takes more than `limit`, or too much memory, or ends its process.
            RuntimeError: the judge cannot be started; the message has its reason.
        """
        with self._changed:
            if self.keep and arguments in self._verdicts:
                self._verdicts.move_to_end(arguments)
                return self._verdicts[arguments], 0.0
            self._changed.wait_for(lambda: len(self._busy) < len(self.judges))
            judge = next(each for each in self.judges if each not in self._busy)  # others start if the first is busy
            self._busy.add(judge)
        try:
            value, seconds = judge.ask(*arguments, limit=limit, renew=renew)
        finally:
            with self._changed:
                self._busy.discard(judge)
                self._changed.notify()
        if self.keep:
            with self._changed:
                self._verdicts[arguments] = value
                while len(self._verdicts) > _MAX_VERDICTS:
                    self._verdicts.popitem(last=False)
        return value, seconds

    def close(self) -> None:
        """End the judges and forget their verdicts; the next question starts another."""
        with self._changed:
            self._verdicts.clear()
        for judge in self.judges:
            judge.close()


class Judge:
    """One judge process for one function; safe to use from several threads, which wait for one another.

    Args:
        function: ``module:function``. It takes JSON values and returns a bool or number; its module may have a function
            ``warm_up``, which is called once.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, *arguments: Any, limit: float, renew: bool = False) -> tuple[float | None, float]:
        """Answer a question as `Judges.ask` does."""
        question = json.dumps([arguments, limit, renew]).encode()
        with self._lock:
            for _ in range(_STARTS):
                try:
                    connection = self._connection or self._start()
                    connection.send_bytes(question)
                    reply = json.loads(_receive(connection, WALL_SECONDS + 20 * limit))
                except BaseException as error:
                    self.close()  # after Ctrl-C too: the reply that is under way must not meet the next question
                    if not isinstance(error, (EOFError, ConnectionError)):
                        raise
                    continue  # somebody ended it: start another
                if reply is None:
                    raise TimeoutError(f"judging an answer takes more than {limit:g} s or too much memory")
                return reply[0], reply[1]
        raise RuntimeError(
            "the judge of answers ends at once or while it works, again and again; is the machine out of memory?"
        )

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
        with contextlib.suppress(TimeoutError):
            reason, unfiltered = json.loads(_receive(connection, WALL_SECONDS))
        if reason:
            self.close()
            raise RuntimeError(
                f"the judge of answers cannot start: {reason}; are the extras rewards and puzzles installed?"
            )
        if unfiltered:
            _warn_unfiltered(unfiltered)
        self._connection = connection
        return connection


def _receive(connection: Connection, seconds: float, other: Connection | None = None) -> bytes:
    """Return a message that is there as a whole within some seconds.

    Args:
        connection: where it comes from.
        seconds: of the clock.
        other: a connection that has to stay silent.

    Raises:
        TimeoutError: it is not there.
        EOFError: one of the connections is closed, or the message is longer than a reply.
    """
    deadline, found, length = time.monotonic() + seconds, b"", 4
    while len(found) < length:
        ready = wait([connection, *([other] if other else [])], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("the judge of answers gives no reply")
        piece = b"" if other in ready else os.read(connection.fileno(), length - len(found))
        if not piece:
            raise EOFError
        found += piece
        if len(found) == length == 4:
            length += struct.unpack("!i", found)[0]  # as multiprocessing writes it
            if not 4 < length <= 4 + _MAX_REPLY:
                raise EOFError
    return found[4:]


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
        self.caller = caller
        self.answered, self.seconds = 0, 0.0
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
            value, seconds = json.loads(_receive(self.connection, WALL_SECONDS / 2 + 10 * limit, self.caller))
            if value is None or isinstance(value, (bool, int, float)):
                self.seconds += min(max(float(seconds), 0.0), limit)
                reply = [value and float(value), max(float(seconds), 0.0)]
                return json.dumps(reply, allow_nan=False).encode()
        except (TimeoutError, EOFError, OSError, ValueError, TypeError, OverflowError):
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
            _, limit, renew = json.loads(question)
            if worker.answered >= RENEW_AFTER:
                worker.end()
                worker = _Worker(function, connection)
            reply = worker.answer(question, limit)
            if renew:
                worker.answered = RENEW_AFTER
            connection.send_bytes(reply)
    worker.end()


if __name__ == "__main__":
    to_caller = Connection(os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # a worker must not have the caller's connection, also not as its standard input
    main(to_caller, sys.argv[1])
