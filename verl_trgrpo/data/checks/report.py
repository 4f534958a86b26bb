"""A report as text for a terminal."""

from __future__ import annotations

from verl_trgrpo.data.check import Report
from verl_trgrpo.data.checks.findings import ERROR, NOT_CHECKED, WARNING, CheckResult
from verl_trgrpo.data.checks.lengths import Lengths, histogram
from verl_trgrpo.data.show import escape

_INDENT = " " * 39


def render(report: Report) -> str:
    """Return the report: files, one line per check with its first examples, lengths, and the verdict."""
    lines = [f"{facts.path}: {facts.rows} rows, {facts.role or 'train or test not known'}" for facts in report.files]
    lines += ["", f"{'check':<16}{'result':<14}{'rows':>7}  first examples"]
    for check in report.checks:
        lines += _check_lines(check)
    if report.lengths:
        lines += ["", *_length_lines(report, report.lengths)]
    not_checked = sum(check.status == NOT_CHECKED for check in report.checks)
    lines += ["", f"{report.errors} errors, {report.warnings} warnings, {not_checked} not checked"]
    return "".join(f"{escape(line)}\n" for line in lines)


def _check_lines(check: CheckResult) -> list[str]:
    status = check.status.upper() if check.status in (ERROR, WARNING) else check.status
    details = list(check.examples)
    if check.more:
        details.append(f"and {check.more} more")
    if check.note:
        details.append(check.note if check.status == NOT_CHECKED else f"not checked: {check.note}")
    count = check.affected or ""
    first = f"{check.name:<16}{status:<14}{count:>7}  {details[0] if details else ''}".rstrip()
    return [first, *(_INDENT + detail for detail in details[1:])]


def _length_lines(report: Report, lengths: Lengths) -> list[str]:
    lines = [f"prompt lengths in {lengths.unit}: {_summary(lengths)}"]
    if len(report.files) > 1:
        lines += [f"  {facts.name}: {_summary(facts.lengths)}" for facts in report.files if facts.lengths]
    return lines + histogram(lengths).split("\n")


def _summary(lengths: Lengths) -> str:
    over = "" if lengths.over is None else f", {lengths.over} over the limit"
    return f"min {lengths.min}, median {lengths.median}, p95 {lengths.p95}, max {lengths.max}{over}"
