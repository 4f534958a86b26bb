"""Where the answer is looked for."""

import pytest

from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.reward import MAX_ANSWER_CHARS, extract_answer

BOXED = {
    "plain": (r"so \boxed{5}.", "5"),
    "fbox": (r"\fbox{5}", "5"),
    "space before the brace": (r"\boxed {5}", "5"),
    "nested braces": (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "escaped braces": (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
    "line break in a matrix": (r"\boxed{a \\{b}}", r"a \\{b}"),
    "the last box counts": (r"\boxed{1} no, \boxed{2}", "2"),
    "the last box of either kind": (r"\boxed{1} \fbox{2}", "2"),
    "box in a box": (r"\boxed{\boxed{5}}", "5"),
    "after the reasoning": (r"<think>\boxed{1}</think> \boxed{2}", "2"),
    "opened in the prompt": (r"\boxed{1}</think> \boxed{2}", "2"),
    "only in the reasoning": (r"<think>\boxed{1}</think> 1", None),
    "reasoning not finished": (r"<think> so \boxed{1}", None),
    "reasoning opened again": (r"<think></think>\boxed{1}<think>", None),
    "reasoning twice": (r"<think></think>\boxed{1}</think>\boxed{2}", "2"),
    "no box": ("the answer is 5", None),
    "open box": (r"\boxed{5", None),
    "last box open": (r"\boxed{5} \boxed{6", None),
    "box without braces": (r"\boxed 5", "5"),
    "box without braces in a formula": (r"so $\boxed -2.5$.", "-2.5"),
    "box without braces of more than a number": (r"\boxed 5x", None),
    "the mere word after a box": (r"\boxed{5} is what \boxed asks for", "5"),
    "the mere word at the end": (r"\boxed{5}. As \boxed", "5"),
    "the mere word alone": (r"no \boxed here", None),
    "many mere words": (r"\boxed " * 1000, None),
    "empty box": (r"\boxed{}", ""),
    "longest answer": (rf"\boxed{{{'x' * MAX_ANSWER_CHARS}}}", "x" * MAX_ANSWER_CHARS),
    "too long an answer": (rf"\boxed{{{'x' * (MAX_ANSWER_CHARS + 1)}}}", None),
    "many boxes": (r"\boxed{" * 1000, None),
    "empty": ("", None),
}


@pytest.mark.parametrize(("response", "answer"), BOXED.values(), ids=BOXED.keys())
def test_the_box(response, answer):
    assert extract_answer(response) == answer


ANSWER_LINES = {
    "last line": ("Steps.\n\nAnswer: 42", "42"),
    "the last of two": ("Answer: 41\nNo.\nAnswer: 42", "42"),
    "bold": ("**Answer:** 42", "42"),
    "in dollars": ("Answer: $42$", "$42$"),
    "box in the line": (r"Answer: \boxed{42}", "42"),
    "box behind the line": ("Answer: 41\n" + r"So \boxed{42}.", "42"),
    "box in front of the line": (r"\boxed{41}" + "\nAnswer: 42", "42"),
    "a box alone": (r"So \boxed{42}", "42"),
    "amid a line": ("The answer: 42", None),
    "empty": ("Answer:", None),
    "in unfinished reasoning": ("<think>Answer: 42", None),
    "in finished reasoning": ("<think>Answer: 42</think> so", None),
}


@pytest.mark.parametrize(("response", "answer"), ANSWER_LINES.values(), ids=ANSWER_LINES.keys())
def test_the_line_that_dapos_prompt_asks_for(response, answer):
    assert extract_answer(response, answer_line=True) == answer
    assert compute_score("math_dapo", response, "42")["acc"] == float(answer in ("42", "$42$"))


def test_reasoning_that_the_prompt_opened_has_to_be_closed():
    assert extract_answer(r"so \boxed{5}", thinking=True) is None
    assert extract_answer(r"so \boxed{4}</think> \boxed{5}", thinking=True) == "5"
    assert compute_score("math", r"so \boxed{5}", "5", thinking=True)["acc"] == 0.0
    assert compute_score("math", r"so \boxed{5}", "5")["acc"] == 1.0
