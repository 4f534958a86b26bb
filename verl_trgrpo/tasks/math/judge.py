"""The judge: a process that compares formulas, bounded in time and memory.

Each process that scores starts one at its first question: a new program, not a fork, so threads, CUDA and Ray in the caller
do not matter, and a daemonic process may have one. The judge imports the libraries once and forks a worker, which answers.
Its CPU time is limited by a timer whose signal ends it, whatever code it is in; the judge then replies None for it and forks
another, which costs milliseconds. CPU time does not depend on how busy the machine is.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

MEMORY_LIMIT = 2 << 30
WALL_SECONDS = 60.0
"""Time to wait for the start or, beyond 20 limits of CPU time, for a reply; only a starved machine needs it."""
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]


class Judge:
    """One judge process; safe to use from several threads, which wait for one another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, gold: str, answer: str, limit: float) -> tuple[bool, float]:
        """Return whether two LaTeX formulas are equal, and the seconds of CPU time that it took.

        Raises:
            TimeoutError: it takes more than `limit` seconds of CPU time, or too much memory.
            RuntimeError: the judge cannot be started; the message has its reason.
        """
        with self._lock:
            for _ in range(2):
                connection = self._connection or self._start()
                try:
                    connection.send((gold, answer, limit))
                    if not connection.poll(WALL_SECONDS + 20 * limit):
                        raise TimeoutError("the judge of mathematical answers gives no reply")
                    reply = connection.recv()
                except BaseException as error:
                    self.close()  # after Ctrl-C too: the reply that is under way must not meet the next question
                    if not isinstance(error, (EOFError, ConnectionError)):
                        raise  # otherwise somebody ended it: start another, once
                else:
                    if reply is None:
                        raise TimeoutError(f"comparing formulas takes more than {limit:g} s or too much memory")
                    return reply
        raise RuntimeError("the judge of mathematical answers ends while it works; is the machine out of memory?")

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
                [sys.executable, "-m", __name__],
                stdin=other_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Sympy's order of terms follows Python's hashes; a fixed seed makes verdicts repeatable. A safe path keeps
                # files of the working directory from standing in for the libraries (Python 3.11 and later).
                env=os.environ | {"PYTHONPATH": search_path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # its worker ends with it, and the terminal's Ctrl-C reaches neither
            )
        try:
            reason = connection.recv() if connection.poll(WALL_SECONDS) else "it is not ready in time"
        except EOFError:
            reason = "it ends at once"
        if reason:
            self.close()
            raise RuntimeError(f"the judge of mathematical answers cannot start: {reason}. Is math-verify installed?")
        self._connection = connection
        return connection


judge = Judge()
"""This process's judge."""

# A forked child begins without a process: the parent keeps the one it has.
os.register_at_fork(after_in_child=judge.__init__)  # type: ignore[misc]


def _work(connection: Connection) -> None:
    """Answer questions until the caller is gone. Out of memory, the worker ends early."""
    from verl_trgrpo.tasks.math.formulas import same_formula

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    while True:
        gold, answer, limit = connection.recv()
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit)
        try:
            equal = same_formula(gold, answer)
        except MemoryError:
            raise
        except Exception:  # the libraries raise many kinds for what they do not understand
            equal = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send((equal, time.process_time() - start))


def main(connection: Connection) -> None:
    """Keep a worker until the caller is gone. The first message is None, or the reason why there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(2000)
    try:
        from verl_trgrpo.tasks.math.formulas import WARM_UP, same_formula

        for gold, answer in [("(x+1)^2", "x^2+2x+1"), *zip(WARM_UP, WARM_UP, strict=True)]:
            same_formula(gold, answer)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    while True:
        connection.send(None)  # ready, or the reply for the worker that was ended
        worker = os.fork()
        if worker == 0:
            try:
                _work(connection)
            except (EOFError, ConnectionError):
                os._exit(0)
            finally:
                os._exit(1)
        if os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0:
            return


if __name__ == "__main__":
    main(Connection(os.dup(0)))
