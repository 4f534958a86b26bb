"""Check a run in a process of its own: it imports veRL while this one composes, and returns the memory before training."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from types import TracebackType

from verl_trgrpo.runs.compose import ComposedRun
from verl_trgrpo.runs.validate import Report, check

_PYTHON = sys.executable


class CheckProcess:
    """A process that imports veRL at once and checks a run later. A process that has imported veRL already checks by itself.

    Example::

        with CheckProcess() as process:
            run = compose("trgrpo_trainer")
            report = process.check(run)
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if "verl" not in sys.modules:
            command = [_PYTHON, "-m", "verl_trgrpo.runs.check_process"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def check(self, run: ComposedRun) -> Report:
        """Return what :func:`verl_trgrpo.runs.validate.check` returns for a run.

        Raises:
            RuntimeError: the process ended without a report; its own error is on standard error.
        """
        if self._process is None:
            return check(run)
        output, _ = self._process.communicate(pickle.dumps(run))
        if self._process.returncode:
            raise RuntimeError(f"the check of the configuration ended with exit code {self._process.returncode}")
        return pickle.loads(output)

    def __enter__(self) -> CheckProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Read a pickled run from standard input and write its report to standard output; end when the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches both processes, and the other one reports it
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what veRL prints must not be part of the report
    import verl  # noqa: F401

    if received := sys.stdin.buffer.read():
        channel.write(pickle.dumps(check(pickle.loads(received))))
        channel.close()


if __name__ == "__main__":
    main()
