"""``verl-trgrpo compare``: algorithms times seeds on one task, and a table with intervals."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

_EPILOG = """\
examples:
  verl-trgrpo compare recipes/compare/kk_tiny.yaml --jobs 2           the table of docs/results.md
  verl-trgrpo compare recipes/compare/kk_tiny.yaml seeds=[0,1] settings.steps=4 --out runs/try
  verl-trgrpo compare recipes/compare/kk_tiny_verl.yaml               a part of it through veRL itself
  verl-trgrpo compare recipes/compare/kk_tiny.yaml settings.epochs=4 --arms grpo tr_grpo --out runs/compare/epochs4
  verl-trgrpo compare recipes/compare/kk_tiny.yaml --table            the table of what is finished, without running

Every run has its directory OUT/runs/ARM/seed-N with run.json (settings, commit, versions, machine), run.log, metrics and
checkpoint. The same command goes on where it was interrupted and runs only what is not finished. OUT receives table.md and
table.json; `verl-trgrpo report OUT --out report.html` draws the curves.
Exit code: 0 fine, 1 a run failed, 2 wrong input, 130 interrupted.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "compare",
        help="train several algorithms with several seeds and compare them, with intervals and paired tests",
        description="Train every arm of a study with every seed, and print a table of means with 95 % intervals.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, when_interrupted="the same command goes on from the latest checkpoint of each run")
    parser.add_argument("study", type=Path, metavar="STUDY.yaml", help="arms, seeds and settings")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="other values for keys of the study")
    parser.add_argument("--arms", nargs="+", default=[], metavar="ARM", help="only these (default: all of the study)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/compare/STUDY")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (default: 1)")
    parser.add_argument("--table", action="store_true", help="only make the table of the runs that are finished")


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.runs.compare import make_inputs, read_study, run_study

    study = read_study(arguments.study, arguments.overrides, arguments.arms)
    if arguments.jobs < 1:
        raise ValueError(f"--jobs is {arguments.jobs}; it must be at least 1")
    out = arguments.out or Path("runs") / "compare" / arguments.study.stem
    failures = []
    if not arguments.table:
        logging.getLogger("verl_trgrpo").setLevel(logging.INFO)
        with interruptible(signal.SIGTERM) as progress:
            inputs = make_inputs(study, out.resolve(), progress)
            print(f"{len(study.arms)} arms x {len(study.seeds)} seeds in {out}", file=sys.stderr)
            failures = run_study(study, inputs, out.resolve(), arguments.jobs, progress)
    from verl_trgrpo.runs.compare.table import write_tables

    print(write_tables(study, out))
    print(f"\n{out / 'table.md'}, {out / 'table.json'}")
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return int(bool(failures))
