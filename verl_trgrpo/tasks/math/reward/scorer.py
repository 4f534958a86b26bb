r"""Rule-based reward for mathematical answers.

The answer is the content of the last `\boxed{...}` after the reasoning; it is right if it equals one of the ground
truths. What counts as equal is listed in docs/math_reward.md.

| response | score | acc | format_ok |
|---|---|---|---|
| the answer is right | 1 | 1 | 1 |
| the answer is wrong, or the comparison was stopped (`timed_out` 1) | 0 | 0 | 1 |
| no answer where it is wanted | 0 | 0 | 0 |

Worked example:

>>> score_math(r"So the answer is $\boxed{\dfrac{1}{2}}$.", "0.5").score
1.0
>>> score_math(r"The answer is \boxed{1 \text{ or } 2}.", "1").score
0.0
>>> score_math("The answer is 1/2.", "0.5").format_ok
0.0
>>> score_math("The answer is 1/2.", "0.5", answer_format="boxed_or_last_number").score
1.0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from verl_trgrpo.tasks.math.reward.client import judge
from verl_trgrpo.tasks.math.reward.compare import compare, formulas
from verl_trgrpo.tasks.math.reward.extract import extract_answer
from verl_trgrpo.tasks.math.reward.form import read_forms
from verl_trgrpo.tasks.math.reward.latex import normalize
from verl_trgrpo.tasks.score import Score

ANSWER_FORMATS = ("boxed", "boxed_or_last_number")
MAX_GOLD_CHARS = 2000


def score_math(
    response: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    answer_format: str = "boxed",
    rounded_gold: bool = False,
    math_time_limit: float = 0.5,
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: str, int, float, or a list, tuple or array of those, of which any may match.
        extra_info: not used.
        answer_format: "boxed" wants a box; "boxed_or_last_number" takes the last number of a response without a box.
        rounded_gold: a decimal ground truth such as 9.6 or 8.7e8 is a rounded value (Minerva): an answer with more
            digits is right if it rounds to it.
        math_time_limit: seconds of CPU time that comparing formulas may take, above 0 and at most 60.

    Returns:
        `Score` with `score` = `acc`, 1.0 or 0.0 (see the table above). `gold_unparseable` is 1.0 if no ground truth is
        understood and the answer is not literally one of them; `timed_out` if the comparison was stopped.

    Raises:
        ValueError: a ground truth of another type, or empty; or an option out of range.
        RuntimeError: the process that compares formulas cannot be started.
    """
    _check_options(answer_format, rounded_gold, math_time_limit)
    golds = gold_texts(ground_truth)
    answer = extract_answer(response, answer_format)
    if answer is None:
        return Score(0.0, acc=0.0, format_ok=0.0, gold_unparseable=_unparseable(golds, math_time_limit))
    verdict = compare(golds, answer, rounded_gold=rounded_gold)
    if verdict is None:
        reply = judge.ask(golds, answer, rounded_gold=rounded_gold, limit=math_time_limit)
        right = float(reply["equal"])
        return Score(
            right,
            acc=right,
            gold_unparseable=float(not reply["understood"]),
            timed_out=float(reply["timed_out"]),
        )
    if verdict:
        return Score(1.0, acc=1.0)
    return Score(0.0, acc=0.0, gold_unparseable=_unparseable(golds, math_time_limit))


score_minerva = partial(score_math, rounded_gold=True)
"""`score_math` for Minerva, whose decimal ground truths are rounded values."""


def gold_texts(ground_truth: Any) -> tuple[str, ...]:
    """Return the acceptable answers as texts.

    Raises:
        ValueError: none, an empty one, or one that is neither text nor a finite number.
    """
    several = isinstance(ground_truth, (list, tuple)) or getattr(ground_truth, "ndim", 0) == 1
    texts = tuple(_gold_text(gold) for gold in (ground_truth if several else [ground_truth]))
    if not texts:
        raise ValueError("the ground truth is an empty list; it must hold at least one acceptable answer")
    return texts


def is_number(value: Any) -> bool:
    """Return whether `value` is an int or a finite float; a bool is neither."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _gold_text(gold: Any) -> str:
    if hasattr(gold, "item") and getattr(gold, "ndim", None) == 0:  # a numpy scalar
        gold = gold.item()
    text = str(gold) if is_number(gold) else gold
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_GOLD_CHARS:
        shown = repr(gold)[:100]
        raise ValueError(
            f"the ground truth is {shown}; it must be a text of 1 to {MAX_GOLD_CHARS} characters, a finite number, or a "
            "list of those. Correct reward_model.ground_truth in the data"
        )
    return text


def _check_options(answer_format: str, rounded_gold: bool, math_time_limit: float) -> None:
    problems = []
    if answer_format not in ANSWER_FORMATS:
        problems.append(f"answer_format is {answer_format!r}; choose one of {', '.join(ANSWER_FORMATS)}")
    if not isinstance(rounded_gold, bool):
        problems.append(f"rounded_gold is {rounded_gold!r}; it must be true or false")
    if (
        isinstance(math_time_limit, bool)
        or not isinstance(math_time_limit, (int, float))
        or not 0 < math_time_limit <= 60
    ):
        problems.append(f"math_time_limit is {math_time_limit!r}; it must be above 0 and at most 60 seconds")
    if problems:
        raise ValueError(f"{'; '.join(problems)}. Correct reward.custom_reward_function.reward_kwargs")


@lru_cache(maxsize=4096)
def _unparseable(golds: tuple[str, ...], limit: float) -> float:
    """1.0 if no ground truth is understood. Cached because every sample of a group has the same ones."""
    if any(not formulas(read_forms(normalize(gold))[0]) for gold in golds):
        return 0.0
    return float(not judge.ask(golds, None, limit=limit)["understood"])
