"""``verl-trgrpo report``."""

from __future__ import annotations

import sys

from verl_trgrpo.runs.report.page import ReportOptions


def run(options: ReportOptions) -> int:
    """Compare training runs on one self-contained HTML page.

    examples:
      verl-trgrpo report runs/compare/kk_tiny                           a directory that `verl-trgrpo compare` wrote
      verl-trgrpo report GRPO=runs/a TR-GRPO=runs/b --baseline GRPO     ARM-seedN are seeds of ARM

    notes:
      A run is a directory with logs of veRL's file logger (trainer.logger=["file"]), or one such file.
      docs/report.md explains each figure.
    """
    from verl_trgrpo.runs.report.page import build_report

    report = build_report(options)
    print("\n".join(report.summary))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\n{report.page}")
    return 0
