"""Compare training runs on one self-contained HTML page.

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

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def add_parser(commands: argparse._SubParsersAction) -> None:
    about = "compare training runs on one HTML page: curves, weights, table with intervals, responses"
    # All words, --help too, are left to tyro: nothing begins with this prefix.
    parser = commands.add_parser("report", help=about, add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=lambda arguments: main(arguments.words))


def main(words: Sequence[str]) -> int:
    """Run ``verl-trgrpo report``; returns its exit code."""
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.runs.report.build import ReportOptions, build_report

    options = parse_options(ReportOptions, "verl-trgrpo report", __doc__, words, ["runs"])
    report = build_report(options)
    print("\n".join(report.summary))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\n{report.page}, {len(report.pictures)} pictures in {options.figures}")
    return 0
