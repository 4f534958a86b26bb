"""Start one training run, watch it, and record it in its run directory."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from omegaconf import OmegaConf

from verl_trgrpo.checks.check import early_findings
from verl_trgrpo.checks.machine import cluster_of
from verl_trgrpo.checks.resume import loading_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.files import free_name, lock, name_holder, open_plain
from verl_trgrpo.common.findings import InvalidInputError, Level, grouped, raise_invalid
from verl_trgrpo.common.secrets import secrets_of
from verl_trgrpo.common.text import from_here, show
from verl_trgrpo.launch.driver import Driver
from verl_trgrpo.launch.log import LogWatch, WorkerDiedError
from verl_trgrpo.launch.postmortem import MemoryKills, failure
from verl_trgrpo.launch.process import Start, TrainingProcess, start_trainer
from verl_trgrpo.launch.progress import RunProgress
from verl_trgrpo.runs.checkpoints import (
    abandon_checkpoints,
    holds_checkpoint,
    latest_checkpoint,
    links_of_saves,
    settle_checkpoint,
    step_of,
)
from verl_trgrpo.runs.compose import DEFAULT_CONFIG, ComposedRun, compose, loggers_of
from verl_trgrpo.runs.environment import (
    METRICS_VARIABLE,
    TRAINER,
    built_for_cpus,
    platform_here,
    provenance,
    training_environment,
)
from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.keys import flat
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.overrides import chosen_value, quoted
from verl_trgrpo.runs.records import read_record, write_record
from verl_trgrpo.runs.run_directory import (
    DATA_FILES,
    FIRST_PROMPT,
    LAST_STEP,
    STANDING_SIGNALS,
    TRAINED,
    check_same_run,
    data_fingerprints,
    is_finished,
    next_start,
    training_length,
    write_config,
)
from verl_trgrpo.verl_plugin.loopback import private_ray

LOCK_FILE = "run.lock"
HYDRA_DIRECTORY = "hydra"

_ATTEMPT_FILE = re.compile(r"(?:metrics|train)-(\d+)\.")
_PROMPTS_LOST = 'a rollout or its reward failed and veRL trained without it ("Error in _run_prompt")'


class TrainingFailedError(RuntimeError):
    """Report a training process that failed; the message has its error, what a second start does, and the log's path."""


@dataclass(frozen=True)
class Outcome:
    """Files of a finished run.

    Args:
        run_dir: run directory.
        checkpoint: directory of the latest checkpoint, or None.
        log_file: output of the training process; None for a run that had already finished.
    """

    run_dir: Path
    checkpoint: Path | None
    log_file: Path | None


def run_training(
    overrides: Sequence[str] = (), source: str | Path = DEFAULT_CONFIG, stream: TextIO = sys.stderr
) -> Outcome:
    """Train as ``python -m verl.trainer.main_ppo`` does, in a process of its own, which has checked the run.

    A run whose latest checkpoint is at the last step is not started again. An interrupted run resumes from its latest
    checkpoint (``trainer.resume_mode=auto``).

    Args:
        overrides: Hydra overrides.
        source: see :func:`~verl_trgrpo.runs.compose.compose`.
        stream: receives notes and the progress bar.

    Raises:
        InvalidInputError: the configuration is wrong, or belongs to another run; nothing was started.
        BusyError: another process trains in the run directory.
        TrainingFailedError: the training process failed.
        KeyboardInterrupt: a signal arrived and all processes have been stopped; the message says what a second start does.
    """
    platform = chosen_value(overrides, "platform")
    on_cpu = platform.startswith("cpu") if platform else built_for_cpus()  # as far as this can be known at once
    alone = cluster_of(OmegaConf.create()) is None
    with Driver(training_environment(on_cpu, loopback=alone)) as driver:
        run = compose_here(source, overrides)
        if (run.directory / LOCK_FILE).exists():  # a second training is refused before the check, which takes a minute
            with _claimed(run.directory):
                pass
        report = driver.check(run)
        raise_invalid(report.messages(Level.ERROR))
        for warning in grouped(report.messages(Level.WARNING)):
            show(f"warning: {warning}", stream)
        return launch(run, report.total_steps, stream, driver.train, report.first_prompt)


