"""Train every arm of a study with every seed, several at once; print a table of means with 95 % intervals and paired tests.

examples, from a checkout:
  python -m studies.comparisons.run studies/comparisons/kk_tiny.yaml --jobs 2    tiny models
  python -m studies.comparisons.run studies/comparisons/small_lm.yaml --jobs 2   the main study of docs/results.md
  python -m studies.comparisons.run studies/comparisons/kk_tiny.yaml seeds=[0,1] settings.steps=4 --arms grpo tr_grpo --out DIR

Each run has its directory, OUT/runs/ARM/seed-N. OUT receives table.md and table.json. The same command continues an interrupted
study: it starts only runs that have not finished. Exit code: 0 fine, 1 a run failed, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from studies.comparisons.study import OUT, Study, read_study
from verl_trgrpo.common.files import BusyError, file_sha256, lock, name_holder, open_plain, write_json, write_text
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.foreign import open_foreign
from verl_trgrpo.common.options import Options, exit_code, parse_options
from verl_trgrpo.common.progress import INTERRUPTIONS, Progress, handle_signals, interruptible, no_progress
from verl_trgrpo.common.text import show
from verl_trgrpo.compare.arms import Run, find_run
from verl_trgrpo.compare.comparison import OUTCOME, compare_runs
from verl_trgrpo.compare.tables import comparison_tables, figure_list, markdown_tables
from verl_trgrpo.runs.environment import provenance
from verl_trgrpo.runs.records import RunRecord, read_record, write_record

# Not the lock of `verl-trgrpo train`, which a run acquires in addition.
LOG, LOCK = "run.log", "study.lock"
# Bytes at the end of a log in which its last line is looked for.
_ENDING = 1 << 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ComparisonOptions(Options):
    """Select the study and its runs.

    Args:
        study: YAML file with arms, seeds and settings.
        overrides: KEY=VALUE words that replace values of the study, all before or all after the options.
        arms: arms to run; all of the study if left out.
        out: directory of the study; runs/compare/STUDY if left out.
        jobs: number of runs at once.
    """

    study: tyro.conf.Positional[Path]
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    arms: tuple[str, ...] = ()
    out: Path | None = None
    jobs: Annotated[int, "[1, inf)"] = 1

    def problems(self) -> list[str]:
        """Return a message for each arm that is an override."""
        return [f"--arms: {arm} is an override; put it before --arms" for arm in self.arms if "=" in arm]


class Inputs(NamedTuple):
    """Train and test prompts (Parquet) and the model, the same for all runs of a study."""

    train: Path
    test: Path
    model: str


def run_directory(out: Path, arm: str, seed: int) -> Path:
    """Return the directory of a run: ``OUT/runs/<arm>/seed-<seed>``."""
    return out / "runs" / arm / f"seed-{seed}"


def make_inputs(study: Study, out: Path) -> Inputs:
    """Run the commands that a study prepares data and model with, and return its inputs; `out` is its output directory.

    Raises:
        ValueError: a command failed, or a data file is not there.
    """
    for command in study.prepare:
        program = [word.replace(OUT, str(out)) for word in shlex.split(command)]
        if program[:1] == ["python"]:
            program[0] = sys.executable
        code = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        if code:
            raise ValueError(f"prepare failed with exit code {code}, see above: {shlex.join(program)}")
    files = {name: Path(file.replace(OUT, str(out))).resolve() for name, file in study.data.items()}
    raise_invalid([f"data.{name}={file} does not exist" for name, file in files.items() if not file.is_file()])
    return Inputs(files["train"], files["test"], study.model.replace(OUT, str(out)))


def run_command(study: Study, inputs: Inputs, arm: str, seed: int, run_dir: Path) -> list[str]:
    """Return the arguments of ``python`` that train one arm with one seed in `run_dir`, or resume it."""
    settings = {**study.settings, **study.arms[arm]}
    if study.trainer == "script":
        flags = {**inputs._asdict(), "out": run_dir, "seed": seed, **settings}
        given = []
        for name, value in flags.items():
            if value is not False:
                given += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return [study.script, *given, "--resume"]
    from verl_trgrpo.runs.compose import run_overrides

    name = f"{run_dir.parent.name}-{run_dir.name}"
    overrides = run_overrides(inputs.train, inputs.test, inputs.model, run_dir, name, seed)
    overrides += [f"{key}={value}" for key, value in settings.items()]
    return ["-m", "verl_trgrpo", "train", study.config, *overrides]


def run_study(study: Study, inputs: Inputs, out: Path, jobs: int = 1, progress: Progress = no_progress) -> list[str]:
    """Train the runs that are not finished; records unpacked from an archive count as finished.

    Runs are started seed by seed through all arms, `jobs` at a time, so that a study that is stopped early has complete seeds.
    An interrupted run resumes from its latest checkpoint.

    Returns:
        a message for each run that failed; the others are finished.

    Raises:
        ValueError: a run in `out` was started with other settings or data.
        KeyboardInterrupt: raised after all processes have ended.
    """
    todo = _unfinished(study, inputs, out)
    checkout = Path(study.script).parent
    running: dict[subprocess.Popen[bytes], tuple[Path, dict[str, Any]]] = {}
    try:
        failures = []
        for failure in progress(_results(todo, running, jobs, checkout), len(todo), "runs"):
            if failure:
                logger.warning("%s", failure)
                failures.append(failure)
        return failures
    finally:
        for process in running:
            process.terminate()
        deadline = time.monotonic() + 60
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _unfinished(study: Study, inputs: Inputs, out: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return directory and record of the runs to start or to resume, in order."""
    data = {"train": file_sha256(inputs.train), "test": file_sha256(inputs.test)}
    todo = []
    for seed in study.seeds:
        for arm in study.arms:
            run_dir = run_directory(out, arm, seed)
            command = run_command(study, inputs, arm, seed, run_dir)
            settings = {**study.settings, **study.arms[arm]}
            record = read_record(run_dir)
            if record.content() and record.command != command and not _is_unpacked(record, settings):
                raise ValueError(
                    f"{run_dir} was started with other settings ({run_dir / 'run.json'}); choose another --out"
                )
            if record.data not in (None, data):
                raise ValueError(
                    f"{run_dir} was started with other contents of {inputs.train} or {inputs.test}; choose another --out"
                )
            if not record.finished:
                start = {
                    "arm": arm,
                    "seed": seed,
                    "study": {"baseline": study.baseline, "primary": study.primary, "margin": study.margin},
                    "trainer": study.trainer,
                    "settings": settings,
                    "command": command,
                    "data": data,
                    "finished": False,
                }
                todo.append((run_dir, start))
    return todo


