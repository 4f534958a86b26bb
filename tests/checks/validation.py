"""Findings of ``check`` for tests, from cached compositions."""

import re
from collections.abc import Iterable

from tests.conftest import composed
from verl_trgrpo.checks.check import CheckReport, check
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml


def validate(source, overrides=(), need_files=True) -> CheckReport:
    return check(composed(overrides, source), need_files)


def already_set(finding: Finding, view: RunView) -> list[str]:
    """Return the settings that a remedy asks for although they have that value."""
    _, _, remedy = finding.message.partition("; ")
    asked = re.findall(r"(?<![\w.+])([a-z_]\w*(?:\.\w+)+)=([^\s,;]+)", remedy)
    return [f"{key}={value}" for key, value in asked if as_plain_yaml(view[key]) == value]


def summary(findings: Iterable[Finding]) -> list[tuple[str, Level]]:
    """Return key and level of each finding."""
    return [(finding.where, finding.level) for finding in findings]
