"""``verl-trgrpo report``: training runs compared, on one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_EPILOG = """\
examples:
  verl-trgrpo report runs/quickstart                                all runs in there; ARM-seedN are seeds of ARM
  verl-trgrpo report runs/compare/study --out study.html            a directory that `verl-trgrpo compare` wrote
  verl-trgrpo report GRPO=tensorboard_log/kk/grpo TR-GRPO=tensorboard_log/kk/tr_grpo --baseline GRPO
  verl-trgrpo report runs/kk/grpo runs/kk/tr_grpo --metric val-core/kk_5ppl/acc/mean@1 \\
      --gradients runs/analyze/kk-tr_grpo/gradients.json

A RUN is a directory with veRL's own logs (trainer.logger=["file"] or ["tensorboard"]), a file of the file logger, or a
directory with such runs below. Runs with the same label are seeds of one arm; run.json or the name, ARM-seedN or
ARM/seed-N, tells arm and seed. Responses that veRL dumped to RUN/validation (trainer.validation_data_dir) are shown before
and after. The page needs no network and no other file; the pictures also lie beside it, in NAME_figures.
See docs/report.md for what each figure means.
Exit code: 0 fine, 2 wrong input, 130 interrupted.
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "report",
        help="compare training runs on one HTML page: curves, weights, table with intervals, responses",
        description="Compare training runs on one self-contained HTML page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="[LABEL=]PATH, see below")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: %(default)s; replaced if there"
    )
    parser.add_argument("--title", default="Training runs compared", help="default: %(default)s")
    parser.add_argument(
        "--baseline", metavar="LABEL", help="arm to compare with (default: grpo if there, else the first)"
    )
    parser.add_argument("--metric", metavar="NAME", help="validation metric (default: mean accuracy over data sources)")
    parser.add_argument(
        "--upto",
        type=int,
        metavar="STEP",
        help="compare at this step (default: the last that all finished runs reached)",
    )
    parser.add_argument(
        "--gradients", type=Path, nargs="+", default=[], metavar="FILE", help="gradients.json of `verl-trgrpo analyze`"
    )
    parser.add_argument(
        "--generations",
        nargs="+",
        default=[],
        metavar="DIR",
        help="[LABEL=]DIR: further directories of validation dumps",
    )
    parser.add_argument("--samples", type=int, default=4, metavar="N", help="prompts shown of each arm (default: 4)")


def run(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.runs.report.build import ReportOptions, build_report

    options = ReportOptions(
        runs=tuple(arguments.runs),
        out=arguments.out,
        title=arguments.title,
        baseline=arguments.baseline,
        metric=arguments.metric,
        gradients=tuple(arguments.gradients),
        generations=tuple(arguments.generations),
        samples=arguments.samples,
        upto=arguments.upto,
    )
    report = build_report(options)
    print("\n".join(report.summary))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\n{report.page}, {len(report.pictures)} pictures in {options.figures}")
    return 0
