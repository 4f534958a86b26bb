"""Commands about several runs: ``verl-trgrpo compare`` and ``verl-trgrpo report``."""

from __future__ import annotations

import sys

from verl_trgrpo.common.text import show
from verl_trgrpo.compare.finished import CompareOptions
from verl_trgrpo.compare.page import ReportOptions


def compare(options: CompareOptions) -> int:
    """Compare training runs: a table of means over seeds with 95 % intervals, and paired tests.

    examples:
      verl-trgrpo compare runs/grpo-seed* runs/tr_grpo-seed*      directories ARM-seedN: seed N of an arm
      verl-trgrpo compare runs/study --baseline grpo              all runs in a directory and below

    notes:
      A run is a directory with logs of veRL's file logger (trainer.logger=["file"]), or one such file.
      Runs are compared at the last step that all finished runs have.
      docs/report.md explains each figure.
    """
    from verl_trgrpo.compare.finished import compare_finished
    from verl_trgrpo.compare.tables import figure_list, markdown_tables

    found = compare_finished(options)
    for note in found.notes:
        show(f"note: {note}", sys.stderr)
    parts = (markdown_tables(found.tables), figure_list(found.comparison), found.budget)
    show("\n\n".join(filter(None, parts)))
    return 0


def report(options: ReportOptions) -> int:
    """Compare training runs on one self-contained HTML page.

    examples:
      verl-trgrpo report runs/grpo-seed* runs/tr_grpo-seed*       directories ARM-seedN: seed N of an arm
      verl-trgrpo report runs/study --out study.html              all runs in a directory and below

    notes:
      The page has the tables of `verl-trgrpo compare`, curves, and responses.
      docs/report.md explains each figure.
    """
    from verl_trgrpo.compare.page import write_report

    for note in write_report(options):
        show(f"note: {note}", sys.stderr)
    show(options.out)
    return 0
