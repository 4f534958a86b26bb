"""One training run from configuration to summary."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from omegaconf import ListConfig, OmegaConf

from verl_trgrpo.runs.charts import plot_curves
from verl_trgrpo.runs.launch.checkpoints import (
    abandon_checkpoints,
    checkpoints,
    latest_checkpoint,
    settle_checkpoint,
    step_of,
)
from verl_trgrpo.runs.launch.child import TrainingProcess
from verl_trgrpo.runs.launch.claim import LOCK_FILE, claimed, name_holder
from verl_trgrpo.runs.launch.configuration import DEFAULT_CONFIG, ConfigurationError, Plan, make_plan, quoted
from verl_trgrpo.runs.launch.environment import accelerator_found, training_environment
from verl_trgrpo.runs.launch.hints import hints
from verl_trgrpo.runs.launch.log_watch import EngineDeadError, LogWatch
from verl_trgrpo.runs.launch.progress import Progress
from verl_trgrpo.runs.launch.resumption import TrainingInterruptedError, next_start
from verl_trgrpo.runs.launch.same_run import check_same_run, flat
from verl_trgrpo.runs.metrics import MetricsLog, summarize

CONFIG_FILE = "config.yaml"

_ATTEMPT_FILE = re.compile(r"(?:metrics|train)-(\d+)\.")
_RAY_PREFIX = re.compile(r"\x1b\[[0-9;]*m|^\([^)]*pid=\d+[^)]*\)\s?")
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)(?::|$)")
# Ray's and Hydra's own lines around an error say nothing about it.
_WRAPPER = re.compile(r"^(?:ray\.exceptions|hydra\.errors)\.|^Exception raised in creation task")
_PROMPTS_LOST = 'a rollout or its reward failed and veRL trained without it ("Error in _run_prompt")'


class TrainingFailedError(RuntimeError):
    """The training process ended with an error; the message says which, and where the log is."""


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves behind.

    Args:
        run_dir: directory with everything.
        summary: figures of :func:`verl_trgrpo.runs.metrics.summarize`.
        curves: PNG of the curves, or None when no step was logged.
        checkpoint: directory of the latest checkpoint, or None.
        log_file: output of the training process.
    """

    run_dir: Path
    summary: dict[str, Any]
    curves: Path | None
    checkpoint: Path | None
    log_file: Path | None


def run_training(
    overrides: Sequence[str], config_name: str = DEFAULT_CONFIG, stream: TextIO = sys.stderr, title: str | None = None
) -> Outcome:
    """Train with veRL as ``python -m verl.trainer.main_ppo`` would, and report.

    A run whose latest checkpoint is already at the last step is not started again. An interrupted one resumes from its
    latest checkpoint (``trainer.resume_mode=auto``).

    Args:
        overrides: Hydra overrides, as on veRL's command line.
        config_name: primary configuration.
        stream: for the progress bar.
        title: of the curves; the run directory by default.

    Raises:
        ConfigurationError: before anything is started.
        TrainingFailedError: when the training process fails.
        TrainingInterruptedError: after a signal, when everything has been stopped.
    """
    plan = make_plan(config_name, overrides, on_cpu=not accelerator_found())
    resumes = plan.config.trainer.resume_mode == "auto"
    _check_continues(plan, resumes)
    log_file = None
    if not _finished(plan):
        _make_directory(plan.run_dir)
        with claimed(plan.run_dir) as claim:
            if resumes:
                for note in settle_checkpoint(plan.run_dir).notes:
                    print(f"note: {note}", file=stream, flush=True)
                _check_continues(plan, resumes)
            if not _finished(plan):
                log_file = _train(plan, config_name, stream, claim)
    return _report(plan, log_file, title or plan.run_dir.name)


def _check_continues(plan: Plan, resumes: bool) -> None:
    """Refuse the checkpoint of another configuration."""
    if resumes and latest_checkpoint(plan.run_dir) is not None:
        check_same_run(plan.config, plan.run_dir / CONFIG_FILE)


def _make_directory(run_dir: Path) -> None:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / LOCK_FILE).touch()
    except OSError as error:
        raise ConfigurationError(
            [f"trainer.default_local_dir={run_dir} cannot be written ({error}); choose another directory"]
        ) from error


def _finished(plan: Plan) -> bool:
    checkpoint = latest_checkpoint(plan.run_dir)
    resumes = plan.config.trainer.resume_mode == "auto" and not plan.config.trainer.val_only
    if checkpoint is None or plan.total_steps is None or not resumes:
        return False
    return step_of(checkpoint) >= plan.total_steps


def _train(plan: Plan, config_name: str, stream: TextIO, claim: int) -> Path:
    attempt = _next_attempt(plan.run_dir)
    # Before the configuration is replaced: it must not vouch for checkpoints that it did not make.
    if plan.config.trainer.resume_mode == "disable":
        _start_over(plan, attempt, stream)
    _write_config(plan)
    checkpoint = latest_checkpoint(plan.run_dir)
    if checkpoint is None:
        _set_aside(plan.run_dir)  # curves of an abandoned attempt would mix with those of a fresh start
    log_file = plan.run_dir / f"train-{attempt}.log"
    metrics_file = plan.run_dir / f"metrics-{attempt}.jsonl"
    arguments = ["--config-name", config_name, *plan.overrides, *_bookkeeping(plan, metrics_file.resolve())]
    print(f"log: {log_file}", file=stream, flush=True)
    environment = training_environment(plan.on_cpu, str(metrics_file.resolve()))
    start = step_of(checkpoint) if checkpoint else 0
    log, progress = MetricsLog(plan.run_dir, first=attempt), Progress(plan.total_steps, stream, start)
    try:
        with TrainingProcess(arguments, environment, log_file, inherit=[claim]) as process:
            name_holder(claim, process.pid)
            problem = _follow(process, log, log_file, progress, stream)
    except KeyboardInterrupt as interrupt:
        raise TrainingInterruptedError(next_start(plan.config, plan.run_dir)) from interrupt
    if problem:
        next_time = next_start(plan.config, plan.run_dir)
        raise TrainingFailedError(f"{problem}\nOnce that is mended, {next_time}. The whole story is in {log_file}")
    return log_file


