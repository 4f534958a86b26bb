"""The calling process's side of the judge: starts it at first use, asks it, replaces it if it does not answer.

The judge is a new program, not a fork of the caller, so threads, CUDA and Ray in the caller do not matter, and a daemonic
process may have one. Each process has its own; a fork does not share its parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from verl_trgrpo.tasks.math.reward.judge import TIMED_OUT

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""A judge that is not ready after this time (imports take about one second) cannot be used."""

WALL_SECONDS = 30.0
"""Time to wait for a reply beyond 20 times the limit of CPU time; only a stopped judge or a starved machine needs it."""

_PACKAGE_ROOT = Path(__file__).resolve().parents[4]


class JudgeClient:
    """One judge process; safe to use from several threads, which wait for one another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def ask(
        self, golds: tuple[str, ...], answer: str | None, *, rounded_gold: bool = False, limit: float
    ) -> dict[str, bool]:
        """Return the judge's reply (see the judge module); `limit` is in seconds of CPU time.

        Raises:
            RuntimeError: the judge cannot be started; the message has its reason.
        """
        request = {"golds": golds, "answer": answer, "rounded_gold": rounded_gold, "limit": limit}
        wall_seconds = WALL_SECONDS + 20.0 * limit
        with self._lock:
            for attempt in (1, 2):
                _, connection = self._running or self._start()
                try:
                    connection.send(request)
                    if connection.poll(wall_seconds):
                        return connection.recv()
                except (EOFError, OSError):  # somebody ended it: start another, once
                    self._stop()
                    logger.warning("the judge of mathematical answers ended unexpectedly (attempt %d of 2)", attempt)
                except BaseException:  # such as Ctrl-C: the reply that is under way must not meet the next request
                    self._stop()
                    raise
                else:
                    self._stop()
                    logger.warning("the judge of mathematical answers gave no reply for %g s; restarted", wall_seconds)
                    return dict(TIMED_OUT)
        raise RuntimeError("the judge of mathematical answers ends while it works; is the machine out of memory?")

    @property
    def pid(self) -> int | None:
        """Process id of the judge; None before the first question."""
        return self._running[0].pid if self._running else None

    def close(self) -> None:
        """End the judge; the next question starts another."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """In a forked child: close the copy of the parent's connection, leave the judge to the parent."""
        self._lock = threading.Lock()
        if self._running:
            process, connection = self._running
            self._running = None
            connection.close()
            process.returncode = 0  # not this process's child: nothing to wait for

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        search_path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        connection, other_end = Pipe()
        with other_end:
            process = subprocess.Popen(
                [sys.executable, "-m", "verl_trgrpo.tasks.math.reward.judge", str(other_end.fileno())],
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Sympy's order of terms follows Python's hashes; a fixed seed makes verdicts repeatable. A safe path keeps
                # files of the working directory from standing in for the libraries (Python 3.11 and later).
                env=os.environ | {"PYTHONPATH": search_path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"},
                start_new_session=True,  # its worker ends with it, and the terminal's Ctrl-C reaches neither
            )
        self._running = process, connection
        try:
            ready = connection.poll(START_SECONDS)
            reason = connection.recv() if ready else f"it was not ready after {START_SECONDS:g} s"
        except EOFError:
            reason = "it ended at once"
        except BaseException:
            self._stop()
            raise
        if reason:
            self._stop()
            raise RuntimeError(
                f"the judge of mathematical answers cannot start: {reason}. Run "
                f"'{sys.executable} -c \"import math_verify\"' to see whether math-verify is installed"
            )
        return self._running

    def _stop(self) -> None:
        if self._running:
            process, connection = self._running
            self._running = None
            connection.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


judge = JudgeClient()
"""This process's judge."""

atexit.register(judge.close)
os.register_at_fork(after_in_child=judge.forget)
