"""``verl-trgrpo health``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from verl_trgrpo.common.text import escape_controls


@dataclass(frozen=True)
class HealthOptions:
    """Select the run.

    Args:
        path: run directory of this project, or a file of veRL's ``file`` logger (trainer.logger=[console,file]).
    """

    path: tyro.conf.Positional[Path]


def run(options: HealthOptions) -> int:
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
