"""Commands about one run: ``verl-trgrpo validate`` and ``verl-trgrpo health``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import escape_controls


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
