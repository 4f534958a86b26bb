"""Check a run and then train it in one process, so that veRL, whose import takes many seconds, is imported once.

The process imports veRL while the launcher composes the run. It receives the run, answers with the report of the check, and
then either runs veRL's trainer as ``python -m verl.trainer.main_ppo`` would, or ends. It has its own session, as every
training process (see :mod:`verl_trgrpo.launch.process`), and ends by itself if its launcher ends before the training starts.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import IO, TYPE_CHECKING

from verl_trgrpo.launch.process import start_trainer
from verl_trgrpo.runs.environment import METRICS_VARIABLE, TRAINER
from verl_trgrpo.verl_plugin.cpu import CPU_ENVIRONMENT
from verl_trgrpo.verl_plugin.loopback import LOOPBACK_ENVIRONMENT

if TYPE_CHECKING:  # the process starts before the launcher imports Hydra and pyarrow
    from verl_trgrpo.checks.check import CheckReport
    from verl_trgrpo.runs.compose import ComposedRun

# Variables that Ray and veRL read when a training starts. A check that asks a cluster must not have the token of another.
_LATE = (METRICS_VARIABLE, "RAY_AUTH_TOKEN", "RAY_TMPDIR")


class Driver:
    """A process that imports veRL at once, checks a run later, and becomes its training process.

    The process is killed at the end of the ``with`` block unless it trains.

    Args:
        environment: environment variables of the training, as far as they are known.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._channel, other = Pipe()
        # The name of the trainer shows in lists of processes what the process is for.
        command = [sys.executable, "-m", "verl_trgrpo.launch.driver", str(other.fileno()), TRAINER]
        with other:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[other.fileno()]
            )

    def check(self, run: ComposedRun) -> CheckReport:
        """Return what :func:`verl_trgrpo.checks.check.check` returns for a run that this machine trains.

        Raises:
            RuntimeError: the process ended without a report; its own error is on standard error.
        """
        assert self._process is not None, "the process trains already"
        _ = run.defaults  # composed here while the process imports veRL; they travel with the run
        with contextlib.suppress(EOFError, ConnectionError):
            self._channel.send(run)
            report: CheckReport = self._channel.recv()
            return report
        raise RuntimeError(f"the check of the configuration ended with exit code {self._process.wait()}")

    def train(
        self, arguments: Sequence[str], environment: dict[str, str], log: IO[bytes], inherit: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start veRL's trainer as `start_trainer` does, in this process if it started with the run's platform and network.

        Their variables count when a library is imported, so for others this process is ended and a new one started. Of the other
        variables this process has those that it started with, the file of the metrics, and those of `private_ray`.
        """
        process = self._process
        early = CPU_ENVIRONMENT | LOOPBACK_ENVIRONMENT
        if process is None or any(environment.get(name) != self._environment.get(name) for name in early):
            self._end()
            return start_trainer(arguments, environment, log, inherit)
        self._process = None
        with contextlib.suppress(ConnectionError), self._channel:  # a process that has died has an exit code
            late = {name: environment[name] for name in _LATE if name in environment}
            self._channel.send((tuple(arguments), late, len(inherit)))
            for descriptor in (log.fileno(), *inherit):
                send_handle(self._channel, descriptor, process.pid)
        return process

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._channel.close()
        if self._process is not None:
            if self._process.poll() is None:  # its number may belong to another process otherwise
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def main() -> None:
    """Check the run and then train, as the launcher asks for; end when it closes the channel."""
    channel: Connection = Connection(int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)  # of two processes that hold it neither could see the other end
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the launcher's standard output is for its own results
    gc.disable()  # what is imported stays: collections during the imports would take a tenth of their time
    from verl_trgrpo.checks import constructed

    constructed.begin()
    import verl  # noqa: F401

    gc.enable()
    gc.freeze()
    from verl_trgrpo.checks.check import check
    from verl_trgrpo.data.prompts import close_sandbox

    arguments = None
    with contextlib.suppress(EOFError, ConnectionError), channel:  # the launcher ended
        run = channel.recv()
        channel.send(check(run, trains=True))
        close_sandbox()
        constructed.close()
        arguments, late, inherited = channel.recv()
        os.environ.update(late)
        _take_over(channel, inherited)
    if arguments is not None:
        _train(arguments)


def _take_over(channel: Connection, inherited: int) -> None:
    """Write into the training's log, and hold `inherited` other files open, until the process ends."""
    log, *others = [recv_handle(channel) for _ in range(1 + inherited)]
    for standard in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(log, standard)
    os.close(log)
    for descriptor in others:
        os.set_inheritable(descriptor, False)


def _train(arguments: Sequence[str]) -> None:
    """Run veRL's trainer as ``python -m`` does."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    sys.argv = [TRAINER, *arguments]
    runpy.run_module(TRAINER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
