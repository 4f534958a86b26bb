"""The calling process's side of the judge: starts it at first use, asks it, replaces it if it does not answer.

The judge is a new program, not a fork of the caller, so threads, CUDA and Ray in the caller do not matter, and a daemonic
process may have one. Each process has its own; a fork does not share its parent's.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from verl_trgrpo.tasks.math.reward.judge import TIMED_OUT, read_message, write_message

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
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, bool]:
        """Return the judge's reply to a request (see the judge module); `request["limit"]` is in seconds of CPU time.

        Raises:
            RuntimeError: the judge cannot be started; the message has its reason.
        """
        wall_seconds = WALL_SECONDS + 20.0 * request["limit"]
        with self._lock:
            for attempt in (1, 2):
                process = self._running()
                try:
                    write_message(_descriptor(process.stdin), request)
                    reply = _wait_and_read(process, wall_seconds)
                except BrokenPipeError:
                    reply = None
                except TimeoutError:
                    logger.warning("the judge of mathematical answers gave no reply for %g s; restarted", wall_seconds)
                    self._stop()
                    return dict(TIMED_OUT)
                except BaseException:  # such as Ctrl-C: the reply that is under way must not meet the next request
                    self._stop()
                    raise
                if reply is not None:
                    return reply
                self._stop()  # somebody ended it: start another, once
                logger.warning("the judge of mathematical answers ended unexpectedly (attempt %d of 2)", attempt)
        raise RuntimeError("the judge of mathematical answers ends while it works; is the machine out of memory?")

    @property
    def pid(self) -> int | None:
        """Process id of the judge; None before the first question."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the judge; the next question starts another."""
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = self._start()
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        search_path = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "verl_trgrpo.tasks.math.reward.judge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            # Sympy's order of terms follows Python's hashes; a fixed seed makes verdicts repeatable. A safe path keeps
            # files of the working directory from standing in for the libraries (Python 3.11 and later).
            env=os.environ | {"PYTHONPATH": search_path, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # its worker ends with it, and the terminal's Ctrl-C reaches neither
        )
        self._process = process
        try:
            greeting = _wait_and_read(process, START_SECONDS)
            reason = "it ended at once" if greeting is None else greeting.get("error")
        except TimeoutError:
            reason = f"it was not ready after {START_SECONDS:g} s"
        except BaseException:
            self._stop()
            raise
        if reason:
            self._stop()
            raise RuntimeError(
                f"the judge of mathematical answers cannot start: {reason}. Run "
                f"'{sys.executable} -c \"import math_verify\"' to see whether math-verify is installed"
            )
        return process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def forget(self) -> None:
        """In a forked child: close the copies of the parent's pipes, leave the judge to the parent."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.returncode = 0  # not this process's child: nothing to wait for


def _descriptor(stream: Any) -> int:
    return stream.fileno()


def _wait_and_read(process: subprocess.Popen[bytes], seconds: float) -> Any | None:
    """Read one message. Replies are shorter than a pipe's buffer and come in one piece, so waiting for a byte is enough."""
    poller = select.poll()
    poller.register(_descriptor(process.stdout), select.POLLIN)
    deadline = time.monotonic() + seconds
    while not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
        if time.monotonic() >= deadline:
            raise TimeoutError
    return read_message(_descriptor(process.stdout))


judge = JudgeClient()
"""This process's judge."""

atexit.register(judge.close)
os.register_at_fork(after_in_child=judge.forget)