def all_unpacked(study: Study, out: Path) -> bool:
    """Return whether `out` has unpacked records of all runs of a study, so that no inputs have to be built."""
    return all(
        _is_unpacked(read_record(run_directory(out, arm, seed)), {**study.settings, **own})
        for arm, own in study.arms.items()
        for seed in study.seeds
    )


def _is_unpacked(record: RunRecord, settings: dict[str, Any]) -> bool:
    """Return whether a record was unpacked: packing removes the command, which names directories of another machine."""
    return bool(record.finished) and record.command is None and record.settings == settings


def _results(
    todo: list[tuple[Path, dict[str, Any]]],
    running: dict[subprocess.Popen[bytes], tuple[Path, dict[str, Any]]],
    jobs: int,
    checkout: Path,
) -> Iterator[str]:
    """Start runs, and yield an error message, or "", for each that ends; `running` has those in progress."""
    waiting = iter(todo)
    left = len(todo)
    heard: list[int] = []
    while left:
        while len(running) < jobs and (following := next(waiting, None)):
            run_dir, record = following
            record |= provenance(checkout)  # of now: the study may have begun hours ago
            busy = ""
            # An interruption amid the start would lose a process that exists and is not in `running` yet.
            with handle_signals(lambda number, _: heard.append(number), *INTERRUPTIONS):
                try:
                    running[_start(run_dir, record)] = following
                except BusyError as error:
                    busy = str(error)
            if heard:
                raise KeyboardInterrupt
            if busy:
                left -= 1
                yield busy
        for process in [process for process in running if process.poll() is not None]:
            run_dir, record = running.pop(process)
            write_record(run_dir, record | {"finished": process.returncode == 0})
            left -= 1
            yield "" if process.returncode == 0 else _failure(run_dir, process.returncode)
        time.sleep(0.1)


