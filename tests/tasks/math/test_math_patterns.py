"""No pattern of the readers of answers is worse than linear in what it reads."""

import importlib
import re
import time

import pytest

MODULES = (
    "tasks.answer_form", "tasks.math.spelling", "tasks.math.answers", "tasks.math.equality", "tasks.math.units",
    "tasks.math.formulas", "tasks.math.parser", "tasks.knights_and_knaves.reward", "tasks.search_qa.reward",
    "tasks.search_qa.format", "tasks.reasoning_gym",
)  # fmt: skip
PIECES = (
    " ", "  ", "\n", "1", "1 ", "1,", "1,000,", "a", "a ", "A", "{", "{}", "}", "(", "()", "[", r"\text{", r"\text{a}",
    r"\text{ }", "\\", r"\ ",
    r"\frac", r"\frac{", r"\sqrt", "x=", "x<", r"x\in", "-", "+", "^", "_", "_{", "a_", "'", "$", "*", "**", "`", "|",
    ".", "...", "1.", ":", ";",
    "and ", "or ", "the answer is ", "answer:", "option ", "<answer>", "<think>", "####", r"\boxed{", r"\boxed ",
    "not ", "1st", "1 th", "m", "m ",
    "km/h ", "5 m ", "a.b", "is a knight ", "(1) ", "é", "五", "或",
)  # fmt: skip


def patterns(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from patterns(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from patterns(item)


ALL = [
    pytest.param(pattern, id=f"{module}-{name}-{k}")
    for module in MODULES
    for name, value in vars(importlib.import_module(f"verl_trgrpo.{module}")).items()
    for k, pattern in enumerate(patterns(value))
]


def seconds(function, text):
    start = time.process_time()
    function(text)
    return time.process_time() - start


@pytest.mark.parametrize("pattern", ALL)
def test_an_answer_of_the_longest_length_is_read_in_proportion_to_it(pattern):
    """`finditer` tries each place, so that a run of one piece takes at most its square; a cube would be 64 times as
    much at 4 times the length."""
    for piece in PIECES:
        texts = [("7" + piece * (length // len(piece)) + "!") for length in (250, 1000)]
        if " " * 2 in texts[0] or re.search(r"\s{2}", texts[0]):
            texts = [re.sub(r"\s{2,}", " ", text) for text in texts]  # gaps are single before a pattern reads them
        for function in (pattern.fullmatch, lambda text: [*pattern.finditer(text)]):
            short, long = (min(seconds(function, text) for _ in range(2)) for text in texts)
            if long > 0.004 + 40 * short:
                short, long = (min(seconds(function, text) for _ in range(5)) for text in texts)
            assert long <= 0.004 + 40 * short, piece


@pytest.mark.parametrize("gap", [" ", "\n", r"\quad ", r"\ ", "~", "\t\n"])
def test_white_space_in_an_answer_costs_nothing(gap):
    from verl_trgrpo.tasks import compute_score

    def score(count):
        return lambda _: compute_score("math", rf"\boxed{{5{gap * count}x}}", "5")

    long = 950 // len(gap)
    assert min(seconds(score(long), "") for _ in range(3)) <= 0.002 + 30 * min(seconds(score(1), "") for _ in range(3))
