"""Run the training process, watch it, and stop it together with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from verl_trgrpo.common.files import open_plain
from verl_trgrpo.common.progress import INTERRUPTIONS, handle_signals
from verl_trgrpo.launch import masked
from verl_trgrpo.runs.environment import TRAINER

# Seconds that an interrupted driver has to shut Ray down before it is killed.
_GRACE = 20.0

Start = Callable[[Sequence[str], dict[str, str], IO[bytes], Sequence[int]], "subprocess.Popen[bytes]"]


def start_trainer(
    arguments: Sequence[str], environment: dict[str, str], log: IO[bytes], inherit: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start ``python -m verl.trainer.main_ppo`` in a session of its own.

    Args:
        arguments: arguments of ``main_ppo``.
        environment: environment variables of the process.
        log: receives standard output and standard error.
        inherit: file descriptors that the process keeps open.
    """
    return subprocess.Popen(
        [sys.executable, "-m", TRAINER, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=inherit,
    )


class TrainingProcess:
    """Run veRL's trainer for the duration of a ``with`` block, and leave no process behind.

    The process has its own session, so a terminal's Ctrl-C does not reach Ray's daemons; this class interrupts the driver
    alone and then ends what is left. Within the block, SIGINT, SIGTERM and SIGHUP make `wait` raise KeyboardInterrupt.

    The arguments are those of `start_trainer`, with the path of the log, what starts the process in its place, and the values
    that a process of :mod:`verl_trgrpo.launch.masked` masks in the log.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        log_file: Path,
        inherit: Sequence[int] = (),
        start: Start = start_trainer,
        secrets: Sequence[str] = (),
    ) -> None:
        self._arguments, self._environment, self._inherit = arguments, environment, inherit
        self._log_file, self._start, self._secrets = log_file, start, secrets
        self._filter: subprocess.Popen[bytes] | None = None
        self._descendants: set[psutil.Process] = set()
        self._workers: dict[int, str] = {}  # the last title of each process that Ray started
        # Only `wait` raises: elsewhere an exception could separate the process from the code that ends it.
        self._waiting = self._signalled = False

    def __enter__(self) -> TrainingProcess:
        with contextlib.ExitStack() as signals:
            signals.enter_context(handle_signals(self._on_signal, *INTERRUPTIONS))
            with os.fdopen(open_plain(self._log_file), "wb") as log:
                log.truncate()
                said = self._masked(log) if self._secrets else log
                self._process = self._start(self._arguments, self._environment, said, self._inherit)
                said.close()  # so that the filter ends with the training
            self._signals = signals.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End all processes; after an exception interrupt the driver first. A signal meanwhile skips the wait for it."""
        self._waiting = self._signalled = False  # a signal from here on means: do not wait
        with self._signals:
            if kind is not None:
                self._ask_to_end()
            self._sweep()

    def _masked(self, log: IO[bytes]) -> IO[bytes]:
        """Start the filter of the log, in a session of its own as the training; return what it reads."""
        command = [sys.executable, "-m", masked.__name__]
        environment = os.environ | {masked.MASKED_VALUES: "\n".join(self._secrets)}
        self._filter = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, env=environment, start_new_session=True
        )
        assert self._filter.stdin is not None  # of a pipe
        return self._filter.stdin

    def _on_signal(self, *_: Any) -> None:
        self._signalled = True
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_lost(self, pid: int, actor: str = "", child: str = "") -> bool:
        """Return whether a process of this training has ended, or whether it is an actor that has lost its children.

        True, too, where that cannot be seen: processes of a Ray cluster that was there before are not the driver's.

        Args:
            pid: number of the process; False for one that has not been seen.
            actor: class of the actor that it should be; False for a process that is another one.
            child: part of the names of the children that it needs; "" for none.
        """
        running = {each.pid: name for each in self._descendants if (name := _title(each))}
        if not any(name.endswith("raylet") for name in running.values()):
            return True
        title = running.get(pid) or self._workers.get(pid, "")
        if not title.startswith(f"ray::{actor}"):
            return False
        if pid not in running:
            return not title.startswith("ray::IDLE")  # which Ray ends itself
        return bool(child) and not any(child in _title(each) for each in psutil.Process(pid).children(recursive=True))

    def wait(self, on_tick: Callable[[], None], seconds: float = 0.5) -> int:
        """Call ``on_tick`` every `seconds` until the process ends, and return its exit code."""
        self._waiting = True
        if self._signalled:
            raise KeyboardInterrupt
        while self._process.poll() is None:
            self._remember_descendants()
            on_tick()
            time.sleep(seconds)
        return self._process.returncode

    def _ask_to_end(self) -> None:
        """Send the driver SIGINT, and give it time to shut Ray down."""
        self._remember_descendants()
        self._process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _GRACE
        while self._process.poll() is None and time.monotonic() < deadline and not self._signalled:
            time.sleep(0.1)
            self._remember_descendants()

    def _remember_descendants(self) -> None:
        # Daemons get another parent when the driver dies, so they must be recorded before.
        with contextlib.suppress(psutil.NoSuchProcess):
            self._descendants.update(psutil.Process(self._process.pid).children(recursive=True))
        # A worker's own children can have its title, and end as they please.
        for raylet in [each for each in self._descendants if _title(each).endswith("raylet")]:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._workers.update({each.pid: title for each in raylet.children() if (title := _title(each))})

    def _sweep(self) -> None:
        """Kill the driver and all its descendants that still run; a local Ray cluster belongs to its driver alone."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(self._descendants, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=5)
        if self._filter:  # it has read all once no process can write
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._filter.wait(timeout=5)
            self._filter.kill()


def _title(process: psutil.Process) -> str:
    """Return the name of a process as it shows in lists, "" if it has ended."""
    with contextlib.suppress(psutil.Error):
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            return next(iter(process.cmdline()), "")
    return ""
