r"""Rule-based reward for mathematical answers.

The answer is the content of the last `\boxed{...}` after the reasoning; it is right if it equals one of the ground
truths. What counts as equal is listed in docs/math_reward.md.

>>> score_math(r"So the answer is $\boxed{\dfrac{1}{2}}$.", "0.5").score
1.0
>>> score_math(r"The answer is \boxed{1 \text{ or } 2}.", "1").score
0.0
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.tasks.judge import Judge
from verl_trgrpo.tasks.math.answers import normalize, read_forms
from verl_trgrpo.tasks.math.equality import alternatives, compare, formulas
from verl_trgrpo.tasks.registry import GroundTruthError, Score

judge = Judge("verl_trgrpo.tasks.math.formulas:same_formula")
"""This process's judge of formulas."""
MAX_GOLD_CHARS = 2000
MAX_ANSWER_CHARS = 1000
"""A longer box is not an answer; the longest ground truth of the usual test sets has under 300 characters."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,8}(?:\{|(?P<number>-?[0-9][0-9.,/]{0,40})(?=\s|[.$]|\\[)\]]|$))")
_ANSWER_LINE = re.compile(r"^[ \t*#]{0,8}answer[ \t*]{0,4}:[ \t*]*(.*)$", re.IGNORECASE | re.MULTILINE)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def score_math(
    response: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rounded_gold: bool = False,
    answer_line: bool = False,
    thinking: bool = False,
    math_time_limit: float = 0.5,
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: str, int, float, or a list, tuple or array of those, of which any may match.
        rounded_gold: a decimal ground truth such as 9.6 or 8.7e8 is a rounded value (Minerva): an answer with more
            digits is right if it rounds to it.
        answer_line: the prompt asks for a last line ``Answer: ...``, as DAPO's does; a box behind it counts as well.
        thinking: the chat template ends the prompt in `<think>`, so a response without `</think>` was cut off in its reasoning.
        math_time_limit: seconds of CPU time that comparing formulas may take, above 0 and at most 60.

    Returns:
        `Score` with `score` = `acc`, 1.0 or 0.0. `gold_unparseable` is 1.0 if no ground truth is
        understood and the answer is not literally one of them; `timed_out` if the comparison was stopped.

    Raises:
        GroundTruthError: a ground truth of another type, empty, or with unbalanced braces.
        ValueError: a time limit out of range.
        RuntimeError: the process that compares formulas cannot be started.
    """
    if not 0 < math_time_limit <= 60:
        raise ValueError(f"math_time_limit is {math_time_limit!r}; it must be above 0 and at most 60 seconds")
    several = isinstance(ground_truth, (list, tuple)) or getattr(ground_truth, "ndim", 0) == 1
    golds = [gold_text(gold) for gold in (ground_truth if several else [ground_truth])]
    if not golds:
        raise GroundTruthError("the ground truth is an empty list; it must hold at least one acceptable answer")
    time_left = math_time_limit

    def same_formula(gold: str, answer: str) -> bool:
        nonlocal time_left
        equal, seconds = judge.ask(gold, answer, limit=time_left)
        time_left = max(time_left - seconds, 1e-3)
        return bool(equal)

    answer = extract_answer(response, answer_line=answer_line, thinking=thinking)
    try:
        if answer is not None and compare(golds, answer, same_formula, rounded_gold=rounded_gold):
            return Score(1.0, acc=1.0)
    except TimeoutError:
        return Score(0.0, acc=0.0, timed_out=1.0)
    understood = any(_understood(gold, math_time_limit) for gold in golds)
    return Score(0.0, acc=0.0, format_ok=float(answer is not None), gold_unparseable=float(not understood))


score_minerva = partial(score_math, rounded_gold=True)
"""`score_math` for Minerva, whose decimal ground truths are rounded values."""


score_dapo = partial(score_math, answer_line=True)
"""`score_math` for DAPO's data, whose prompt asks for a last line ``Answer: ...``."""


def extract_answer(response: str, *, answer_line: bool = False, thinking: bool = False) -> str | None:
    r"""Return the answer of a response, as written, or None if there is none.

    Only what follows the last `</think>` counts; with `<think>` behind it the reasoning was not finished. There the last
    `\boxed{...}`, `\fbox{...}` or `\boxed 5` is the answer, unless it is left open or longer than 1,000 characters.

    Args:
        response: the decoded response.
        answer_line: the rest of the last line that begins with ``Answer:`` is the answer, unless a box stands in it or behind.
        thinking: a response without `</think>` has no answer.
    """
    text = response.rpartition("</think>")[2]
    if "<think>" in text or (thinking and "</think>" not in response):
        return None
    box = line = None
    for box in _BOX.finditer(text):  # noqa: B007
        pass
    for line in _ANSWER_LINE.finditer(text) if answer_line else ():  # noqa: B007
        pass
    if line and (box is None or box.start() < line.start()):
        return line[1].strip().strip("*").strip() or None if len(line[1]) <= MAX_ANSWER_CHARS else None
    if box is None or box["number"]:
        return box and box["number"]
    depth = 1
    # One more character than allowed decides "too long"; what follows is not looked at.
    for match in _BRACE.finditer(text, box.end(), box.end() + MAX_ANSWER_CHARS + 1):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0:
            return text[box.end() : match.start()]
    return None


def is_number(value: Any) -> bool:
    """Return whether `value` is an int or a finite float; a bool is neither."""
    return math.isfinite(value) if isinstance(value, float) else type(value) is int


def gold_text(gold: Any) -> str:
    """Return a ground truth as a string.

    Raises:
        GroundTruthError: it is not a string or a finite number, or it is blank, "nan", too long, or has braces that are not
            balanced, so that no box can hold it.
    """
    if hasattr(gold, "item") and getattr(gold, "ndim", None) == 0:  # a numpy scalar
        gold = gold.item()
    text = str(gold) if is_number(gold) else gold
    if not isinstance(text, str) or text.strip().lower() in ("", "nan") or len(text) > MAX_GOLD_CHARS:
        raise GroundTruthError(
            f"the ground truth is {shorten(gold)}; it must be a string of 1 to {MAX_GOLD_CHARS} characters, a finite "
            "number, or a list of those; correct the data"
        )
    if "{" in text or "}" in text:
        _check_braces(text)
    return text


def _check_braces(text: str) -> None:
    depth = 0
    for match in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth < 0:
            break
    if depth:
        raise GroundTruthError(f"the ground truth is {shorten(text)}; its braces are not balanced; correct the data")


@lru_cache(maxsize=4096)
def _understood(gold: str, limit: float) -> bool:
    """Whether all formulas of a ground truth can be read. Cached because every sample of a group has the same ones."""
    try:
        return all(
            judge.ask(text, text, limit=limit)[0] for text in formulas(read_forms(normalize(alternatives(gold)[0]))[0])
        )
    except TimeoutError:
        return True
