"""The training process and everything it starts: watched, and stopped without leaving Ray behind."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from verl_trgrpo.signals import handle_signals

logger = logging.getLogger(__name__)

# Seconds that a stopped run gets to shut Ray down by itself before it is killed.
_GRACE = 20.0

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


class TrainingProcess:
    """``python -m verl.trainer.main_ppo`` in a session of its own, output in a file.

    Its own session keeps a terminal's Ctrl-C away from Ray's daemons; this class passes the signal on to the driver alone
    and then makes sure that nothing it started survives.

    Args:
        arguments: after ``main_ppo``.
        environment: variables of the process.
        log_file: receives standard output and error.
        inherit: file descriptors that the process keeps open.
    """

    def __init__(
        self, arguments: Sequence[str], environment: dict[str, str], log_file: Path, inherit: Sequence[int] = ()
    ) -> None:
        self._log = log_file.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verl.trainer.main_ppo", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=inherit,
        )
        self._descendants: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, on_tick: Callable[[], None], seconds: float = 0.5) -> int:
        """Call ``on_tick`` every ``seconds`` until the process ends; returns its exit code.

        SIGINT (Ctrl-C), SIGTERM and SIGHUP, like any exception of ``on_tick``, stop the process first; then a
        KeyboardInterrupt, or that exception, is raised.
        """
        with handle_signals(_interrupt, *_ENDING):
            try:
                while self._process.poll() is None:
                    self._remember_descendants()
                    on_tick()
                    time.sleep(seconds)
            except BaseException:
                self.stop()
                raise
        self._sweep()
        return self._process.returncode

    def stop(self) -> None:
        """Interrupt the driver as Ctrl-C would, wait for Ray to go, and kill what is left.

        A second signal meanwhile cuts the waiting short; it never leaves anything behind.
        """
        impatient = []
        with handle_signals(lambda *_: impatient.append(True), *_ENDING):
            self._remember_descendants()
            self._process.send_signal(signal.SIGINT)
            deadline = time.monotonic() + _GRACE
            while self._process.poll() is None and time.monotonic() < deadline and not impatient:
                time.sleep(0.1)
                self._remember_descendants()
            self._sweep()

    def _remember_descendants(self) -> None:
        # Daemons change their parent when the driver dies, so they must be known before.
        with contextlib.suppress(psutil.NoSuchProcess):
            self._descendants.update(psutil.Process(self._process.pid).children(recursive=True))

    def _sweep(self) -> None:
        """End whatever outlived the driver; a local Ray cluster belongs to its driver alone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(self._descendants, timeout=5)
        for process in alive:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
            logger.info("killed %s, which had outlived its driver", process)
        psutil.wait_procs(alive, timeout=5)
        self._log.close()
