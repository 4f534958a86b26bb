"""Properties that hold for any response and any ground truth."""

import math
import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tasks.work import work
from verl_trgrpo.judge.answer_form import REASONING_MARKS
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.math.reward import score_math

FRAGMENTS = (
    r"\boxed{", r"\fbox{", r"\frac{", r"\frac", r"\sqrt{", r"\left(", r"\right]", r"\text{", r"\text{ or }", r"\begin{pmatrix}",
    r"\end{pmatrix}", r"\\", r"\{", r"\}", r"\pm", r"\cup", r"\in", r"\infty", r"\leq", r"\int ", r"\sum_{k=1}^{9}", r"\log_",
    r"\%", "{", "}", "(", ")", "[", "]", "^", "_", "!", ",", "=", "<", ">", "+", "-", "/", "*", "|", "$", "&", ".", "%", "~",
    "9", "12", "0", "1,234", "1e9", "3.14", "10^{9}", "9^{9}", "x", "n", "f(x)", "e^", "i", r"\pi", r"\sin ", " cm", " and ",
    " ", "\n", "<think>", "</think>", "−", "²", "½", "é", "\u0301", "😀", "\ud800", "\x00", "١",
)  # fmt: skip
fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
answers = st.one_of(fragments, st.text(max_size=60))
boxed = answers.map(lambda answer: rf"\boxed{{{answer}}}")
responses = st.one_of(answers, boxed, st.tuples(answers, boxed, answers).map("".join))
# What a long response repeats and how it ends.
long_responses = st.tuples(st.one_of(answers, boxed).filter(bool), responses)

PLAIN_GOLDS = ["5", "0.25", r"\frac{3}{4}", r"50\%", "1,2,3", "(1,2]", r"\text{east}", r"(-\infty, 2) \cup (3, \infty)"]
FORMULA_GOLDS = [r"3\sqrt{13}", "2x+1", r"$\frac{1}{2 n+2}$", r"1 \pm \sqrt{19}", r"(3, \frac{\pi}{2})", "y = 2x + 3"]
LIMIT = 0.2
MARKS = {*REASONING_MARKS, *REASONING_MARKS.values()}


@pytest.fixture(scope="module", autouse=True)
def judge_is_running():
    """Its start takes a second, once per process."""
    assert score_math(r"\boxed{x+1}", "1+x").acc == 1.0


