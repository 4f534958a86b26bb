"""One training run from configuration to checkpoint."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from omegaconf import ListConfig, OmegaConf

from verl_trgrpo.common.files import lock, name_holder, replaced_file
from verl_trgrpo.common.findings import InvalidInputError, Level, raise_invalid
from verl_trgrpo.runs.check_process import CheckProcess
from verl_trgrpo.runs.checkpoints import abandon_checkpoints, latest_checkpoint, settle_checkpoint, step_of
from verl_trgrpo.runs.compose import DEFAULT_CONFIG, ComposedRun, compose, quoted
from verl_trgrpo.runs.environment import accelerator_found, training_environment
from verl_trgrpo.runs.log import LogWatch, WorkerDiedError, failure
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.process import TrainingProcess
from verl_trgrpo.runs.progress import Progress
from verl_trgrpo.runs.record import environment, read_record, write_record
from verl_trgrpo.runs.resume import CONFIG_FILE, check_same_run, next_start
from verl_trgrpo.runs.validate import Report, early_findings

LOCK_FILE = "run.lock"

_ATTEMPT_FILE = re.compile(r"(?:metrics|train)-(\d+)\.")
# In run.json: the number of steps, at most, of a training that went to its end.
_TRAINED = "trained_for"
_PROMPTS_LOST = 'a rollout or its reward failed and veRL trained without it ("Error in _run_prompt")'


class TrainingFailedError(RuntimeError):
    """The training process ended with an error; the message says which, and where the log is."""


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves behind.

    Args:
        run_dir: directory with everything.
        checkpoint: directory of the latest checkpoint, or None.
        log_file: output of the training process; None for a run that had already finished.
    """

    run_dir: Path
    checkpoint: Path | None
    log_file: Path | None


def run_training(
    overrides: Sequence[str] = (), source: str | Path = DEFAULT_CONFIG, stream: TextIO = sys.stderr
) -> Outcome:
    """Train with veRL as ``python -m verl.trainer.main_ppo`` would; `stream` takes notes and the progress bar.

    A run whose latest checkpoint is already at the last step is not started again. An interrupted one resumes from its
    latest checkpoint (``trainer.resume_mode=auto``). What is trained :func:`~verl_trgrpo.runs.compose.compose` says.

    Raises:
        InvalidInputError: before anything is started.
        BusyError: when another process trains in the run directory.
        TrainingFailedError: when the training process fails.
        KeyboardInterrupt: after a signal, when everything has been stopped; it says what the same command will do next time.
    """
    with CheckProcess() as process:
        run = compose_here(source, overrides)
        total_steps = _refuse_errors(run, process.check(run), stream)
    resumes = run.config.trainer.resume_mode == "auto"
    _check_continues(run, resumes)
    log_file = None
    if not _finished(run, total_steps):
        with _claimed(run.directory) as claim:
            if resumes:
                for note in settle_checkpoint(run.directory):
                    print(f"note: {note}", file=stream, flush=True)
                _check_continues(run, resumes)
            if not _finished(run, total_steps):
                log_file = _train(run, total_steps, stream, claim)
    return Outcome(run.directory, latest_checkpoint(run.directory), log_file)


def compose_here(source: str | Path, overrides: Sequence[str]) -> ComposedRun:
    """Compose the run for this machine: with platform=cpu where there is no accelerator.

    Raises:
        InvalidInputError: the run cannot be composed, lacks sections, or names files that do not exist.
    """
    run = compose(source, overrides, platform=None if accelerator_found() else "cpu")
    raise_invalid([finding.message for finding in early_findings(run)])
    return run


def _refuse_errors(run: ComposedRun, report: Report, stream: TextIO) -> int | None:
    """Raise the errors of a report and print its warnings; return the number of steps, at most, where it is known."""
    problems = report.messages(Level.ERROR)
    if run.config.actor_rollout_ref.rollout.name == "vllm" and importlib.util.find_spec("vllm") is None:
        problems.append(
            "actor_rollout_ref.rollout.name=vllm but vLLM is not installed; "
            'pip install "verl-trgrpo[gpu]" on a GPU machine, "verl-trgrpo[cpu]" elsewhere'
        )
    raise_invalid(problems)
    for warning in report.messages(Level.WARNING):
        print(f"warning: {warning}", file=stream, flush=True)
    return report.total_steps


def _check_continues(run: ComposedRun, resumes: bool) -> None:
    """Refuse the checkpoint of another configuration."""
    if resumes and latest_checkpoint(run.directory) is not None:
        check_same_run(run.config, run.directory)


@contextmanager
def _claimed(run_dir: Path) -> Iterator[int]:
    """Claim the run directory, which is made if needed; gives the lock's descriptor.

    The training inherits it: when the launcher is killed and its training goes on, a second launcher is refused.
    """
    busy = (
        f"{run_dir} is being trained in by process {{holder}}; wait for it, end it (kill {{holder}}), or choose another "
        "trainer.default_local_dir"
    )
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / LOCK_FILE).touch()
    except OSError as error:
        message = f"trainer.default_local_dir={run_dir} cannot be written ({error}); choose another directory"
        raise InvalidInputError([message]) from error
    with lock(run_dir / LOCK_FILE, busy) as claim:
        yield claim


