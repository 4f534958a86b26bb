"""Runs every arm of a study with every seed, some at once; what is finished is not run again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from verl_trgrpo.common.files import BusyError, lock, name_holder
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.runs.compare.commands import Inputs, run_command
from verl_trgrpo.runs.compare.study import Study
from verl_trgrpo.runs.record import environment, read_record, write_record

# Not the lock of `verl-trgrpo train`, which is held within this one.
LOG, LOCK = "run.log", "study.lock"

logger = logging.getLogger(__name__)


def run_directory(out: Path, arm: str, seed: int) -> Path:
    """Return ``OUT/runs/<arm>/seed-<seed>``."""
    return out / "runs" / arm / f"seed-{seed}"


@dataclass
class _Children:
    """Processes under way. `end` stops them, and no more start after it."""

    processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False

    def run(self, command: Sequence[str], output: BinaryIO, lock_file: int) -> int | None:
        """Run a command to its end; return its exit code, or None when it may not start any more.

        Args:
            command: words.
            output: file for stdout and stderr.
            lock_file: descriptor of the run's lock. The process holds it, too: one that outlives a killed command is found.
        """
        with self.lock:
            if self.ended:
                return None
            # A session of its own: Ctrl-C reaches this process alone, which then ends the others in order.
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[lock_file],
            )
            self.processes.add(process)
        name_holder(lock_file, process.pid)
        try:
            return process.wait()
        finally:
            with self.lock:
                self.processes.discard(process)

    def end(self) -> None:
        """Ask all processes to stop, and kill after a minute those that do not."""
        with self.lock:
            self.ended = True
            running = list(self.processes)
        for process in running:
            process.terminate()
        deadline = time.monotonic() + 60
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def run_study(study: Study, inputs: Inputs, out: Path, jobs: int = 1, progress: Progress = no_progress) -> list[str]:
    """Train what is not finished yet.

    Runs go seed by seed through all arms, so that a study that is stopped early has whole seeds. A run that was interrupted
    goes on from its latest checkpoint.

    Args:
        study: what to run.
        inputs: prompts and model.
        out: directory of the study; runs lie in `run_directory`.
        jobs: runs at once.
        progress: progress display.

    Returns:
        a line for each run that failed; the others are finished.

    Raises:
        ValueError: when a run in `out` was started with other settings.
        KeyboardInterrupt: after all processes have ended.
    """
    todo = _unfinished(study, inputs, out)
    if not todo:
        return []
    children, failures = _Children(), []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(_run, children, run_dir, record) for run_dir, record in todo]
            for future in progress(as_completed(futures), len(futures), "runs"):
                if failure := future.result():
                    failures.append(failure)
        except BaseException:
            # Otherwise the pool would go through all runs that wait.
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise
    return failures


def _unfinished(study: Study, inputs: Inputs, out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return directory and record of the runs to start or to go on with, in order."""
    facts = environment(study.script.parent if study.script else Path.cwd())
    todo = []
    for seed in study.seeds:
        for arm in study.arms:
            run_dir = run_directory(out, arm, seed)
            command = run_command(study, inputs, arm, seed, run_dir)[1:]
            record = read_record(run_dir)
            if record and record.get("command") != command:
                found = "was started with another command" if "command" in record else "does not say how it was started"
                raise ValueError(f"{run_dir} {found}, see {run_dir / 'run.json'}; choose another --out")
            if not record.get("finished"):
                start = {
                    "arm": arm,
                    "seed": seed,
                    "study": {"baseline": study.baseline, "primary": study.primary, "margin": study.margin},
                    "trainer": study.trainer,
                    "settings": {**study.settings, **study.arms[arm]},
                    "command": command,
                }
                todo.append((run_dir, start | facts | {"attempts": record.get("attempts", []), "finished": False}))
    return todo


def _run(children: _Children, run_dir: Path, record: dict[str, Any]) -> str:
    """Train one run and write its record; return why it failed, or ""."""
    if children.ended:
        return ""
    run_dir.mkdir(parents=True, exist_ok=True)
    log = run_dir / LOG
    busy = f"{run_dir}: still trained by another process ({{holder}}); let it end, or stop it"
    try:
        with lock(run_dir / LOCK, busy) as lock_file, log.open("ab") as output:
            write_record(run_dir, record)
            started, clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
            code = children.run([sys.executable, *record["command"]], output, lock_file)
            if code is None:
                return ""
            attempt = {"started": started, "seconds": round(time.monotonic() - clock, 1), "exit_code": code}
            write_record(run_dir, record | {"attempts": [*record["attempts"], attempt], "finished": code == 0})
    except BusyError as error:
        logger.warning("%s", error)
        return str(error)
    if code == 0 or children.ended:
        return ""
    logger.warning("%s failed with exit code %d; see %s", run_dir, code, log)
    return f"{run_dir}: exit code {code}: {_last_line(log)}"


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").replace("\r", "\n").splitlines()]
    return next((line for line in reversed(lines) if line), "no output")
