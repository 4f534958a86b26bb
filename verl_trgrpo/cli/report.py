"""Compare training runs on one self-contained HTML page.

examples:
  verl-trgrpo report runs/quickstart                                all runs in there; ARM-seedN are seeds of ARM
  verl-trgrpo report runs/compare/study --out study.html            a directory that `verl-trgrpo compare` wrote
  verl-trgrpo report GRPO=tensorboard_log/kk/grpo TR-GRPO=tensorboard_log/kk/tr_grpo --baseline GRPO
  verl-trgrpo report runs/kk/grpo runs/kk/tr_grpo --metric val-core/kk_5ppl/acc/mean@1 \\
      --gradients runs/analyze/kk-tr_grpo/gradients.json

A RUN is a directory with veRL's own logs (trainer.logger=["file"] or ["tensorboard"]), a file of the file logger, or a
directory with such runs below. See docs/report.md for what is read and what each figure means.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    from verl_trgrpo.common.options import parse_options
    from verl_trgrpo.runs.report.build import ReportOptions, build_report

    report = build_report(parse_options(ReportOptions, "verl-trgrpo report", __doc__, words, ["runs"]))
    print("\n".join(report.summary))
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\n{report.page}, {len(report.pictures)} pictures in {report.pictures[0].parent}")
    return 0
