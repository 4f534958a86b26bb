"""Warn about settings of veRL's own that the chosen trainer never reads; `runs.readers` has the table of one release."""

from __future__ import annotations

from collections import defaultdict

from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import full
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.compose import algorithm_settings, resolved, verl_defaults
from verl_trgrpo.runs.environment import TRAINER
from verl_trgrpo.runs.readers import key_table

_NAMES = {
    "v1": "v1 trainer", "older": "trainer before v1 (trainer.use_v1=false)", "one_step": "one-step-off trainer",
    "fully_async": "fully asynchronous trainer",
}  # fmt: skip


def unread_findings(view: RunView) -> list[Finding]:
    """Report what was set, by the run or by its algorithm, and is not read. What rules and switches report is left to them."""
    own, release = _set_by_algorithm(view), key_table()["verl"]
    start = "set trainer.use_v1=true" if view.trainer_name == "older" else f"start {TRAINER}"
    asked: dict[str, list[str]] = defaultdict(list)
    changed = [key for key, value in view.changed.items() if value not in (None, {}, [])]  # empty values
    for key in dict.fromkeys([*own, *changed]):
        rows = [row for row in SWITCHES.values() if row.covers(key)] if view.ignores(key) else []
        if view.ignores(key) and not any(view[key] in row.off or row.findings(view) for row in rows):
            asked[key.rpartition(".")[0]].append(key)
    reported = {full(rule.key) for rule in RULES.values() if rule.findings(view)}
    findings = []
    for keys in asked.values():
        given = ", ".join(f"{key}={as_plain_yaml(view[key])}" for key in keys if key not in reported)
        by_word = any(key in own for key in keys)
        fix = (
            f"{start}, without which this is not algorithm={view.algorithm_name}" if by_word else "remove this setting"
        )
        reason = f"has no effect, because the {_NAMES[view.trainer_name]} of veRL {release} does not read this; {fix}"
        if given:
            findings.append(Finding(Level.ERROR if by_word else Level.WARNING, keys[0], f"{given}: {reason}"))
    return findings


def _set_by_algorithm(view: RunView) -> frozenset[str]:
    """Return the keys that the file of the run's algorithm sets to another value than veRL's default."""
    settings = algorithm_settings(view.algorithm_name) if view.algorithm_name else {}
    return frozenset(key for key in settings if view[key] and view[key] != resolved(verl_defaults(), key))
