"""Commands about several runs: ``verl-trgrpo compare`` and ``verl-trgrpo report``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.common.text import show
from verl_trgrpo.compare.page import ReportOptions


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
    """
    from verl_trgrpo.compare.runner import all_unpacked, make_inputs, run_study, write_tables
    from verl_trgrpo.compare.study import read_study

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
        show(f"note: {note}", sys.stderr)
    show(options.out)
    return 0