def launch(
    run: ComposedRun,
    total_steps: int | None,
    stream: TextIO = sys.stderr,
    start: Start = start_trainer,
    first_prompt: dict[str, Any] | None = None,
) -> Outcome:
    """Train a run that has been checked, as `run_training` does.

    Args:
        run: composed for this machine.
        total_steps: its largest possible number of steps; None if unknown.
        stream: receives notes and the progress bar.
        start: see :class:`~verl_trgrpo.launch.process.TrainingProcess`.
        first_prompt: see :class:`~verl_trgrpo.checks.check.CheckReport`; for ``run.json``.
    """
    log_file = None
    if _is_left(run, total_steps):
        with _claimed(run.directory) as claim:
            if run.config.trainer.resume_mode == "auto":
                for note in settle_checkpoint(run.directory):
                    show(f"note: {note}", stream)
            if _is_left(run, total_steps):  # another launcher may have trained until it gave up the lock
                raise_invalid([each.message for each in loading_findings(RunView(run)) if each.level is Level.ERROR])
                log_file = _train(run, total_steps, stream, claim, start, first_prompt)
    return Outcome(run.directory, latest_checkpoint(run.directory), log_file)


def _is_left(run: ComposedRun, total_steps: int | None) -> bool:
    """Return whether a run has steps to train, and refuse a directory that holds a checkpoint of another configuration.

    A run that starts from trainer.resume_from_path is refused, too: its ``config.yaml`` would vouch for what is there.
    """
    if run.config.trainer.resume_mode != "disable" and holds_checkpoint(run.directory):
        check_same_run(run.config, run.directory, run.arguments)
    return not is_finished(run.config, run.directory, total_steps)


def compose_here(source: str | Path, overrides: Sequence[str]) -> ComposedRun:
    """Compose the run for this machine, see :func:`~verl_trgrpo.runs.environment.platform_here`.

    Raises:
        InvalidInputError: the run cannot be composed, lacks sections, or names files that do not exist.
    """
    run = compose(source, overrides, platform=platform_here(overrides))
    raise_invalid([finding.message for finding in early_findings(run)])
    return run


@contextmanager
def _claimed(run_dir: Path) -> Iterator[int]:
    """Create the run directory if needed and hold its lock; yield the lock's descriptor.

    The training process inherits the lock, so a second launcher is refused even if the first was killed.
    """
    busy = (
        f"{run_dir} is being trained in by process {{holder}}; wait for its end, `kill {{holder}}`, or choose another "
        "trainer.default_local_dir"
    )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        os.close(open_plain(run_dir / LOCK_FILE))
    except OSError as error:
        message = f"trainer.default_local_dir={run_dir} cannot be written ({error}); choose another directory"
        raise InvalidInputError([message]) from error
    with lock(run_dir / LOCK_FILE, busy) as claim:
        yield claim


def _train(
    run: ComposedRun,
    total_steps: int | None,
    stream: TextIO,
    claim: int,
    start: Start,
    first_prompt: dict[str, Any] | None,
) -> Path:
    """Run one attempt to its end and return its log file."""
    run_dir = run.directory
    # Of several nodes, and of a cluster that is there, the network is the user's.
    alone = run.config.trainer.nnodes == 1 and cluster_of(run.config) is None
    numbers = [int(match[1]) for path in run_dir.iterdir() if (match := _ATTEMPT_FILE.match(path.name))]
    attempt = max(numbers, default=0) + 1  # so that no log and no metrics are overwritten
    trainer = run.config.trainer
    resumed = {"resume_path": Path(str(trainer.resume_from_path)), "auto": latest_checkpoint(run_dir)}
    checkpoint = resumed.get(trainer.resume_mode)
    first_step = step_of(checkpoint) if checkpoint else 0
    _refuse_links(run, first_step)
    _prepare(run, attempt, stream, first_prompt)
    log_file = run_dir / f"train-{attempt}.log"
    metrics_file = (run_dir / f"metrics-{attempt}.jsonl").resolve()
    show(f"log: {from_here(log_file)}", stream)
    progress = RunProgress(total_steps, stream, first_step)
    arguments = [*run.arguments, *_bookkeeping(run, metrics_file)]
    if alone:  # whatever starts meanwhile
        arguments.append("++ray_kwargs.ray_init.address=local")
    environment = training_environment(run.on_cpu, str(metrics_file), loopback=alone)
    if alone:
        environment |= private_ray(environment)
    log = MetricsLog(run_dir, begins=(attempt, first_step))
    try:
        secrets = [value for secret in secrets_of(flat(run.config)) for value in secret.values(environment)]
        with TrainingProcess(arguments, environment, log_file, [claim], start, secrets) as process:
            name_holder(claim, process.pid)
            problem = _follow(process, log, log_file, progress, stream)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(next_start(run.config, run_dir)) from interrupt
    finally:
        progress.close()
        last_step = _record_last_step(run_dir, log, first_step)
    if problem:
        next_time = next_start(run.config, run_dir)
        raise TrainingFailedError(f"{problem}\nAfter fixing this, {next_time}. Full log: {log_file}")
    if not run.config.trainer.val_only:
        write_record(
            run_dir, read_record(run_dir, needed=False).content() | {TRAINED: training_length(run.config, total_steps)}
        )
        if last_step is not None and total_steps is not None and last_step < total_steps:
            note = f"veRL ended after step {last_step}, not {total_steps}: it filters long prompts, and stops after total_epochs"
            show(f"note: {note}", stream)
    return log_file


