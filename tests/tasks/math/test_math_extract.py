"""Where the answer is looked for."""

import pytest

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