def _start_over(plan: Plan, attempt: int, stream: TextIO) -> None:
    """Move the checkpoints of earlier attempts away, unless the run itself needs one of them: a model, an adapter."""
    there = {checkpoint.resolve() for checkpoint in checkpoints(plan.run_dir)}
    needed = [
        f"{key}={text} is in a checkpoint of this run directory, which trainer.resume_mode=disable would move away; "
        "choose another trainer.default_local_dir"
        for key, value in flat(OmegaConf.to_container(plan.config, resolve=True)).items()
        for text in (value if isinstance(value, list) else [value])
        if isinstance(text, str) and "global_step_" in text
        if there & {(path := Path(text).expanduser().resolve()), *path.parents}
    ]
    if needed:
        raise ConfigurationError(needed)
    if abandoned := abandon_checkpoints(plan.run_dir, attempt):
        print(f"note: starting over; the earlier checkpoints are now in {abandoned}", file=stream, flush=True)


def _follow(process: TrainingProcess, log: MetricsLog, log_file: Path, progress: Progress, stream: TextIO) -> str:
    """Show progress until the process ends; returns what went wrong, nothing when it ended well."""
    watch = LogWatch(log_file)

    def tick() -> None:
        progress.update(log.read())
        watch.check_alive()

    try:
        code = process.wait(tick)
        progress.update(log.read())
        watch.look()
    except EngineDeadError as error:
        return f"{error}."
    finally:
        progress.close()
        if watch.prompts_were_lost:
            print(f"note: {_PROMPTS_LOST}; look for it in {log_file}", file=stream, flush=True)
    return _failure(log_file, code) if code != 0 else ""


def _write_config(plan: Plan) -> None:
    """Record what the run was asked for; renamed into place, so that an interruption never leaves half of it."""
    path = plan.run_dir / CONFIG_FILE
    temporary = path.with_suffix(".tmp")
    try:
        OmegaConf.save(plan.config, temporary)
        temporary.replace(path)
    except OSError as error:
        raise ConfigurationError(
            [f"{path} cannot be written ({error}); make room, or choose another directory"]
        ) from error


def _next_attempt(run_dir: Path) -> int:
    """One more than the largest number of a log or metrics file: nothing is ever overwritten."""
    numbers = [int(match[1]) for path in run_dir.iterdir() if (match := _ATTEMPT_FILE.match(path.name))]
    return max(numbers, default=0) + 1


def _set_aside(run_dir: Path) -> None:
    for path in MetricsLog(run_dir).attempts():
        path.rename(path.with_suffix(".jsonl.old"))


def _bookkeeping(plan: Plan, metrics_file: Path) -> list[str]:
    """Overrides for what the launcher reads: the ``file`` logger, and Hydra's own files in the run directory.

    On a Ray cluster that was there before, only the runtime environment carries a variable to veRL's workers.
    """
    logger = plan.config.trainer.logger
    loggers = list(logger) if isinstance(logger, (list, ListConfig)) else [logger] if logger else []
    if "file" not in loggers:
        loggers.append("file")
    return [
        f"trainer.logger=[{','.join(loggers)}]",
        f"hydra.run.dir={quoted((plan.run_dir / 'hydra').resolve())}",
        f"++ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH={quoted(metrics_file)}",
    ]


def _failure(log_file: Path, code: int) -> str:
    """The last error of the log in one paragraph."""
    lines = [
        _RAY_PREFIX.sub("", _RAY_PREFIX.sub("", line)) for line in log_file.read_text(errors="replace").splitlines()
    ]
    # Libraries mention harmless errors in passing; one that ended something stands below a traceback.
    first = next((i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")), 0)
    found = [
        line.strip() for line in lines[first:] if _EXCEPTION.match(line.strip()) and not _WRAPPER.match(line.strip())
    ]
    # The first error is the cause; Ray repeats it, and the last one may be no more than its consequence.
    errors = [found[0], *(f"(finally: {line})" for line in found[-1:] if line != found[0])] if found else []
    explained = [f"({hint})" for hint in hints(lines, log_file.parent)]
    # Ray's own words about a killed process say less than the hint, and the last lines may be about anything.
    cause = "\n".join([*errors, *explained] or lines[-5:]) or "no output"
    return f"training ended with exit code {code}: {cause}"


def _report(plan: Plan, log_file: Path | None, title: str) -> Outcome:
    steps = MetricsLog(plan.run_dir).read()
    summary = summarize(steps)
    (plan.run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    curves = plot_curves(steps, plan.run_dir / "curves.png", title) if steps else None
    return Outcome(plan.run_dir, summary, curves, latest_checkpoint(plan.run_dir), log_file)
