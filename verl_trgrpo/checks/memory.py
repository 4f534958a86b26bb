"""Check that a run fits on its cards, by the plan of its memory."""

from __future__ import annotations

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.memory.verdict import DEPENDS, DOES_NOT
from verl_trgrpo.runs.keys import MODEL_PATH


def memory_findings(view: RunView) -> list[Finding]:
    """Report a run that fits at no length as an error, and one that fits up to a length as a warning."""
    answer = view.memory
    levels = {DOES_NOT: Level.ERROR, DEPENDS: Level.WARNING}
    if answer.verdict is None or answer.plan is None or answer.verdict.kind not in levels:
        return []
    where = answer.verdict.setting.partition("=")[0] or MODEL_PATH
    card = f"cards of {answer.plan.gb:.0f} GB ({answer.card})"
    return [Finding(levels[answer.verdict.kind], where, f"{answer.line}; on {card}, `validate --show` prints the plan")]