def _finished(run: ComposedRun, total_steps: int | None) -> bool:
    checkpoint, trainer = latest_checkpoint(run.directory), run.config.trainer
    if checkpoint is None or total_steps is None or trainer.resume_mode != "auto" or trainer.val_only:
        return False
    # The number of steps is known at most: veRL's filter of long prompts may have left fewer.
    return step_of(checkpoint) >= total_steps or read_record(run.directory).get(_TRAINED) == total_steps


def _train(run: ComposedRun, total_steps: int | None, stream: TextIO, claim: int) -> Path:
    run_dir = run.directory
    attempt = _next_attempt(run_dir)
    # Before the configuration is replaced: it must not vouch for checkpoints that it did not make.
    if run.config.trainer.resume_mode == "disable" and (abandoned := abandon_checkpoints(run_dir, attempt)):
        print(f"note: starting over; the earlier checkpoints are now in {abandoned}", file=stream, flush=True)
    try:
        with replaced_file(run_dir / CONFIG_FILE) as file:
            OmegaConf.save(run.config, file)
    except OSError as error:
        message = f"{run_dir / CONFIG_FILE} cannot be written ({error}); make room, or choose another directory"
        raise InvalidInputError([message]) from error
    _record(run)
    checkpoint = latest_checkpoint(run_dir)
    if checkpoint is None:
        # Curves of an abandoned attempt would mix with those of a fresh start.
        for path in MetricsLog(run_dir).attempts():
            path.rename(path.with_suffix(".jsonl.old"))
    log_file = run_dir / f"train-{attempt}.log"
    metrics_file = (run_dir / f"metrics-{attempt}.jsonl").resolve()
    environment = training_environment(run.on_cpu, str(metrics_file))
    print(f"log: {log_file}", file=stream, flush=True)
    log = MetricsLog(run_dir, first=attempt)
    progress = Progress(total_steps, stream, step_of(checkpoint) if checkpoint else 0)
    try:
        arguments = [*run.arguments, *_bookkeeping(run, metrics_file)]
        with TrainingProcess(arguments, environment, log_file, inherit=[claim]) as process:
            name_holder(claim, process.pid)
            problem = _follow(process, log, log_file, progress, stream)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(next_start(run.config, run_dir)) from interrupt
    if problem:
        next_time = next_start(run.config, run_dir)
        raise TrainingFailedError(f"{problem}\nOnce that is mended, {next_time}. The whole story is in {log_file}")
    write_record(run_dir, read_record(run_dir) | {_TRAINED: total_steps})
    return log_file


def _record(run: ComposedRun) -> None:
    """Write ``run.json``: versions, commit and command. The runs of a study have one already, which the study keeps."""
    if "arm" not in read_record(run.directory):
        command = ["verl.trainer.main_ppo", *run.arguments]
        record = {"trainer": "verl", "algorithm": run.choices.get("algorithm"), "command": command}
        write_record(run.directory, record | environment(Path.cwd()))


def _follow(process: TrainingProcess, log: MetricsLog, log_file: Path, progress: Progress, stream: TextIO) -> str:
    """Show progress until the process ends; returns what went wrong, nothing when it ended well."""
    watch = LogWatch(log_file)

    def show() -> None:
        with contextlib.suppress(
            ValueError
        ):  # a line that is none of veRL's ends no training; who reads the run later says so
            progress.update(log.read())

    def tick() -> None:
        show()
        watch.check_alive()

    try:
        code = process.wait(tick)
        show()
        watch.look()
    except WorkerDiedError as error:
        return f"{error}: {failure(log_file)}"
    finally:
        progress.close()
        if watch.prompts_were_lost:
            print(f"note: {_PROMPTS_LOST}; look for it in {log_file}", file=stream, flush=True)
    return f"training ended with exit code {code}: {failure(log_file)}" if code != 0 else ""


def _next_attempt(run_dir: Path) -> int:
    """One more than the largest number of a log or metrics file: nothing is ever overwritten."""
    numbers = [int(match[1]) for path in run_dir.iterdir() if (match := _ATTEMPT_FILE.match(path.name))]
    return max(numbers, default=0) + 1


def _bookkeeping(run: ComposedRun, metrics_file: Path) -> list[str]:
    """Overrides for what the launcher reads: the ``file`` logger, and Hydra's own files in the run directory.

    On a Ray cluster that was there before, only the runtime environment carries a variable to veRL's workers.
    """
    logger = run.config.trainer.logger
    loggers = list(logger) if isinstance(logger, (list, ListConfig)) else [logger] if logger else []
    if "file" not in loggers:
        loggers.append("file")
    return [
        f"trainer.logger=[{','.join(loggers)}]",
        f"hydra.run.dir={quoted((run.directory / 'hydra').resolve())}",
        f"++ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH={quoted(metrics_file)}",
    ]