def _start(run_dir: Path, record: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a run; the process inherits the run's lock, so that the next command detects a trainer that outlived this one."""
    run_dir.mkdir(parents=True, exist_ok=True)
    busy = f"{run_dir}: still trained by another process ({{holder}}); wait for it or stop it"
    with lock(run_dir / LOCK, busy) as descriptor, os.fdopen(open_plain(run_dir / LOG, os.O_APPEND), "ab") as output:
        write_record(run_dir, record)
        # In its own session: Ctrl-C reaches only this process, which then ends the others.
        process = subprocess.Popen(
            [sys.executable, *record["command"]],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[descriptor],
        )
        name_holder(descriptor, process.pid)
    return process


def _failure(run_dir: Path, code: int) -> str:
    log = run_dir / LOG
    if code == -signal.SIGKILL:
        return f"{run_dir}: killed (SIGKILL), most likely because memory ran out; use fewer --jobs, see {log}"
    with open_foreign(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _ENDING))
        lines = file.read(_ENDING).decode(errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    return f"{run_dir}: exit code {code}: {last}, see {log}"


def finished_runs(study: Study, out: Path) -> dict[str, list[Run]]:
    """Read the finished runs of a study in `out`, by arm."""
    places = {arm: [run_directory(out, arm, seed) for seed in study.seeds] for arm in study.arms}
    return {
        arm: [run for path in paths if path.is_dir() and (run := find_run(path)) and run.record.finished]
        for arm, paths in places.items()
    }


def write_tables(study: Study, out: Path) -> str:
    """Write ``table.md`` and ``table.json`` of a study's finished runs to `out`, and return the content of the former.

    Raises:
        ValueError: no run of the study is finished, or none logged the study's accuracy.
    """
    arms = finished_runs(study, out)
    if not any(arms.values()):
        raise ValueError(f"{out} has no finished run of this study")
    figures, found = compare_runs(arms, study.baseline, study.accuracy or None, study.primary, study.margin)
    if study.accuracy and not any(OUTCOME in row for row in found.values()):
        logged = {name for runs in arms.values() for run in runs for step in run.steps for name in step.metrics}
        known = sorted(name for name in logged if name.startswith("val-core/"))
        raise ValueError(f"accuracy={study.accuracy}: no finished run logged it; they have {known}")
    total = len(study.arms) * len(study.seeds)
    missing = total - sum(map(len, arms.values()))
    parts = [
        f"## {study.title}",
        f"{missing} of {total} runs are not finished." if missing else "",
        markdown_tables(comparison_tables(found, study.baseline, study.primary, study.margin)),
        figure_list(found),
    ]
    if study.hypotheses:
        parts += ["Stated before the runs:", "\n".join(f"- {text}" for text in study.hypotheses)]
    text = "\n\n".join(filter(None, parts)) + "\n"
    write_text(out / "table.md", text)
    content = {
        "title": study.title,
        "hypotheses": study.hypotheses,
        "baseline": study.baseline,
        "primary": study.primary,
        "margin": study.margin,
        "accuracy": study.accuracy or "mean over data sources",
        "runs": figures,
        "comparison": {arm: {name: asdict(entry) for name, entry in row.items()} for arm, row in found.items()},
    }
    write_json(out / "table.json", content)
    return text


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    options = parse_options(ComparisonOptions, "python -m studies.comparisons.run", argv=argv)
    study = read_study(options.study, options.overrides, options.arms)
    out = options.out or Path("runs") / "compare" / options.study.stem
    show(f"{len(study.arms)} arms x {len(study.seeds)} seeds in {out}", sys.stderr)
    failures: list[str] = []
    try:
        with interruptible() as progress:
            if not all_unpacked(study, out):
                inputs = make_inputs(study, out.resolve())
                failures = run_study(study, inputs, out.resolve(), options.jobs, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "the same command continues: finished runs are kept, others start from their latest checkpoint, if any"
        ) from None
    for failure in failures:
        show(f"failed: {failure}", sys.stderr)
    if len(failures) < len(study.arms) * len(study.seeds):
        show(write_tables(study, out))
        show(f"\n{out / 'table.md'}, {out / 'table.json'}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(exit_code(partial(main, sys.argv[1:])))
