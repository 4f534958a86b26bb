"""The findings of both tables for each case of theirs, as they were when the rows were Python functions."""

import json
from pathlib import Path

import pytest

from tests.checks import test_rules, test_switches
from tests.conftest import composed
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import rule_findings, switch_findings
from verl_trgrpo.checks.view import RunView

GOLDEN = json.loads((Path(__file__).parent / "golden_findings.json").read_text())


def cases():
    """Yield the overrides of each case, with what a switch needs and without it, and those of settings that are right."""
    yield from (overrides for overrides, *_ in test_rules.CASES)
    yield from test_rules.RIGHT
    for override, on in test_switches.CASES:
        given = test_switches.GIVEN.get(override.lstrip("+").partition("=")[0], [])
        yield [override, *given]
        if on:
            yield [override, *given, *on]


def found(overrides, folder):
    view = RunView(composed([each.replace("{train}", f"{folder}/train.parquet") for each in overrides]))
    both = [*rule_findings(view, RULES), *switch_findings(view, SWITCHES)]
    return sorted([finding.where, finding.level.value] for finding in both)


@pytest.mark.parametrize("overrides", cases(), ids=" ".join)
def test_a_case_has_the_findings_that_it_had(overrides, tiny_run):
    assert found(overrides, tiny_run) == GOLDEN[" ".join(overrides)]


def test_every_golden_case_is_asked():
    assert {*GOLDEN} == {" ".join(overrides) for overrides in cases()}
