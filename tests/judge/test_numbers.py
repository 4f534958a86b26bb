"""How numbers and brackets are read, and when two numbers are equal."""

from fractions import Fraction
from math import gcd

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.judge.numbers import Number, read_number
from verl_trgrpo.judge.spelling import enclosed, normalize, split_top_level

PROPERTY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WHOLE = st.integers(0, 10**12)
SIGN = st.sampled_from(["", "-", "+"])


def signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


@PROPERTY
@given(SIGN, WHOLE, st.text("0123456789", max_size=9), st.booleans(), st.sampled_from(["", "%", r"\%"]))
def test_integers_and_decimals(sign, n, digits, grouped, percent):
    whole, scale = (f"{n:,}" if grouped else f"{n}"), 10 ** len(digits)
    number = read_number(normalize(f"{sign}{whole}{'.' if digits else ''}{digits}{percent}"))
    value = Fraction(n * scale + int(digits or 0), scale)
    assert number == Number(signed(sign, value), percent != "", last_place=Fraction(1, scale) if digits else None)


@PROPERTY
@given(SIGN, st.integers(1, 99), st.integers(0, 99), st.integers(1, 99))
def test_fractions_and_mixed_numbers(sign, whole, top, bottom):
    plain = Number(signed(sign, Fraction(top, bottom)), written="fraction" if gcd(top, bottom) == 1 else "unreduced")
    mixed = Number(signed(sign, whole + Fraction(top, bottom)), written="mixed")
    fraction = rf"\frac{{{top}}}{{{bottom}}}"
    assert read_number(sign + fraction) == read_number(f"{sign}{top}/{bottom}") == plain
    assert read_number(f"{sign}{whole}{fraction}") == read_number(f"{sign}{whole} {top}/{bottom}") == mixed
    assert read_number(rf"{sign}\frac{{-{top}}}{{{bottom}}}").value == -plain.value
    assert read_number(rf"{whole}\frac{{-{top or 1}}}{{{bottom}}}") is None


@PROPERTY
@given(SIGN, st.integers(1, 999), st.text("0123456789", max_size=4), st.integers(-1000, 1000))
@example("", 1, "", 1000)
@example("-", 1, "5", -1000)
def test_powers_of_ten(sign, n, digits, exponent):
    text, scale = (f"{n}.{digits}" if digits else f"{n}"), Fraction(10) ** exponent
    place = scale / 10 ** len(digits) if digits or exponent else None
    written = "scientific" if n < 10 else "decimal"
    expected = Number(signed(sign, Fraction(text) * scale), written=written, last_place=place)
    for power in (rf"\times10^{{{exponent}}}", rf"\cdot10^{{{exponent}}}", f"e{exponent}", f"E{exponent}"):
        assert read_number(f"{sign}{text}{power}") == expected
    assert read_number(rf"{sign}10^{{{exponent}}}") == Number(signed(sign, scale), written="scientific")


@PROPERTY
@given(st.integers(0, 99), st.text("0123456789", max_size=3), st.text("0123456789", min_size=1, max_size=4))
@example(0, "", "3")
def test_periods_repeat_in_long_division(whole, plain, period):
    value = read_number(rf"{whole}.{plain}\overline{{{period}}}").value
    if whole == 0:
        assert read_number(rf".{plain}\overline{{{period}}}").value == value
    expected = plain + period * 5
    if set(period) == {"9"}:  # 0.999... is the next number up, which long division writes with zeros
        value -= Fraction(1, 10 ** (len(expected) + 1))
    assert value * 10 ** len(expected) // 1 == int(f"{whole}{expected}")


@pytest.mark.parametrize(
    "text",
    ["", "-", "+-1", "--1", "1+1", "1-", "1.2.3", "1,23", "12,3456", "1 2", "1/0", r"\frac{1}{0}", "1/2/3", "1e", "e5", "1%%",
     "x", "10^x", "1e1001", "1e-1001", "1" * 301, "١", r"\frac12", r"\frac{50}{3}7"],
)  # fmt: skip
def test_what_is_no_number(text):
    assert read_number(text) is None


# gold, answer: equal exactly, equal where the gold is rounded
EQUAL = {
    "same value": ("0.5", "1/2", True, True),
    "an integer wants no fraction": ("5", "10/2", False, False),
    "a fraction may be reduced to an integer": ("10/2", "5", True, True),
    "a fraction of a fraction": ("2/4", "1/2", True, True),
    "percent of a plain gold": ("50", r"50\%", True, True),
    "percent of a gold below one": ("0.5", "50%", True, True),
    "a percent gold without the sign": (r"50\%", "50", True, True),
    "a percent gold as a share": (r"50\%", "0.5", True, True),
    "both with the sign": (r"50\%", r"0.5\%", False, False),
    "a percent gold the wrong way": (r"50\%", "5000", False, False),
    "a plain gold the wrong way": ("50", r"0.5\%", False, False),
    "rounds up to the gold": ("9.6", "9.55", False, True),
    "rounds down to the gold": ("9.6", "9.65", False, True),
    "just above the half": ("9.6", "9.651", False, False),
    "just below the half": ("9.6", "9.549", False, False),
    "fewer digits than the gold": ("9.62", "9.6", False, False),
    "an integer gold is not rounded": ("10", "10.2", False, False),
    "a fraction is not rounded": ("1/3", "0.333", False, False),
    "a percent answer rounds to the gold": ("0.51", r"51.4\%", False, True),
    "a percent answer rounds elsewhere": ("0.51", r"51.6\%", False, False),
    "scientific gold": (r"8.7\times10^{8}", "8.74e8", False, True),
    "scientific gold missed": (r"8.7\times10^{8}", "8.76e8", False, False),
    "a negative gold": ("-9.6", "-9.62", False, True),
    "the wrong sign": ("-9.6", "9.6", False, False),
}


@pytest.mark.parametrize(("gold", "answer", "exact", "rounded"), EQUAL.values(), ids=EQUAL.keys())
def test_equal_numbers(gold, answer, exact, rounded):
    assert equal_answers([gold], answer, lambda *_: False) is exact
    assert equal_answers([gold], answer, lambda *_: False, rounded_gold=True) is rounded


BRACKETS = st.lists(st.sampled_from([*"([{}])ab,&", r"\{", r"\}", r"\begin{matrix}", r"\end{matrix}"]), max_size=20)
DEPTHS = {
    **dict.fromkeys(["(", "[", "{", r"\{", r"\begin{matrix}"], 1),
    **dict.fromkeys([")", "]", "}", r"\}", r"\end{matrix}"], -1),
}


def depths(tokens: list[str]) -> list[int]:
    """Depth after each token."""
    return [sum(DEPTHS.get(token, 0) for token in tokens[: end + 1]) for end in range(len(tokens))]


@PROPERTY
@given(BRACKETS)
def test_brackets_against_counting(tokens):
    text = "".join(tokens)
    parts, part = [], ""
    for token, depth in zip(tokens, depths(tokens), strict=True):
        if token == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += token
    assert split_top_level(text, ",") == [*parts, part]
    if tokens and DEPTHS.get(tokens[0]) == 1:
        closes = [end for end, depth in enumerate(depths(tokens)) if depth == 0]
        assert enclosed(text) == (closes[:1] == [len(tokens) - 1])


@pytest.mark.parametrize("golds", [[""], ["", "5"], [" "]])
def test_an_empty_answer_is_wrong_whatever_the_gold(golds):
    assert not equal_answers(golds, " ", lambda *_: True)
