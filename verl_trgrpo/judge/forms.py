"""An answer as it was read: its form, the names and qualifiers around a value, and sets of real numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Literal

from verl_trgrpo.judge.numbers import Number
from verl_trgrpo.judge.parser import FUNCTIONS, GREEK
from verl_trgrpo.judge.spelling import split_top_level
from verl_trgrpo.judge.units import CHANGING_WORDS, Unit

Kind = Literal[
    "value", "word", "relation", "integers", "list", "parts", "union", "meet", "matrix", "row", "cases", "without", "ratio",
    "choice", "()", "(]", "[)", "[]",
]  # fmt: skip


@dataclass(frozen=True)
class Form:
    r"""An answer as it was read: a single value, or several.

    Args:
        kind: of a single value: value, word (written as `\text{...}`) or relation (an equation or inequality that is more than
            a name and a value). Of several: list (unordered), union, meet (conditions that hold together), matrix (of rows),
            cases (rows of a value and its condition), without (a set and what is left out of it), ratio (`3:2`), choice (a
            letter and, if given, its value), or the two brackets, such as `(]`.
        text: of a single value, without the name in front (`x=`) and the unit behind; of a choice the letter; of an inequality
            that was read as a set what is written.
        items: of several.
        name: left of `=` or `\in`, or the variable of an inequality.
        unit: names of the unit with their powers.
        number: of a value that is a number.
        last: of an equation whose left side is not a name, such as `x+y=10`: what follows its last `=`, if that is finished.
        chain: what stands between names and the last `=`, such as `2+3` of `x=2+3=5`, which has to be right, too.
        braces: a list is written as a set.
        approximation: a decimal behind the value and `\approx`, which has to fit.
    """

    kind: Kind
    text: str = ""
    items: tuple[Form, ...] = ()
    name: str | None = None
    unit: Unit | None = None
    number: Number | None = None
    last: Form | None = None
    chain: tuple[str, ...] = ()
    braces: bool = False
    approximation: Number | None = None


REAL_LINE = Form("()", items=(Form("value", r"-\infty"), Form("value", r"\infty")))

_JOINED = ("union", "meet", "without")
INTERVALS = ("()", "(]", "[)", "[]")


def same_sets(gold: Form, answer: Form) -> bool:
    r"""Return whether both are one set of real numbers, and neither is a mere list of points.

    `[0,1)\cup[1,2]` and `[0,2]` are equal, and so are `x\neq2` and `(-\infty,2)\cup(2,\infty)`.
    """
    names = {form.items[0].name if form.kind == "list" else form.name for form in (gold, answer)}
    if len(names - {None}) > 1 or not (_is_set(gold) and _is_set(answer)):
        return False
    if _has_division(answer) and not _has_division(gold):
        return False  # x>\frac{4}{2} for x>2
    numbers = _probes(gold, answer)
    return bool(numbers) and all(_contains(gold, number) == _contains(answer, number) for number in numbers)


def has_members(form: Form) -> bool:
    """Return whether a form is a set of real numbers that is not empty."""
    return any(_contains(form, number) for number in _probes(form))


def _is_set(form: Form) -> bool:
    """Return whether a form is an interval, a union, or conditions on one variable."""
    if form.kind == "list":
        names = {item.name for item in form.items}
        return len(names) == 1 and None not in names and any(item.items for item in form.items)
    return form.kind in (*_JOINED, *INTERVALS)


def _has_division(form: Form) -> bool:
    return any(map(_has_division, form.items)) or (form.number is not None and form.number.is_division)


def _probes(*forms: Form) -> list[Fraction]:
    """Return all ends in sets of real numbers, and numbers between and beyond these; none where an end is not a number."""
    found = [_ends(form) for form in forms]
    if None in found:
        return []
    ends = sorted({end for each in found for end in each or () if isinstance(end, Fraction)}) or [Fraction(0)]
    return [ends[0] - 1, *ends, *((a + b) / 2 for a, b in pairwise(ends)), ends[-1] + 1]


def _ends(form: Form) -> set[Fraction | float] | None:
    """Return the ends of the intervals and the points of a set; None if the form is not a set of real numbers."""
    if form.kind in INTERVALS and len(form.items) == 2:
        low, high = map(_end, form.items)
        wrong = low is None or high is None or low >= high or (low == -inf and form.kind[0] == "[")
        return None if wrong or (high == inf and form.kind[1] == "]") else {low, high}  # type: ignore[arg-type]
    if form.kind in (*_JOINED, "list"):
        found = [_ends(item) for item in form.items]
        return None if None in found else {end for each in found for end in each or ()}
    return {form.number.value} if form.kind == "value" and form.number is not None and not form.unit else None


def _end(form: Form) -> Fraction | float | None:
    infinity = {r"\infty": inf, r"+\infty": inf, r"-\infty": -inf}.get(form.text)
    return form.number.value if form.number is not None else infinity


def _contains(form: Form, number: Fraction) -> bool:
    if form.kind in INTERVALS:
        low, high = map(_end, form.items)
        closed_end = (form.kind[0] == "[" and number == low) or (form.kind[1] == "]" and number == high)
        return closed_end or (low is not None and high is not None and low < number < high)
    if form.kind == "value":
        return form.number is not None and form.number.value == number
    inside = (_contains(item, number) for item in form.items)
    if form.kind == "without":
        return next(inside) and not next(inside)
    return all(inside) if form.kind == "meet" else any(inside)


# --- Names and qualifiers ----------------------------------------------------------------------------------------------

VARIABLE = r"(?:[a-zA-Z]|\\(?!in\b|frac|sqrt|text)[a-zA-Z]+)(?:_(?:\w|\{[^{}]*\}))?'{0,2}"
_VARIABLES = rf"\({VARIABLE}(?:,{VARIABLE})*\)"
COMPLEX = r"(?:z|w|\\psi|\\Psi)(?![a-zA-Z])"
"""Letters that stand for complex numbers where an absolute value is taken."""
QUANTITY = re.compile(rf"{VARIABLE}(?:\({VARIABLE}\))?")  # x; f(x)
SIMPLE_NAME = re.compile(
    rf"{VARIABLE}(?:\^\{{-1\}})?(?:{_VARIABLES})?|{_VARIABLES}|\\vec\{{?{VARIABLE}\}}?|{VARIABLE}(?::{VARIABLE})+|[A-Z]{{2}}:[A-Z]{{2}}"
)  # x_1; f^{-1}(x); \vec{v}; (x,y); V_1:V_2; AE:DE
NAME_OF_FUNCTION = re.compile(rf"({VARIABLE}(?:\^\{{-1\}})?)\(({VARIABLE})\)")  # f(x)
_MEMBER = re.compile(rf"({VARIABLE}|{_VARIABLES})\\(?:in|approx)(?![a-zA-Z]) ?(.+)", re.DOTALL)  # x\in[1,2]; x\approx 5
NAME_BEHIND = re.compile(rf"([^=]+)=({VARIABLE})")  # 5=x
# Left sides that name a quantity
_QUANTITY = re.compile(
    r"(?:m?\\(?:angle|triangle|overline|vec|hat|bar|text|mathbb|sin|cos|tan|cot|sec|csc|det|sum|prod|lim|int|gcd|max|min|arg)(?![a-zA-Z])"
    r"|\||\\\||\\frac\{[^{}0-9]*\}\{[^{}0-9]*\}|\([a-zA-Z]\\circ|[a-zA-Z](?:_\w|_\{[^{}]*\})?'*[(\[]"
    r"|[A-Z]{2,}$|[a-zA-Z]{4,}(?: [a-zA-Z]+)*$|[A-Z] ?\\c[au]p(?![a-z])).*",
    re.DOTALL,
)  # \angle ABC; |AB|; \frac{dy}{dx}; P(A|B); f(g(x)); \sum a_n; \text{Area}; AB; Area; A\cap B
CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![a-zA-Z])|[^a-zA-Z\\])+")  # 3\sqrt{2}
NOT_EQUAL = re.compile(r"(?:(?<![0-9)])!|\\not)$")  # x!; x\not
_MAX_NAME = 60

# What a left side is made of: commands of names and operations; of words, those that name a quantity and small words between.
_COMMAND_NAMES = """
    angle arg aligned bar begin big binom cap cdot circ complement cos cup ddot dfrac div dot dots end frac gcd geq hat
    infty int iint ldots left lfloor
    rfloor lceil rceil leq lim ln log mathbb mathbf mathcal max mid min nabla neq oint overline overrightarrow
    pm prime prod quad right sqrt sum text tilde times to triangle variable vec widehat
