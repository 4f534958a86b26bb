r"""Rule-based reward for mathematical answers.

The answer is read in the form that the prompt asks for, after the reasoning; it is right if it equals one of the ground
truths. What counts as equal is listed in docs/math_reward.md.

>>> score_math(r"So the answer is $\boxed{\dfrac{1}{2}}$.", "0.5").score
1.0
>>> score_math(r"The answer is \boxed{1 \text{ or } 2}.", "1").score
0.0
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache, partial, wraps
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import listed
from verl_trgrpo.tasks.answer_form import (
    ANSWER_FORMS,
    PROMPT,
    THINKING_OPENED,
    AnswerForm,
    asked_form,
    brace_depths,
    prompt_text,
    read_answer,
)
from verl_trgrpo.tasks.judge import Judges
from verl_trgrpo.tasks.math.answers import read_forms
from verl_trgrpo.tasks.math.equality import alternatives, equal_answers, formulas
from verl_trgrpo.tasks.math.spelling import normalize
from verl_trgrpo.tasks.task import GroundTruthError, Score

formula_judge = Judges("verl_trgrpo.tasks.math.formulas:same_formula", keep=True)
"""This process's judges of formulas."""
MAX_GOLD_CHARS = 2000


def score_math(
    response: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    rounded_gold: bool = False,
    answer_form: AnswerForm | None = None,
    thinking: bool | None = None,
    math_time_limit: float = 4.0,
) -> Score:
    """Score one response.

    Args:
        response: the decoded response without the prompt. Any string; the time is linear in its length.
        ground_truth: str, int, float, or a list, tuple or array of those, also a list of strings as text, of which any
            may match; or a mapping with one of them under `target`.
        extra_info: the row's extra_info, with the prompt and how it was rendered (`reward_input` adds them). A true
            `rounded_gold`, as the builder marks rows, has the effect of the option.
        rounded_gold: a decimal ground truth such as 9.6 or 8.7e8 is a rounded value (Minerva): an answer with more
            digits is right if it rounds to it.
        answer_form: where the answer is read, one of box, line, tags and hashes; None for the form that the prompt asks
            for, and a box if it asks for none of them or is not known.
        thinking: the chat template ends the prompt in `<think>`, so a response without `</think>` was cut off in its
            reasoning; None for what `extra_info` says.
        math_time_limit: seconds of CPU time that comparing formulas may take, above 0 and at most 60.

    Returns:
        `Score` with `score` = `acc`, 1.0 or 0.0. `gold_unparseable` is 1.0 if no ground truth is
        understood and the answer is not literally one of them; `timed_out` if the comparison was stopped.

    Raises:
        GroundTruthError: a ground truth of another type, empty, or with unbalanced braces.
        ValueError: a time limit out of range, or an unknown form.
        RuntimeError: the process that compares formulas cannot be started.
    """
    if not 0 < math_time_limit <= 60:
        raise ValueError(f"math_time_limit is {math_time_limit!r}; it must be above 0 and at most 60 seconds")
    if answer_form not in (None, *ANSWER_FORMS):
        raise ValueError(f"answer_form={answer_form!r}: unknown; use one of {', '.join(ANSWER_FORMS)}")
    extra_info = extra_info or {}
    form = answer_form or asked_form(extra_info.get(PROMPT)) or "box"
    opened = bool(extra_info.get(THINKING_OPENED)) if thinking is None else thinking
    golds = [gold_text(gold) for gold in _golds_of(ground_truth)]
    if not golds:
        raise GroundTruthError("the ground truth is an empty list; it must hold at least one acceptable answer")
    rounded_gold = rounded_gold or bool((extra_info or {}).get("rounded_gold"))
    time_left = math_time_limit

    def same_formula(gold: str, answer: str) -> bool:
        nonlocal time_left
        equal, seconds = formula_judge.ask(gold, answer, limit=time_left)
        time_left = max(time_left - seconds, 1e-3)
        return bool(equal)

    answer = read_answer(response, form, opened)
    try:
        question = prompt_text(extra_info.get(PROMPT))
        if answer is not None and equal_answers(
            golds, answer, same_formula, rounded_gold=rounded_gold, question=question
        ):
            return Score(1.0, acc=1.0)
    except TimeoutError:
        return Score(0.0, acc=0.0, timed_out=1.0)
    understood = any(_understood(gold, math_time_limit) for gold in golds)
    return Score(0.0, acc=0.0, format_ok=float(answer is not None), gold_unparseable=float(not understood))


score_minerva = partial(score_math, rounded_gold=True)
"""`score_math` for Minerva, whose decimal ground truths are rounded values."""


@wraps(score_math)
def score_dapo(response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **options: Any) -> Score:
    """Score as `score_math`, with a last line ``Answer: ...`` as the form of prompts that ask for none or are not known."""
    asked = options.pop("answer_form", None) or asked_form((extra_info or {}).get(PROMPT))
    return score_math(response, ground_truth, extra_info, answer_form=asked or "line", **options)


def _golds_of(ground_truth: Any) -> list[Any]:
    """Return the acceptable answers of a ground truth."""
    if isinstance(ground_truth, Mapping):  # of some public files, with the question beside it
        ground_truth = ground_truth.get("target")
    several = isinstance(ground_truth, (list, tuple)) or getattr(ground_truth, "ndim", 0) == 1
    golds = ground_truth if several else [ground_truth]
    return [each for gold in golds for each in (written_answers(gold) if isinstance(gold, str) else [gold])]


def written_answers(text: str) -> list[str]:
    """Return the acceptable answers of a text that may be a list written as text.

    NumPy prints the alternatives of a column without commas. A list with commas is one answer, of all its strings.

    >>> written_answers("['2916']"), written_answers("['4812', '5']"), written_answers("['5' '6']"), written_answers("2916")
    (['2916'], ['4812, 5'], ['5', '6'], ['2916'])
    """
    items = listed(text) or [text]
    between = text
    for item in items:
        between = between.replace(item, "", 1)
    return [", ".join(items)] if len(items) > 1 and "," in between else items


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
    depths = [depth for _, depth in brace_depths(text)]
    if depths and (min(depths) < 0 or depths[-1] > 0):
        raise GroundTruthError(f"the ground truth is {shorten(text)}; its braces are not balanced; correct the data")
    return text


# Four words in a row are a sentence, whose letters would otherwise be read as a product.
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?:\s+[A-Za-z]{2,}){3}")  # so the answer is


@lru_cache(maxsize=4096)
def _understood(gold: str, limit: float) -> bool:
    """Return whether all formulas of a ground truth can be read. Cached because every sample of a group has the same ones."""
    try:
        return all(
            not _PROSE.search(text) and formula_judge.ask(text, text, limit=limit)[0]
            for text in formulas(read_forms(normalize(alternatives(gold)[0]))[0])
        )
    except TimeoutError:
        return True
