r"""Judge mathematical answers by rule: whether what a response states equals a ground truth.

    from verl_trgrpo.judge import judge_answer

    judge_answer(r"So it is $\boxed{\dfrac12}$.", "0.5").right  # True

The room needs mpmath, lark and the standard library, nothing of veRL or torch. docs/judge.md shows how to use it,
docs/math_rules.md what counts as equal.

| module | question |
|---|---|
| `answer_form` | where does a prompt want the answer, and what does the response have in that place? |
| `golds` | which answers does a ground truth name? |
| `spelling`, `language` | what is this text in one spelling of signs and commands? |
| `grammar`, `tokens`, `integers` | what surrounds its values, and which classes of integers, parts and sentences is it? |
| `answers`, `forms`, `numbers`, `units` | which values with which names and units is it? |
| `equality`, `shapes` | are two forms equal? |
| `formulas`, `parser`, `values`, `processes` | are two formulas, judged in a process of its own? |
| `judgment` | all of it, for one response |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_trgrpo.judge.golds import GroundTruthError
    from verl_trgrpo.judge.judgment import Judgment, judge_answer

__all__ = ["GroundTruthError", "Judgment", "judge_answer"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: readers of prompts and ground truths do not need the mathematics."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{'golds' if name == 'GroundTruthError' else 'judgment'}"), name)