"""
_COMMANDS = {*GREEK.split(), *FUNCTIONS, *_COMMAND_NAMES.split()}
_QUANTITY_NAMES = """
    age amount angle answer area average base capacity center centre change charge chance circumference coefficient
    coefficients constant coordinates cost count current degree density derivative diameter difference dimension discount
    distance domain energy entropy expectation expression factor flux force fraction frequency function gain gcd hcf height
    income inradius integer interest intersection inverse lcm length limit loss mass max maximum mean median midpoint min
    minimum mode momentum number odds order output percent percentage perimeter period point points position power pressure
    price probability product profit proportion quotient radius range rank rate ratio remainder resistance result revenue
    root roots salary score share side slope solution solutions speed standard sum surface tax temperature term time total
    value values variance velocity vertex voltage volume wage weight width work year zeros lhs rhs
"""
_QUANTITIES = frozenset(_QUANTITY_NAMES.split())
_BESIDE_QUANTITY_NAMES = """
    a an and arithmetic as at between by central common cross cross-sectional current daily deviation digit digits edge
    expected final first from geometric greatest in initial inner interior largest last lateral least left minimal maximal
    monthly multiple new numbers of original outer per prime real required right second sectional selling shaded side sides
    small smallest large solid square squared squares circle triangle rectangle cube sphere cone cylinder polygon region
    third the to total two three units unit x y z ways with
