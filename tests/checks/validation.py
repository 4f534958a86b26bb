"""Findings of ``check`` for tests, from cached compositions."""

from collections.abc import Iterable

from tests.conftest import composed
from verl_trgrpo.checks.check import CheckReport, check
from verl_trgrpo.common.findings import Finding, Level


def validate(source, overrides=(), need_files=True) -> CheckReport:
    return check(composed(overrides, source), need_files)


def summary(findings: Iterable[Finding]) -> list[tuple[str, Level]]:
    """Return key and level of each finding."""
    return [(finding.where, finding.level) for finding in findings]
