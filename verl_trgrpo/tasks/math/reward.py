r"""Rule-based reward for mathematical answers, by `verl_trgrpo.judge`.

>>> score_math(r"So the answer is $\boxed{\dfrac{1}{2}}$.", "0.5").score
1.0
>>> score_math(r"The answer is \boxed{1 \text{ or } 2}.", "1").score
0.0
"""

from collections.abc import Mapping
from functools import partial, wraps
from typing import Any

from verl_trgrpo.data.rows import PROMPT, THINKING_OPENED
from verl_trgrpo.judge import judge_answer
from verl_trgrpo.judge.answer_form import AnswerForm, asked_form
from verl_trgrpo.tasks.task import Score


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
        response, ground_truth: as for :func:`verl_trgrpo.judge.judge_answer`.
        extra_info: the row's extra_info, with the prompt and how it was rendered (`reward_input` adds them). A true
            `rounded_gold` or `natural_log`, as the builder marks rows, has the effect of the argument of `judge_answer`.
        rounded_gold, answer_form: as for `judge_answer`.
        thinking: the chat template ends the prompt in `<think>`, so a response without `</think>` was cut off in its
            reasoning; None for what `extra_info` says.
        math_time_limit: seconds of CPU time that comparing formulas may take, above 0 and at most 60.

    Returns:
        `Score` with `score` = `acc`, 1.0 or 0.0. `gold_unparseable` is 1.0 if no ground truth is
        understood and the answer is not literally one of them; `timed_out` if the comparison was stopped; `restated` if the
        answer restates the question.

    Raises:
        GroundTruthError, ValueError, RuntimeError: as `judge_answer`.
    """
    extra_info = extra_info or {}
    verdict = judge_answer(
        response,
        ground_truth,
        extra_info.get(PROMPT),
        answer_form=answer_form,
        thinking_opened=bool(extra_info.get(THINKING_OPENED)) if thinking is None else thinking,
        rounded_gold=rounded_gold or bool(extra_info.get("rounded_gold")),
        natural_log=bool(extra_info.get("natural_log")),
        time_limit=math_time_limit,
    )
    if verdict.right:
        return Score(1.0, acc=1.0)
    return Score(
        0.0,
        acc=0.0,
        format_ok=float(verdict.answer is not None),
        gold_unparseable=float(not verdict.gold_understood),
        timed_out=float(verdict.timed_out),
        restated=float(verdict.fault == "restated"),
    )


score_minerva = partial(score_math, rounded_gold=True)
"""`score_math` for Minerva, whose decimal ground truths are rounded values."""


@wraps(score_math)
def score_dapo(response: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **options: Any) -> Score:
    """Score as `score_math`, with a last line ``Answer: ...`` as the form of prompts that ask for none or are not known."""
    asked = options.pop("answer_form", None) or asked_form((extra_info or {}).get(PROMPT))
    return score_math(response, ground_truth, extra_info, answer_form=asked or "line", **options)
