"""Commands about runs: ``verl-trgrpo validate``, ``health``, ``compare`` and ``report``."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import escape_controls
from verl_trgrpo.compare.page import ReportOptions


@dataclass(frozen=True)
class ValidateOptions:
    """Select the configuration and what to print.

    Args:
        config: recipe file, or name of a configuration, such as trgrpo_trainer.
        overrides: Hydra overrides, all before or all after the options.
        show: also print where the configuration differs from veRL's defaults, and the number of steps.
        no_files: report missing data and model files as "not checked", for machines that do not have them.
    """

    config: tyro.conf.Positional[str]
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    show: bool = False
    no_files: bool = False

    def __post_init__(self) -> None:
        if "=" in self.config and not Path(self.config).is_file():
            raise ValueError(f"{self.config} is an override, not a configuration; give a recipe file or a name first")


def validate(options: ValidateOptions) -> int:
    """Find all mistakes in a recipe or configuration without starting it.

    examples:
      verl-trgrpo validate recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml trainer.nnodes=2 --show
      verl-trgrpo validate trgrpo_trainer data.train_files=train.parquet data.val_files=test.parquet ...
      verl-trgrpo validate kk_quickstart platform=cpu --no-files        as on a machine without an accelerator

    notes:
      The configuration is composed as for a training on accelerators, wherever the command runs.
      It is checked in three stages: single settings and files, veRL's dataclasses, rules between settings.
      A stage with errors ends the check.
      "Not checked" is what cannot be checked on this machine, such as a model on a hub.

    exit codes:
      0 no errors, 1 errors, 2 the configuration cannot be composed
    """
    from verl_trgrpo.checks import check
    from verl_trgrpo.runs.compose import compose

    composed, need_files = compose(options.config, options.overrides), not options.no_files
    early = [finding for finding in check.early_findings(composed, need_files) if finding.level is Level.ERROR]
    if early:
        lines = [*(f"error: {finding.message}" for finding in early), "checking the rest ..."]
        print("\n".join(lines), file=sys.stderr, flush=True)
    report = check.check(composed, need_files)
    print(report.findings_text())
    if options.show:
        print(f"\n{report.details_text()}")
    return 0 if report.ok else 1


@dataclass(frozen=True)
class HealthOptions:
    """Select the run.

    Args:
        path: run directory of this project, or a file of veRL's ``file`` logger (trainer.logger=[console,file]).
    """

    path: tyro.conf.Positional[Path]


def health(options: HealthOptions) -> int:
    """Judge a run by its metrics, finished or growing: which signals stand, what they mean, what to do.

    examples:
      verl-trgrpo health runs/quickstart/tr_grpo-seed0
      verl-trgrpo health metrics.jsonl || scancel $JOB     a file of veRL's file logger; for scripts

    exit codes:
      0 no signal stands at the last step, 1 one does, 2 the path holds no metrics
    """
    from verl_trgrpo.runs.health import judge
    from verl_trgrpo.runs.metrics import read_steps

    if not options.path.exists():
        raise ValueError(f"{options.path} does not exist; name a run directory or a file of veRL's file logger")
    steps = read_steps(options.path)
    if not steps:
        raise ValueError(
            f"{options.path} holds no metrics; give a run directory with metrics-N.jsonl, or the file that veRL's logger "
            "`file` wrote (trainer.logger=[console,file], VERL_FILE_LOGGER_PATH)"
        )
    findings = judge(steps)
    for finding in findings:
        print(escape_controls(f"{'stands' if finding.stands else 'over  '}  {finding.message}"))
    standing = sum(finding.stands for finding in findings)
    print(f"{len(steps)} steps, the last is {steps[-1].number}: {standing or 'no'} signal{'s' * (standing != 1)}")
    return 1 if standing else 0


@dataclass(frozen=True)
class CompareOptions(Options):
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


def compare(options: CompareOptions) -> int:
    """Train every arm of a study with every seed; print a table of means with 95 % intervals and paired tests.

    examples:
      verl-trgrpo compare studies/comparisons/kk_tiny.yaml --jobs 2    tiny models
      verl-trgrpo compare studies/comparisons/small_lm.yaml --jobs 2   the main study of docs/results.md
      verl-trgrpo compare studies/comparisons/kk_tiny.yaml seeds=[0,1] settings.steps=4 --arms grpo tr_grpo --out runs/try

    notes:
      Each run has its directory, OUT/runs/ARM/seed-N. OUT receives table.md and table.json.
      The same command continues an interrupted study: it starts only runs that have not finished.
      `verl-trgrpo report OUT` draws the curves.

    exit codes:
      0 success, 1 a run failed, 2 invalid input, 130 interrupted
    """
    from verl_trgrpo.compare.runner import all_unpacked, make_inputs, run_study, write_tables
    from verl_trgrpo.compare.study import read_study

    study = read_study(options.study, options.overrides, options.arms)
    out = options.out or Path("runs") / "compare" / options.study.stem
    print(f"{len(study.arms)} arms x {len(study.seeds)} seeds in {out}", file=sys.stderr)
    failures: list[str] = []
    try:
        with interruptible(signal.SIGTERM) as progress:
            if not all_unpacked(study, out):
                inputs = make_inputs(study, out.resolve())
                failures = run_study(study, inputs, out.resolve(), options.jobs, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "the same command continues: finished runs are kept, others start from their latest checkpoint, if any"
        ) from None
    for failure in failures:
        print(escape_controls(f"failed: {failure}"), file=sys.stderr)
    if len(failures) < len(study.arms) * len(study.seeds):
        print(escape_controls(write_tables(study, out)))
        print(f"\n{out / 'table.md'}, {out / 'table.json'}")
    return int(bool(failures))


def report(options: ReportOptions) -> int:
    """Compare training runs on one self-contained HTML page.

    examples:
      verl-trgrpo report runs/compare/kk_tiny                     a directory that `verl-trgrpo compare` wrote
      verl-trgrpo report runs/grpo-seed0 runs/tr_grpo-seed0       ARM-seedN are seeds of ARM

    notes:
      A run is a directory with logs of veRL's file logger (trainer.logger=["file"]), or one such file.
      docs/report.md explains each figure.
    """
    from verl_trgrpo.compare.page import build_report

    for note in build_report(options):
        print(escape_controls(f"note: {note}"), file=sys.stderr)
    print(options.out)
    return 0
