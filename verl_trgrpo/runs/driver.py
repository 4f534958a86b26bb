"""Check a run and then train it in one process, so that veRL, whose import takes many seconds, is imported once.

The process imports veRL while the launcher composes the run. It receives the run, answers with the report of the check, and
then either runs veRL's trainer as ``python -m verl.trainer.main_ppo`` would, or ends. It has its own session, as every
training process (see :mod:`verl_trgrpo.runs.process`), and ends by itself if its launcher ends before the training starts.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from verl_trgrpo.runs.environment import METRICS_VARIABLE
from verl_trgrpo.runs.process import TRAINER, start_trainer
from verl_trgrpo.verl_plugin.cpu import ENVIRONMENT as CPU_ENVIRONMENT

if TYPE_CHECKING:  # the process starts before the launcher imports Hydra and pyarrow
    from verl_trgrpo.runs.compose import ComposedRun
    from verl_trgrpo.runs.validate import Report


class Driver:
    """A process that imports veRL at once, checks a run later, and becomes its training process.

    The process is killed at the end of the ``with`` block unless it trains.

    Args:
        environment: environment variables of the training, as far as they are known.

    Example::

        with Driver(training_environment(on_cpu=True)) as driver:
            run = compose("trgrpo_trainer", platform="cpu")
            report = driver.check(run)
            process = driver.train(arguments, training_environment(True, metrics_file), log)
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._channel, other = socket.socketpair()
        # The name of the trainer shows in lists of processes what the process is for.
        command = [sys.executable, "-m", "verl_trgrpo.runs.driver", str(other.fileno()), TRAINER]
        with other:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[other.fileno()],
            )

    def check(self, run: ComposedRun) -> Report:
        """Return what :func:`verl_trgrpo.runs.validate.check` returns for a run.

        Raises:
            RuntimeError: the process ended without a report; its own error is on standard error.
        """
        from verl_trgrpo.common.findings import Finding, Level
        from verl_trgrpo.runs.validate import Report

        assert self._process is not None, "the process trains already"
        with contextlib.suppress(ConnectionError), self._channel.makefile("rw") as stream:
            stream.write(json.dumps(_plain_run(run)) + "\n")
            stream.flush()
            if answer := stream.readline():
                received = json.loads(answer)
                findings = [Finding(Level(level), where, message) for level, where, message in received["findings"]]
                return Report(
                    run.config,
                    tuple(findings),
                    received["total_steps"],
                    frozenset(received["agents"]),
                    received["first_prompt"],
                )
        raise RuntimeError(f"the check of the configuration ended with exit code {self._process.wait()}")

    def train(
        self, arguments: Sequence[str], environment: dict[str, str], log: IO[bytes], inherit: Sequence[int] = ()
    ) -> subprocess.Popen[bytes]:
        """Start veRL's trainer as `start_trainer` does, in this process if it started with the variables of the run's platform.

        They count when a library is imported, so for another platform this process is ended and a new one started. Of the
        other variables this process has those that it started with, and the file of the metrics.
        """
        process = self._process
        if process is None or any(environment.get(name) != self._environment.get(name) for name in CPU_ENVIRONMENT):
            self._end()
            return start_trainer(arguments, environment, log, inherit)
        self._process = None
        order = {"arguments": list(arguments), "metrics_file": environment[METRICS_VARIABLE], "inherited": len(inherit)}
        with contextlib.suppress(ConnectionError), self._channel:  # a process that has died has an exit code
            self._channel.sendall(json.dumps(order).encode() + b"\n")
            socket.send_fds(self._channel, [b"."], [log.fileno(), *inherit])
        return process

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._channel.close()
        if self._process is not None:
            if self._process.poll() is None:  # its number may belong to another process otherwise
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def main() -> None:
    """Check the run and then train, as the messages on the socket say; end when the launcher closes it."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)  # of two processes that hold it neither could see the other end
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # the launcher's standard output is for its own results
    gc.disable()  # what is imported stays: collections during the imports would take a tenth of their time
    import verl  # noqa: F401

    gc.enable()
    gc.freeze()
    with contextlib.suppress(ConnectionError), channel:
        order = _answer(channel)
    if order:
        _train(order)


def _answer(channel: socket.socket) -> dict[str, Any] | None:
    """Answer the run with its report; return the order to train with the log and the inherited descriptors in place.

    None if the launcher ended.
    """
    from verl_trgrpo.runs.validate import check

    with channel.makefile("rw") as stream:
        if not (received := stream.readline()):
            return None
        report = check(_run_of(json.loads(received)))
        findings = [(finding.level.value, finding.where, finding.message) for finding in report.findings]
        answer = {
            "findings": findings,
            "total_steps": report.total_steps,
            "agents": sorted(report.agents),
            "first_prompt": report.first_prompt,
        }
        stream.write(json.dumps(answer) + "\n")
        stream.flush()
    # A byte at a time: the descriptors come with the byte after the line.
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := channel.recv(1)):
            return None
        line += byte
    order = json.loads(line)
    byte, descriptors, _, _ = socket.recv_fds(channel, 1, 1 + order["inherited"])
    if not byte:
        return None
    log, *inherited = descriptors
    for standard in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(log, standard)
    os.close(log)
    for descriptor in inherited:
        os.set_inheritable(descriptor, False)
    return order


def _train(order: dict[str, Any]) -> None:
    """Run veRL's trainer as ``python -m`` does; the inherited descriptors stay open until the process ends."""
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    os.environ[METRICS_VARIABLE] = order["metrics_file"]
    sys.argv = [TRAINER, *order["arguments"]]
    runpy.run_module(TRAINER, run_name="__main__", alter_sys=True)


def _plain_run(run: ComposedRun) -> dict[str, Any]:
    """Return a run as JSON values: interpolations and missing values are strings, as in YAML."""
    from omegaconf import OmegaConf

    return {
        "config": OmegaConf.to_container(run.config, enum_to_str=True),
        "defaults": OmegaConf.to_container(run.defaults, enum_to_str=True),
        "arguments": run.arguments,
        "choices": dict(run.choices),
        "added": sorted(run.added),
    }


def _run_of(values: dict[str, Any]) -> ComposedRun:
    from omegaconf import DictConfig, OmegaConf

    from verl_trgrpo.runs.compose import ComposedRun

    config, defaults = (OmegaConf.create(values[name]) for name in ("config", "defaults"))
    assert isinstance(config, DictConfig) and isinstance(defaults, DictConfig)
    run = ComposedRun(config, tuple(values["arguments"]), values["choices"], frozenset(values["added"]))
    run.__dict__["defaults"] = defaults  # computed already
    return run


if __name__ == "__main__":
    main()
