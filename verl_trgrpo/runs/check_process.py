"""Check a run in a process of its own: it imports veRL while this one composes, and returns the memory before training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, Level
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
        output, _ = self._process.communicate(json.dumps(_plain_run(run)).encode())
        if self._process.returncode:
            raise RuntimeError(f"the check of the configuration ended with exit code {self._process.returncode}")
        received = json.loads(output)
        findings = [Finding(Level(level), where, message) for level, where, message in received["findings"]]
        return Report(run.config, tuple(findings), received["total_steps"])

    def __enter__(self) -> CheckProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Read a run from standard input and write its report to standard output, both as JSON; end when the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches both processes, and the other one reports it
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what veRL prints must not be part of the report
    import verl  # noqa: F401

    if received := sys.stdin.buffer.read():
        report = check(_run_of(json.loads(received)))
        findings = [(finding.level.value, finding.where, finding.message) for finding in report.findings]
        channel.write(json.dumps({"findings": findings, "total_steps": report.total_steps}).encode())
        channel.close()


def _plain_run(run: ComposedRun) -> dict[str, Any]:
    """Return a run as JSON values: interpolations and missing values are strings, as in YAML."""
    return {
        "config": OmegaConf.to_container(run.config, enum_to_str=True),
        "defaults": OmegaConf.to_container(run.defaults, enum_to_str=True),
        "arguments": run.arguments,
        "choices": dict(run.choices),
        "added": sorted(run.added),
    }


def _run_of(values: dict[str, Any]) -> ComposedRun:
    config, defaults = (OmegaConf.create(values[name]) for name in ("config", "defaults"))
    assert isinstance(config, DictConfig) and isinstance(defaults, DictConfig)
    run = ComposedRun(config, tuple(values["arguments"]), values["choices"], frozenset(values["added"]))
    run.__dict__["defaults"] = defaults  # computed already
    return run


if __name__ == "__main__":
    main()
