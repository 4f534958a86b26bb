"""What a message proposes to type removes its own finding and adds none, typed as printed."""

import re

import pytest

from tests.checks.test_rules import CASES
from tests.checks.test_switches import CASES as SWITCHED
from tests.conftest import composed
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import rule_findings
from verl_trgrpo.checks.view import RunView

_OVERRIDE = r"(?:\+\+?|~)?[a-z_][\w.]*=(?:\[[^\]]*\]|[^\s;,\[]*[^\s;,.)\[])"
# "set A=1", "set A=1 B=2" and "use A=1": one proposal each; what follows ", or" is another.
_PROPOSED = re.compile(rf"\b(?:set|use) ({_OVERRIDE}(?:(?: and)? {_OVERRIDE})*)( in its place)?")


def proposals(message: str) -> list[tuple[list[str], bool]]:
    """Return overrides that a message proposes, those together that belong together, and whether in place of the reported one."""
    _, _, remedy = message.partition("; ")
    remedy = re.sub(r", or (?=[+~a-z_.]+=)", ", or set ", remedy)
    text = remedy.partition(", or ")[2] if "of examples/" in remedy else remedy
    return [(found.replace(" and ", " ").split(), bool(instead)) for found, instead in _PROPOSED.findall(text)]


def names(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def typed(overrides: list[str], more: list[str], replaced: str) -> list[str]:
    """Return a command line with more settings, each in the place of the same one."""
    gone = {replaced, *map(names, more)}
    return [each for each in overrides if names(each) not in gone] + more


@pytest.mark.parametrize("name", CASES)
def test_a_proposal_of_a_rule_holds(name, tiny_run):
    overrides, key, _, _ = CASES[name]
    overrides = [each.replace("{train}", f"{tiny_run}/train.parquet") for each in overrides]
    before = rule_findings(RunView(composed(overrides)), RULES)
    [finding] = before
    for more, instead in proposals(finding.message):
        after = rule_findings(RunView(composed(typed(overrides, more, key if instead else ""))), RULES)
        assert [found.message for found in after] == [], more


@pytest.mark.parametrize("name", SWITCHED)
def test_a_proposal_of_a_switch_holds(name):
    overrides = [SWITCHED[name][0]]
    for finding in rule_findings(RunView(composed(overrides)), SWITCHES):
        for more, instead in proposals(finding.message):
            after = rule_findings(
                RunView(composed(typed(overrides, more, finding.where if instead else ""))), {**RULES, **SWITCHES}
            )
            assert [found.message for found in after] == [], more


def test_most_rules_propose_something_to_type(tiny_run):
    texts = [rule.findings(RunView(composed([each.replace("{train}", f"{tiny_run}/train.parquet") for each in CASES[name][0]])))
             for name, rule in RULES.items()]  # fmt: skip
    assert sum(bool(proposals(found[0].message)) for found in texts) > 0.8 * len(RULES)
