"""No pattern of the readers of answers is worse than linear in what it reads."""

import importlib
import itertools
import math
import re
import time
from pathlib import Path

import pytest

from verl_trgrpo import tasks

MODULES = (
    "answer_form", "math.spelling", "math.answers", "math.equality", "math.forms", "math.numbers", "math.units",
    "math.formulas", "math.parser", "knights_and_knaves.reward", "search_qa.reward", "search_qa.format", "reasoning_gym",
)  # fmt: skip
PIECES = (
    " ", "\n", "1", "1 ", "1,", "1,000,", "a", "a ", "A", "{", "{}", "}", "(", "()", "[", r"\text{", r"\text{a}", r"\text{ }",
    "\\", r"\ ", r"\frac", r"\frac{", r"\sqrt", "x=", "x<", r"x\in", "-", "+", "^", "_", "_{", "a_", "'", "$", "*", "**", "`",
    "|", ".", "...", "1.", ":", ";", "and ", "or ", "the answer is ", "answer:", "option ", "<answer>", "<think>", "####",
    r"\boxed{", r"\boxed ", "not ", "1st", "1 th", "m", "m ", "km/h ", "5 m ", "a.b", "is a knight ", "(1) ", "é", "五", "或",
)  # fmt: skip
SIZES = (500, 1000, 2000, 4000)
SQUARE = 1.5
"""An exponent above it is no longer linear: 1 is proportional to the length, 2 its square."""


def patterns(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from patterns(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from patterns(item)


def readers(name, pattern):
    """Return the ways in which the package reads texts with a pattern; the patterns of tables replace what they find."""
    methods = re.findall(rf"(?<!\w){name}\.(fullmatch|match|search|sub|split|findall|finditer)\b", SOURCES)
    for method in sorted(
        {"finditer" if name in ("sub", "split", "findall") else name for name in methods or ["finditer"]}
    ):
        yield method, (lambda text: [*pattern.finditer(text)]) if method == "finditer" else getattr(pattern, method)


SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in Path(tasks.__file__).parent.rglob("*.py"))
ALL = [
    pytest.param(read, module, id=f"{module}.{name}-{k}-{method}")
    for module in MODULES
    for name, value in vars(importlib.import_module(f"verl_trgrpo.tasks.{module}")).items()
    for k, pattern in enumerate(patterns(value))
    for method, read in readers(name, pattern)
]


def seconds(function, text, repeats):
    """Return the least processor time of several runs in nanoseconds: what else happens only ever makes it longer.

    A processor's clock may stand still for a short text, so at least a microsecond is returned.
    """
    times = []
    for _ in range(repeats):
        start = time.process_time_ns()
        function(text)
        times.append(time.process_time_ns() - start)
    return max(min(times), 1000)


def exponent(function, make, sizes=SIZES):
    """Return the power of the length with which the time grows, by least squares; only that of the ends where it is small."""
    # A short text's time that another process made longer would hide a growth, a long one's only asks for a second look.
    ends = [seconds(function, make(size), repeats) for size, repeats in ((sizes[0], 7), (sizes[-1], 2))]
    if math.log(ends[1] / ends[0], sizes[-1] / sizes[0]) < SQUARE:
        return 1.0
    points = [(math.log(size), math.log(seconds(function, make(size), 7))) for size in sizes]
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


def squares(function, pieces=PIECES):
    """Return the pieces whose repetition takes more than time in proportion to its length."""

    def grows(piece):
        return exponent(function, lambda size: "7" + piece * (size // len(piece)) + "!") > SQUARE

    return [piece for piece in pieces if grows(piece)]


@pytest.mark.parametrize(("read", "module"), ALL)
def test_a_text_is_read_in_proportion_to_its_length(read, module):
    # The mathematics makes gaps single before it reads an answer.
    assert squares(read, [piece for piece in PIECES if not (piece.isspace() and module.startswith("math."))]) == []


@pytest.mark.parametrize("pattern", [r"a+b", r"(?:1,)+x", r"\s+$", r"\{?(?:\\text\{a\})+x"])
def test_a_pattern_that_takes_the_square_is_found(pattern):
    assert squares(lambda text: [*re.finditer(pattern, text)])


@pytest.mark.parametrize("gap", [" ", "\n", r"\quad ", r"\ ", "~", "\t\n"])
def test_white_space_in_an_answer_is_read_in_proportion_to_it(gap):
    def score(text):
        tasks.compute_score("math", rf"\boxed{{5{text}{next(others)}x}}", "5")  # another answer each time

    others = itertools.count()
    assert exponent(score, lambda size: gap * (size // len(gap)), (112, 225, 450, 900)) <= SQUARE