def assert_cheap(response, gold):
    """At most some hundred times the work of a short answer behind as long a text: nothing grows with the square of a length."""
    limits = {"math_time_limit": LIMIT}
    plain = work(score_math, "so " * (len(response) // 3) + r"\boxed{5}", "5", **limits)
    assert work(score_math, response, gold, **limits) <= 500 * plain + 20 * len(response)


def fill(piece, end, size):
    return (piece * (size // len(piece) + 1))[:size] + end


@given(responses, st.sampled_from(PLAIN_GOLDS + FORMULA_GOLDS))
@settings(max_examples=400, deadline=None)
def test_any_response_gets_a_score(response, gold):
    result = compute_score("math", response, gold, math_time_limit=LIMIT)
    assert all(type(value) is float and value in (0.0, 1.0) for value in result.values())
    assert result["score"] == result["acc"] <= result["format_ok"]
    assert result["gold_unparseable"] == 0.0


def fits_a_box(text):
    """Whether braces balance, and nothing in the text is a box, a tag or an escape of the closing brace."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text.replace("\n", " ")):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0 and not re.search(r"box|\\$", text) and not any(mark in text.lower() for mark in MARKS)


@given(answers.filter(str.strip).filter(fits_a_box), responses)
@settings(max_examples=200, deadline=None)
@example("$", "")
@example("=", "")
@example(r"\text{}", "")
def test_any_text_is_a_gold_and_right_as_it_stands(gold, response):
    result = compute_score("math", rf"\boxed{{{gold}}}", gold, math_time_limit=LIMIT)
    assert (result["acc"], result["gold_unparseable"], result["timed_out"]) == (1.0, 0.0, 0.0)
    other = compute_score("math", response, gold, math_time_limit=LIMIT)
    assert other["acc"] + other["gold_unparseable"] + other["timed_out"] <= 1.0


@st.composite
def long_boxes(draw):
    """A response of 20 kB that ends in a box of 900 to 1,000 characters, which repeats a few pieces."""
    piece = "".join(draw(st.lists(st.sampled_from(FRAGMENTS[2:-14]), min_size=1, max_size=4)))
    size = draw(st.integers(900, 1000))
    braces = piece.count("{") - piece.count("}")
    count = size // (len(piece) + max(0, braces))
    body = piece * count + "}" * max(0, braces * count)
    return "so " * 6_000, rf"\boxed{{{body}{'x' * (size - len(body))}}}"


@given(long_boxes(), st.sampled_from(PLAIN_GOLDS))
@settings(max_examples=50, deadline=None)
@example(("", r"\boxed{" + r"a\in" * 249 + "}"), "5")
@example(("", r"\boxed{" + "a∈" * 499 + "}"), "5")
@example(("", r"\boxed{" + "x=" * 499 + "5}"), "5")
@example(("", r"\boxed{" + "AB=" * 330 + "5}"), "5")
@example(("", r"\boxed{" + r"a\approx " * 110 + "5}"), "5")
@example(("", r"\boxed{" + r"(a,b)=" * 160 + "5}"), "5")
@example(("", r"\boxed{" + r"\text{a}" * 124 + "5}"), "5")
@example(("", r"\boxed{" + r"1\over" * 160 + "}"), "5")
@example(("", r"\boxed{" + "{" * 499 + "}" * 500), "5")
@example(("", r"\boxed{" + r"a\in b," * 120 + "}"), "5")
def test_20_kilobytes_with_a_long_answer_are_cheap(parts, gold):
    assert_cheap("".join(parts), gold)


@given(long_responses, st.sampled_from(PLAIN_GOLDS))
@settings(max_examples=5, deadline=None)
@example((r"\boxed{", ""), "5")
@example(("{", r"\boxed{5}"), "5")
@example((r"\boxed{5}", "{"), "5")
@example(("1,", "1"), "5")
@example(("<think>", "</think>"), "5")
@example(("\\", ""), "5")
def test_a_megabyte_is_cheap(parts, gold):
    assert_cheap(fill(*parts, 1_000_000), gold)


@st.composite
def golds_with_mutants(draw):
    """A ground truth and the same with another value, both by construction."""
    n, k, d = draw(st.integers(-(10**12), 10**12)), draw(st.integers(1, 99)), draw(st.integers(2, 60))
    r = draw(st.integers(2, 60).filter(lambda r: math.isqrt(r) ** 2 != r))
    letter = draw(st.sampled_from("abcfghjkmnprstuvwxyzABCFGHKMNPRSTUVWXYZ"))
    swapped = letter.swapcase()
    capitals = "".join(draw(st.lists(st.sampled_from(string.ascii_uppercase), min_size=2, max_size=6, unique=True)))
    matrix = r"\begin{{pmatrix}} {} \\ {} \end{{pmatrix}}"
    pairs = [
        (f"{n}", f"{n + k}"),
        (f"{n}.5", f"{n}.25"),
        (rf"\frac{{{n}}}{{{d}}}", rf"\frac{{{n + k}}}{{{d}}}"),
        (rf"{d}\sqrt{{{r}}}", rf"-{d}\sqrt{{{r}}}"),
        (rf"{d}\sqrt{{{r}}}", rf"{d + k}\sqrt{{{r}}}"),
        (rf"{d}x^{{{k}}}+{r}", rf"{d}x^{{{k + 1}}}+{r}"),
        (f"{d}x+{r}y", f"{d}x-{r}y"),
        (f"({n},{n + k}]", f"[{n},{n + k}]"),
        (f"({n},{n + k})", f"({n + k},{n})"),
        (f"{n}, {n + k}, {d}.5", f"{n}, {n + k}"),
        (f"{n}, {n + k}, {d}.5", f"{n}, {n + k}, {d}.5, {n + k + 1}"),
        (rf"\{{{n},{n + k}\}}", rf"\{{{n},{n + k + 1}\}}"),
        (rf"{d}\pi", rf"{d}\pi, {r}\pi"),
        (f"{d}{letter}+{r}", f"{d}{swapped}+{r}"),
        (letter, swapped),
        (f"{letter}q^2", f"{letter}Q^2"),
        (capitals, capitals[1:] + capitals[0]),
        (matrix.format(n, k), matrix.format(n + 1, k)),
    ]
    return draw(st.sampled_from(pairs))


@given(golds_with_mutants(), st.text(" \n\t", max_size=5), st.text(" \n\t", min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_the_gold_scores_and_its_mutant_does_not_in_any_spacing(pair, around, between):
    gold = pair[0]
    for answer in pair:
        spaced = answer.replace(" ", between).replace(",", f",{between}").replace("+", f"{between}+{between}")
        for text in (answer, f"{around}{spaced}{around}"):
            response = rf"{around}It is{between}\boxed{{{text}}}{around}"
            assert compute_score("math", response, gold)["score"] == float(answer == gold)
