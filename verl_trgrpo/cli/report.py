"""Compare training runs on one self-contained HTML page.

examples:
  verl-trgrpo report runs/compare/kk_tiny                           a directory that `verl-trgrpo compare` wrote
  verl-trgrpo report GRPO=runs/a TR-GRPO=runs/b --baseline GRPO     ARM-seedN are seeds of ARM

A RUN is a directory with logs of veRL's file logger (trainer.logger=["file"]), such a file, or a directory with runs below.
docs/report.md explains the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.runs.report.page import ReportOptions, build_report

    report = build_report(parse_options(ReportOptions, "verl-trgrpo report", __doc__, words, ["runs"]))
    print("\n".join(report.summary))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\n{report.page}")
    return 0