def _record_last_step(run_dir: Path, log: MetricsLog, first_step: int) -> int | None:
    """Write the last step that a run has reached and its signals into ``run.json``; return the step, None if it is not known."""
    try:
        steps = log.read().line
        last_step = max([first_step, *(step.number for step in steps)])
        signals = [
            {"signal": each.signal.name, "first": each.first, "last": each.last, "stands": each.stands}
            for each in judge(steps)
        ]
        write_record(
            run_dir, read_record(run_dir, needed=False).content() | {LAST_STEP: last_step, STANDING_SIGNALS: signals}
        )
    except (ValueError, OSError):  # a damaged line, a full disk: the training's own error matters more
        return None
    return last_step


def _refuse_links(run: ComposedRun, first_step: int) -> None:
    """Refuse links in a run directory that veRL and Hydra, which start from `first_step`, would write through."""
    hydra = run.directory / HYDRA_DIRECTORY
    links = [path for path in (hydra, *hydra.rglob("*")) if path.is_symlink()]
    if run.config.trainer.resume_mode != "disable":  # otherwise the others are moved away
        links += links_of_saves(run.directory, first_step)
    raise_invalid(
        [f"{link} is a link, and the training would write to where it points; remove the link" for link in links]
    )


def _prepare(run: ComposedRun, attempt: int, stream: TextIO, first_prompt: dict[str, Any] | None) -> None:
    """Move abandoned checkpoints and metrics out of the way, then write ``config.yaml`` and ``run.json``.

    The order matters: the new ``config.yaml`` must not vouch for checkpoints that another configuration made.
    """
    run_dir = run.directory
    if run.config.trainer.resume_mode == "disable" and (abandoned := abandon_checkpoints(run_dir, attempt)):
        show(f"note: starting over; the earlier checkpoints are now in {abandoned}", stream)
    write_config(run.config, run_dir)
    starts_over = latest_checkpoint(run_dir) is None
    earlier = read_record(run_dir, needed=False).content()
    if "arm" in earlier:  # a study keeps its own record
        record = {key: value for key, value in earlier.items() if key not in (TRAINED, LAST_STEP, STANDING_SIGNALS)}
    else:
        command = [TRAINER, *run.arguments]
        record = {"trainer": "verl", "algorithm": run.choices.get("algorithm"), "command": command}
        record |= provenance(Path.cwd())
    files = {name: found for names in data_fingerprints(run.config).values() for name, found in names.items()}
    write_record(run_dir, record | {DATA_FILES: files} | ({FIRST_PROMPT: first_prompt} if first_prompt else {}))
    if starts_over:
        for path in MetricsLog(run_dir).files():  # the curves of a fresh start are its own
            path.rename(free_name(path.with_suffix(".jsonl.old")))


def _follow(process: TrainingProcess, log: MetricsLog, log_file: Path, progress: RunProgress, stream: TextIO) -> str:
    """Show the steps of a process until it ends; return an error message, or "" if it ended well."""
    watch, kills = LogWatch(log_file, process.has_lost), MemoryKills()

    def show_steps() -> None:
        with contextlib.suppress(ValueError):  # a damaged line must not end a training; whoever reads the run is told
            progress.update(log.read().line)

    def tick() -> None:
        show_steps()
        watch.check_alive()

    try:
        code = process.wait(tick)
        show_steps()
        watch.look()
    except WorkerDiedError as error:
        return f"{error}: {failure(log_file, kills=kills)}"
    finally:
        if watch.prompts_were_lost:
            show(f"note: {_PROMPTS_LOST}; search {log_file} for it", stream)
    return f"training ended with exit code {code}: {failure(log_file, code, kills)}" if code != 0 else ""


def _bookkeeping(run: ComposedRun, metrics_file: Path) -> list[str]:
    """Return overrides that add the ``file`` logger and put Hydra's own files into the run directory.

    On an existing Ray cluster only the runtime environment carries a variable to veRL's workers.
    """
    loggers = loggers_of(run.config)
    if "file" not in loggers:
        loggers.append("file")
    return [
        f"trainer.logger=[{','.join(loggers)}]",
        f"hydra.run.dir={quoted((run.directory / HYDRA_DIRECTORY).resolve())}",
        f"++ray_kwargs.ray_init.runtime_env.env_vars.{METRICS_VARIABLE}={quoted(metrics_file)}",
    ]