"""
_NAMING = _QUANTITIES | frozenset(_BESIDE_QUANTITY_NAMES.split())
_PRODUCT = re.compile(r"[A-Z]{1,5}|[a-zA-Z]{1,2}|[abcdpqrxyz]{3,4}")  # ABC; kP; xyz
_INDEX = re.compile("[A-Z]{1,5}|[a-zA-Z]{1,3}")  # avg
_LEFT_TOKEN = re.compile(
    r"\\text\{(?P<text>[^{}]*)\}|(?P<index>_\{[a-zA-Z]+\})|\\(?P<command>[a-zA-Z]+)"
    r"|(?P<run>[a-zA-Z]+(?:[ -][a-zA-Z]+)*)"
    r"|(?P<sign>\\[{}|,]|(?<!(?<!_)[0-9]):|[0-9 ()\[\]{}|+*/^_'.,;!<=>&-])"
)  # \text{Area of}; _{\text{max}}; \alpha; Area of the square; 7; +


def is_variable(text: str) -> bool:
    return re.fullmatch(VARIABLE, text) is not None


def is_left_side(left: str) -> bool:
    r"""Return whether a text may stand in front of `=`: a formula, or words that name a quantity (`\text{Area of }ABC`).

    All that is in it has to be known, so no word that denies, doubts or chooses needs a rule of its own.
    """
    tokens = [*_LEFT_TOKEN.finditer(left)]
    if "".join(token[0] for token in tokens) != left or (r"\to" in left and r"\lim" not in left):
        return False
    words = {word for token in tokens for word in _words_of(token)}
    if not words:
        return True
    numbers = any(token["sign"] and token["sign"].isdigit() for token in tokens)
    return not numbers and bool(words & _QUANTITIES) and words <= _NAMING


def _words_of(token: re.Match[str]) -> list[str]:
    """Return the words of a part of a left side in small letters; products of variables (`kP`, `AB`) and functions are none."""
    if token["index"]:
        index = token["index"].strip("_{}")
        return [] if index.casefold() in _NAMING or _is_name(index, _INDEX) else [index]
    if token["command"]:
        return [] if token["command"] in _COMMANDS else ["\\" + token["command"]]
    if token["text"] is not None:
        written = re.findall(r"[^\s,:()'.]+", token["text"])
        return [word.casefold() for word in written if not (word[0].isupper() and _is_name(word))]
    if re.fullmatch("[A-Z]{2}", token["run"] or ""):
        return []  # also NO, OR and IS are segments
    runs = (token["run"] or "").replace("-", " ").split()
    return [run.casefold() for run in runs if not (_is_name(run) or run in FUNCTIONS)]


def _is_name(word: str, pattern: re.Pattern[str] = _PRODUCT) -> bool:
    return bool(pattern.fullmatch(word)) and word.casefold() not in CHANGING_WORDS


def split_name(text: str) -> tuple[str, str] | None:
    """Return the name and the rest of `name=value`, where the left side names a quantity; None for other equations."""
    parts = split_top_level(text, "=")
    left = parts[0]
    if left.strip() == r"\pi":
        return None
    if len(parts) > 1 and all(parts) and not NOT_EQUAL.search(left) and len(left) <= _MAX_NAME and is_left_side(left):
        is_sum = re.search(r"[+<>]|(?<!\{)-|\\(?:leq|geq|neq)", left.split("(")[0])
        if SIMPLE_NAME.fullmatch(left) or (_QUANTITY.fullmatch(left) and not is_sum):
            names = [part for part in parts[1:-1] if SIMPLE_NAME.fullmatch(part) or _QUANTITY.fullmatch(part)]
            return "=".join([left, *names]), parts[-1]
    if (match := _MEMBER.fullmatch(text)) and is_left_side(match[1]):
        return match[1], match[2]
    return None


def names_differ(gold: Form, answer: Form) -> bool:
    if gold.name is None or answer.name is None or gold.name == answer.name:
        return False
    for form, other in ((gold, answer), (answer, gold)):
        if (function := NAME_OF_FUNCTION.fullmatch(form.name or "")) and function[1] == other.name:
            return False  # y(x) and y
    ours, theirs = (
        {re.sub(r"^\\vec\{?([^{}]*)\}?$|^m(?=\\angle)", r"\1", name) for name in (form.name or "").split("=")}
        for form in (gold, answer)
    )
    return not (ours <= theirs or theirs <= ours)  # a=5 and a=b=5


def may_lose_name(gold: Form) -> bool:
    """Return whether the value alone is right: of `x=5`, `AB=10` and `y=2x`, but not of an equation of two quantities."""
    return gold.number is not None or bool(SIMPLE_NAME.fullmatch(gold.name or "") or CONSTANT.fullmatch(gold.text))
