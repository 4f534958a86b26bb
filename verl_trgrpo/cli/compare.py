"""Train every arm of a study with every seed, and print a table of means with 95 % intervals and paired tests.

examples:
  verl-trgrpo compare recipes/compare/kk_tiny.yaml --jobs 2    tiny models; small_lm.yaml is the main study of docs/results.md
  verl-trgrpo compare recipes/compare/kk_tiny.yaml seeds=[0,1] settings.steps=4 --arms grpo tr_grpo --out runs/try

Every run has its directory OUT/runs/ARM/seed-N. The same command again resumes interrupted runs and skips finished ones. OUT
receives table.md and table.json; `verl-trgrpo report OUT` draws the curves.
Exit code: 0 fine, 1 a run failed, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.options import parse_options
from verl_trgrpo.common.progress import interruptible


@dataclass(frozen=True)
class CompareOptions:
    """Study to run, and how.

    Args:
        study: a YAML file with arms, seeds and settings; KEY=VALUE words override its keys.
        overrides: those words.
        arms: arms to run; all of the study if left out.
        out: directory of the study; runs/compare/STUDY if left out.
        jobs: number of runs at once.
    """

    study: Path
    overrides: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    out: Path | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"--jobs {self.jobs}: less than 1; give at least 1")


def run(words: Sequence[str]) -> int:
    options = parse_options(CompareOptions, "verl-trgrpo compare", __doc__, words, ["study"], "overrides")
    from verl_trgrpo.runs.compare.results import write_tables
    from verl_trgrpo.runs.compare.runner import all_unpacked, make_inputs, run_study
    from verl_trgrpo.runs.compare.study import read_study

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
            "the same command goes on: it skips finished runs and resumes others from their latest checkpoints, if they kept any"
        ) from None
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if len(failures) < len(study.arms) * len(study.seeds):
        print(write_tables(study, out))
        print(f"\n{out / 'table.md'}, {out / 'table.json'}")
    return int(bool(failures))
