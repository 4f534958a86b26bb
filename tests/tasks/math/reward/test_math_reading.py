"""How answers are read, function by function: numbers, brackets, shapes, and what is compared without a formula parser."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from verl_trgrpo.tasks.math.reward.compare import compare
from verl_trgrpo.tasks.math.reward.extract import extract_answer, final_text, last_number
from verl_trgrpo.tasks.math.reward.form import LIST, MATRIX, UNION, Atom, Group, read_forms
from verl_trgrpo.tasks.math.reward.latex import matching_close, nesting, normalize, split_top_level
from verl_trgrpo.tasks.math.reward.number import Number, equal_numbers, read_number

PROPERTY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WHOLE = st.integers(0, 10**12)
SIGN = st.sampled_from(["", "-", "+"])


def signed(sign: str, value: Fraction) -> Fraction:
    return -value if sign == "-" else value


@PROPERTY
@given(SIGN, WHOLE, st.booleans(), st.sampled_from(["", "%", r"\%"]))
def test_integers(sign, n, grouped, percent):
    number = read_number(f"{sign}{n:,}{percent}" if grouped else f"{sign}{n}{percent}")
    assert number == Number(signed(sign, Fraction(n)), percent != "")


@PROPERTY
@given(SIGN, WHOLE, st.text("0123456789", min_size=1, max_size=9))
def test_decimals(sign, n, digits):
    value, place = Fraction(n * 10 ** len(digits) + int(digits), 10 ** len(digits)), Fraction(1, 10 ** len(digits))
    assert read_number(f"{sign}{n}.{digits}") == Number(signed(sign, value), last_place=place)
    assert read_number(f"{sign}{n:,}.{digits}") == Number(signed(sign, value), last_place=place)
    assert read_number(f"{sign}.{digits}") == Number(signed(sign, value - n), last_place=place)
    assert read_number(f"{sign}{n}.") == Number(signed(sign, Fraction(n)))


@PROPERTY
@given(SIGN, st.integers(1, 99), st.integers(0, 99), st.integers(1, 99))
def test_fractions_and_mixed_numbers(sign, whole, top, bottom):
    plain = Number(signed(sign, Fraction(top, bottom)), literal_integer=False)
    mixed = Number(signed(sign, whole + Fraction(top, bottom)), literal_integer=False)
    assert read_number(rf"{sign}\frac{{{top}}}{{{bottom}}}") == read_number(f"{sign}{top}/{bottom}") == plain
    assert (
        read_number(rf"{sign}{whole}\frac{{{top}}}{{{bottom}}}")
        == read_number(f"{sign}{whole} {top}/{bottom}")
        == mixed
    )
    assert read_number(rf"{sign}\frac{{-{top}}}{{{bottom}}}").value == -plain.value
    assert read_number(rf"{sign}\frac{{{top}}}{{-{bottom}}}").value == -plain.value
    assert read_number(rf"{whole}\frac{{{top or 1}}}{{-{bottom}}}") is None
    assert read_number(rf"{whole}\frac{{-{top or 1}}}{{{bottom}}}") is None


@PROPERTY
@given(SIGN, st.integers(1, 999), st.text("0123456789", max_size=4), st.integers(-1000, 1000))
@example("", 1, "", 1000)
@example("-", 1, "5", -1000)
def test_powers_of_ten(sign, n, digits, exponent):
    text, scale = (f"{n}.{digits}" if digits else f"{n}"), Fraction(10) ** exponent
    place = scale / 10 ** len(digits) if digits or exponent else None
    expected = Number(signed(sign, Fraction(text) * scale), last_place=place)
    for form in (
        rf"{text}\times10^{{{exponent}}}",
        rf"{text}\cdot10^{{{exponent}}}",
        f"{text}e{exponent}",
        f"{text}E{exponent}",
    ):
        assert read_number(sign + form) == expected
    assert read_number(rf"{sign}10^{{{exponent}}}") == Number(signed(sign, scale))


@PROPERTY
@given(st.integers(0, 99), st.text("0123456789", max_size=3), st.text("0123456789", min_size=1, max_size=4))
@example(0, "", "3")
@example(1, "0", "09")
def test_periods_repeat_for_ever(whole, plain, period):
    """Long division gives the digits back, period after period."""
    value = read_number(rf"{whole}.{plain}\overline{{{period}}}").value
    expected = plain + period * 5
    if set(period) == {"9"}:  # 0.999... is the next number up, which long division writes with zeros
        value -= Fraction(1, 10 ** (len(expected) + 1))
    assert value * 10 ** len(expected) // 1 == int(f"{whole}{expected}")
    if len(period) == 1:
        assert (
            read_number(rf"{whole}.{plain}\bar{period}").value
            == read_number(rf"{whole}.{plain}\overline{{{period}}}").value
        )


@pytest.mark.parametrize(
    "text",
    ["", "-", "+-1", "--1", "1+1", "1-", "1.2.3", "1,23", "12,3456", "1 2", "1/0", r"\frac{1}{0}", "1/2/3", "1e", "e5", "1%%",
     "x", "10^x", "1e1001", "1e-1001", "1" * 301, "١", r"\frac12"],
)  # fmt: skip
def test_what_is_no_number(text):
    assert read_number(text) is None


def test_longest_number():
    assert read_number("1" * 300) == Number(Fraction(int("1" * 300)))


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
    numbers = read_number(gold), read_number(answer)
    assert equal_numbers(*numbers, rounded_gold=False) is exact
    assert equal_numbers(*numbers, rounded_gold=True) is rounded


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
    assert nesting(text) == max(0, *depths(tokens), 0)
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
        assert matching_close(text, 0) == (len("".join(tokens[: closes[0]])) if closes else None)


def shape(text: str):
    """The first reading as nested tuples (kind, items...) with the texts of single values, and names in front."""

    def plain(form):
        body = form.text if isinstance(form, Atom) else (form.kind, *map(plain, form.items))
        return body if form.name is None else (f"{form.name}=", body)

    return plain(read_forms(normalize(text))[0])


SHAPES = {
    "1,2": (LIST, "1", "2"),
    "1;2": (LIST, "1", "2"),
    r"\{1,2\}": (LIST, "1", "2"),
    r"\{1\}": (LIST, "1"),
    "(1,2)": ("()", "1", "2"),
    "[1,2)": ("[)", "1", "2"),
    "(1)": "1",
    r"(1,2) \cup [3,4]": (UNION, ("()", "1", "2"), ("[]", "3", "4")),
    r"1 \pm 2": (LIST, "1+2", "1-2"),
    r"\pm 2": (LIST, "2", "-2"),
    "x = 5": ("x=", "5"),
    r"x \in (1,2)": ("x=", ("()", "1", "2")),
    "5 = x": ("x=", "5"),
    r"\mathbb{R}": ("()", r"-\infty", r"\infty"),
    "1 < x < 2": ("x=", ("()", "1", "2")),
    r"1 \leq x < 2": ("x=", ("[)", "1", "2")),
    r"1 < x \leq 2": ("x=", ("(]", "1", "2")),
    r"2 \geq x > 1": ("x=", ("(]", "1", "2")),
    "x > 1": ("x=", ("()", "1", r"\infty")),
    r"x \geq 1": ("x=", ("[)", "1", r"\infty")),
    "x < 1": ("x=", ("()", r"-\infty", "1")),
    r"x \le 1": ("x=", ("(]", r"-\infty", "1")),
    "1 < x": ("x=", ("()", "1", r"\infty")),
    r"1 \geq x": ("x=", ("(]", r"-\infty", "1")),
    "1 < x > 2": "1<x>2",
    "x+1 < 2": "x+1<2",
    "1 < x+1 < 2": "1<x+1<2",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}": (MATRIX, ("row", "1", "2"), ("row", "3", "4")),
}


@pytest.mark.parametrize("text", SHAPES)
def test_shapes(text):
    assert shape(text) == SHAPES[text]


def test_limits_of_shapes():
    for count, kind in ((100, Group), (101, Atom)):
        for text in (",".join(["a+b"] * count), f"({','.join(['a+b'] * count)})", r"\cup".join(["(1,2)"] * count)):
            assert isinstance(read_forms(text)[0], kind), (count, text[:10])
    for depth, kind in ((12, Group), (13, Atom)):
        assert isinstance(read_forms("(" * depth + "1,2" + ")" * depth)[0], kind)
    for count, kind in ((20, Group), (21, Atom), (22, Atom)):
        assert isinstance(read_forms(r"a\in " * count + "(1,2)")[0], kind)
    assert len(read_forms("1,234")) == 2 and len(read_forms("1,23")) == 1


# gold, answer, verdict: None where only a parser of formulas could tell
COMPARED = [
    ("1,2", "2,1", True), ("1,1,2", "1,2,2", False), ("1,2", "1,2,3", False), ("1,2,3", "1,2", False),
    ("(1,2)", "(2,1)", False), ("(1,2)", "(1,2)", True), ("(1,2]", "[1,2]", False), ("(1,2]", "(1,2)", False),
    (r"\{1,2\}", "2,1", True), ("1,2", "(1,2)", True), ("(1,2)", "1,2", False), (r"\{5\}", "5", True), ("5", r"\{5\}", True),
    (r"(1,2)\cup(3,4)", r"(3,4)\cup(1,2)", True), (r"(1,2)\cup(3,4)", "(1,2),(3,4)", False),
    (r"(-\infty,2)\cup(3,\infty)", "x<2 \\text{ or } x>3", True),
    ("x=5", "5", True), ("5", "x=5", True), ("x=5", "y=5", False), ("x=5", "x=6", False), ("5", "AB=5", True),
    ("5", "AB=6", False), (r"5\text{ cm}", "5", True), ("5", r"5\text{ cm}", True), (r"5\text{ cm}", r"5\text{ m}", False),
    (r"\text{east}", r"\text{East.}", True), (r"\text{east}", r"\text{west}", False), (r"\text{A}", r"\text{a}", False),
    ("AB", "BA", False), ("AB", "AB", True), ("x+1", "1+x", None), ("x+1", "5", None), ("5", "2+3", False),
    ("x+1,5", "5,1+x", None), ("x+1,5", "6,1+x", False), ("(x+1,5)", "(1+x,5)", None), ("(x+1,5)", "(1+x,6)", False),
     ("$", "$", True), ("5", "", False),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer", "verdict"), COMPARED)
def test_comparison_without_formulas(gold, answer, verdict):
    assert compare([gold], answer, rounded_gold=False) is verdict


def test_any_gold_may_match_and_a_formula_among_them_leaves_it_open():
    assert compare(["1", "2"], "2", rounded_gold=False) is True
    assert compare(["x+1", "2"], "2", rounded_gold=False) is True
    assert compare(["x+1", "2"], "1+x", rounded_gold=False) is None
    assert compare(["1", "2"], "3", rounded_gold=False) is False


def test_formulas_that_are_too_costly_are_wrong_at_once():
    def verdict(gold, answer):
        return compare([gold], answer, rounded_gold=False)

    sums = ["x+" * 39 + "xy", "x+" * 39 + "xyz"]  # 80 and 81 characters
    assert [verdict("y+1", text) for text in sums] == [None, False]
    assert verdict("y+" * 13 + "z", sums[1]) is None  # 27 characters, of which it may have three times as many
    assert [verdict("y+1", f"x+{'1' * n}") for n in (30, 31)] == [None, False]
    deep = ["(" * n + "x+1" + ")+y" * n for n in (5, 6, 7)]
    assert [verdict("y+1", text) for text in deep] == [None, False, False]
    assert [verdict("((((y+1)+1)+1)+1)+z", text) for text in deep] == [None, None, False]  # gold nested 4 deep
    assert [verdict("y+1", text) for text in ("2^{3}", "2^{3^{4^{5}}}", r"\int x dx", "3!!")] == [
        None,
        False,
        False,
        False,
    ]


def test_reasoning_is_not_read():
    assert final_text("<think>a</think>b") == "b"
    assert final_text("a</think>b</think>c") == "c"
    assert final_text("<think>a") is None
    assert final_text("</think><think>") is None
    assert final_text("a") == "a" and final_text("</think>") == "" and final_text("") == ""


@pytest.mark.parametrize("gap", [998, 999, 1000])
def test_the_last_number_is_in_the_last_thousand_characters(gap):
    assert last_number("7" + " " * gap) == ("7" if gap < 1000 else None)
    assert extract_answer("7" + " " * gap, "boxed") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("1 and -2", "-2"), ("1 and − 2", "− 2"), ("a1 b", None), ("x.5", None), (".5", ".5"), ("12,345.6 km", "12,345.6"),
     (r"3\%", r"3\%"), ("3 %", "3 %"), (r"-\frac{3}{4}", r"-\frac{3}{4}"), (r"\tfrac{-3}{4}", r"\tfrac{-3}{4}"), ("1/2.", "1/2")],
)  # fmt: skip
def test_last_numbers_as_written(text, number):
    assert last_number(text) == number
