r"""Equality of formulas: exact where they are rational, and elsewhere by their values at many points. Used in the
judge process only.

What the parser does not understand is equal to nothing but itself. Relations keep their sides: `a<b` is `b>a`, and `2a<2b`.
"""

import random
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import mpmath

from verl_trgrpo.judge.forms import COMPLEX
from verl_trgrpo.judge.parser import Tree, derivative, functions_of, parse_formula, tokens_of
from verl_trgrpo.judge.values import NotRationalError, Numeric, TooLargeError, rational

_Tokens = list[tuple[str, str]]
Point = dict[str, Fraction]

_SYMBOL = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{\w+\}))?"
_DERIVATIVE = re.compile(
    rf"\\frac\{{ ?(?P<kind>d|\\partial)(?: ?\^\{{?(?P<order>[0-9])\}}?)? ?(?P<of>{_SYMBOL}) ?\}}"
    rf"\{{ ?(?:d|\\partial) ?(?P<by>{_SYMBOL}) ?(?(order)\^\{{?(?P=order)\}}?) ?\}}"
)  # \frac{d^2y}{dt^2}
_CAPITALS = re.compile(r"\\text\{ ?([A-Z]+)\}")  # \text{LRAC}
_MODULUS = re.compile(r"\\pmod\{([^{}]*)\}$|\(\\mod ([^()]*)\)$")  # \pmod{3}
_TURNED = {">": "<", r"\geq": r"\leq"}
_RELATION_NAMES = "leq neq equiv approx sim mid nmid in to perp parallel mod"
_RELATIONS = {"=", "<", *_TURNED, *(rf"\{name}" for name in _RELATION_NAMES.split(" "))}
_STEPS, _DOMAINS = {"floor", "ceiling"}, {"root", "log"}
_KINKS = {"abs", "max", "min"} | _STEPS | _DOMAINS
_INTEGRAL = {"!", "!!", "binomial"}
_COMPLEX = re.compile(rf"(?P<conjugate>\\(?:bar|overline)\{{?)?(?P<letter>{COMPLEX}(?:_.+?)?)\}}?")  # z_1; \bar z
_MATRICES = re.compile(
    r"(?<=[a-zA-Z)}])(?<!e)\^\{?(?:T|H|\\top|\\dagger|\*)\}?(?![a-zA-Z0-9])|[A-Z]\^\{-1\} ?[A-Z]|[A-Z] ?[A-Z]\^\{-1\}"
)  # A^TA, A^{-1}B
_WORDS = (r"\text", r"\infty")
_PRECISION = 250  # bits, and more where numbers of different size are added up
_PRIMES = (2**128 - 159, 2**127 - 1, 10**30 + 57)
_ENOUGH = 3
"""Points at which both sides have a value; fewer decide nothing."""


def warm_up() -> None:
    """Fill the caches of mpmath before the judge forks."""
    for gold, answer in ((r"\sin 2x", r"2\sin x\cos x"), (r"\ln\sqrt{x}", r"\frac{1}{2}\ln x"), (r"\pi+e", r"e+\pi")):
        same_formula(gold, answer)


def same_formula(gold: str, answer: str) -> bool:
    r"""Return whether two normalized LaTeX formulas are equal.

    Numbers are compared exactly if they are rational, and else with a precision that follows the size of what is added up.
    Formulas with variables are compared at points of several scales and signs, and around the numbers that they mention; where
    only one of them has a real value, they differ. Equations are equal if one is a multiple of the other.

    Raises:
        UnreadableFormulaError: a formula that the parser does not understand.
    """
    one, other = (_tokens(text) for text in (gold, answer))
    if _MATRICES.search(gold) or _MATRICES.search(answer):
        return one == other  # products in another order are other products
    if {text for _, text in one if text.startswith(_WORDS)} != {text for _, text in other if text.startswith(_WORDS)}:
        return False  # zero times a word is zero
    by = _variable_of_derivatives(gold + " " + answer)
    functions = functions_of(one, other)
    sides, signs = _sides(one)
    sides_too, signs_too = _sides(other)
    trees = [_parsed(tuple(side), functions, by) for side in sides]
    if gold == answer:
        return True
    trees_too = [_parsed(tuple(side), functions, by) for side in sides_too]
    if not signs and not signs_too:
        return _same(trees[0], trees_too[0])
    if signs != signs_too:
        return False
    varies = any(name for tree in trees + trees_too for name in _walk(tree, "name"))
    if varies and signs in (["="], ["<"], [r"\leq"], [r"\neq"]):
        return _same(_difference(*trees), _difference(*trees_too), multiple=1 if signs[0] in ("<", r"\leq") else -1)
    if signs == [r"\equiv", r"\mod"]:
        return _congruent(trees, trees_too)
    return all(map(_same, trees, trees_too))


@lru_cache(maxsize=512)
def _tokens(text: str) -> _Tokens:
    text = _DERIVATIVE.sub(_derivative, text)
    if modulus := _MODULUS.search(text):
        text = rf"{text[: modulus.start()]}\mod {modulus[1] or modulus[2]}"
    return tokens_of(_CAPITALS.sub(r"\1", text))


def _derivative(match: re.Match[str]) -> str:
    r"""Return a derivative as a name; `\frac{d^2y}{dt^2}` is that of `y''` where `t` is the only such variable."""
    kind = "D" if match["kind"] == "d" else "P"
    return derivative(kind, match["order"] or "1", match["of"], match["by"])


def _variable_of_derivatives(text: str) -> str:
    found = {match["by"] for match in _DERIVATIVE.finditer(text) if match["kind"] == "d"}
    return found.pop() if len(found) == 1 else ""


@lru_cache(maxsize=512)
def _parsed(tokens: tuple[tuple[str, str], ...], functions: frozenset[str], by: str) -> Tree:
    return parse_formula(list(tokens), functions, by)


def _sides(tokens: _Tokens) -> tuple[list[_Tokens], list[str]]:
    """Return what stands between the relations of a formula, and these; both turned round where they say "greater"."""
    sides: list[_Tokens] = [[]]
    signs: list[str] = []
    depth = 0
    for token in tokens:
        depth += (token[1] in "([{") - (token[1] in ")]}")
        if depth == 0 and token[1] in _RELATIONS:
            signs.append(token[1])
            sides.append([])
        else:
            sides[-1].append(token)
    if signs and {*signs} <= {*_TURNED}:
        return sides[::-1], [_TURNED[sign] for sign in reversed(signs)]
    return sides, signs


def _difference(left: Tree, right: Tree) -> Tree:
    return ("+", left, ("*", ("number", Fraction(-1)), right))


def _congruent(one: list[Tree], other: list[Tree]) -> bool:
    if not (_same(one[0], other[0]) and _same(one[2], other[2])):
        return False
    try:
        return (rational(one[1], {}) - rational(other[1], {})) % rational(one[2], {}) == 0
    except (KeyError, ArithmeticError):
        return _same(one[1], other[1])


# --- Values at points ------------------------------------------------------------------------------------------------


def _same(one: Tree, other: Tree, multiple: int = 0) -> bool:
    """Return whether two trees have the same values; with `multiple`, up to a factor other than zero, positive if it is 1."""
    if one == other:
        return True
    kinds = {*_walk(one, "kind"), *_walk(other, "kind")}
    if "abs" in kinds:
        one, other = _complex(one), _complex(other)
        kinds |= {*_walk(one, "kind"), *_walk(other, "kind")}
    names = sorted({*_walk(one, "name"), *_walk(other, "name")})
    if multiple != 1:  # the sign of a factor is not seen modulo a prime
        try:
            return _same_modulo_primes(one, other, names, kinds, multiple)
        except NotRationalError:
            pass
    # Several letters in logarithms and roots are positive quantities: \ln\frac{a}{b} is \ln a-\ln b.
    positive = len(names) > 1 and bool(kinds & _DOMAINS) and not kinds & (_KINKS - _DOMAINS)
    steps = _steps_over_integers(one, names) or _steps_over_integers(other, names)
    values: list[tuple[Any, Any, Any]] = []
    # (-10)^n has real values at integers alone.
    for integers in (True,) if kinds & _INTEGRAL or steps else (False, True):
        for point in _points(one, other, names, kinds, integers) if len(values) < _ENOUGH else ():
            pair = _pair(one, other, point, "i" in kinds)
            if pair is False and not (positive and min(point.values()) < 0):
                return False
            values += [pair] if isinstance(pair, tuple) else []
    if len(values) < (_ENOUGH if names else 1):
        return False
    with mpmath.workprec(2 * _PRECISION):
        return _agree(values, multiple)


def _complex(tree: Tree) -> Tree:
    r"""Return a tree with the letters of complex numbers as sums of a real and an imaginary part, and their conjugates."""
    if tree[0] == "name" and (match := _COMPLEX.fullmatch(tree[1])):
        sign = -1 if match["conjugate"] else 1
        part = ("*", ("i",), ("number", Fraction(sign)), ("name", f"imaginary {match['letter']}"))
        return ("+", ("name", match["letter"]), part)
    return tuple(_complex(part) if isinstance(part, tuple) else part for part in tree)


def _walk(tree: Tree, what: str) -> Iterator[str]:
    if what == "kind" or tree[0] == "name":
        yield tree[0] if what == "kind" else tree[1]
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from _walk(part, what)


def _same_modulo_primes(one: Tree, other: Tree, names: list[str], kinds: set[str], multiple: int) -> bool:
    small = bool(kinds & {*_INTEGRAL, "^"})  # variables in exponents and factorials are small integers
    count = 12 if names else 1
    for prime in _PRIMES[:1] if names else _PRIMES:
        values = []
        for point in range(count):
            source = random.Random(f"{point}")
            where = {name: source.randint(2, 40) if small else source.randrange(prime) for name in names}
            try:
                values.append((rational(one, where, prime), rational(other, where, prime)))
            except ZeroDivisionError:
                continue
        if len(values) < (_ENOUGH if names else 1):
            return False
        # The ratio that all values have to have, 1 to 1 where they have to be equal.
        first, first_too = next(((a, b) for a, b in values if a and b), (0, 0)) if multiple else (1, 1)
        if not first or any((a * first_too - b * first) % prime for a, b in values):
            return False
    return True


def _agree(values: list[tuple[Any, Any, Any]], multiple: int) -> bool:
    if not multiple:
        return all(abs(a - b) <= tolerance for a, b, tolerance in values)
    found = [(a, b, tolerance) for a, b, tolerance in values if abs(a) > tolerance and abs(b) > tolerance]
    if not found or any((abs(a) > tolerance) != (abs(b) > tolerance) for a, b, tolerance in values):
        return False
    factor = found[0][0] / found[0][1]
    return (multiple < 0 or bool(mpmath.im(factor) == 0 and factor > 0)) and all(
        abs(a - factor * b) <= (1 + abs(factor)) * tolerance for a, b, tolerance in found
    )


def _pair(one: Tree, other: Tree, point: Point, is_complex: bool) -> tuple[Any, Any, Any] | bool | None:
    """Return both values at a point and a tolerance; False where only one has a value, None where the point decides nothing."""
    precision = _PRECISION
    for _ in range(2):
        with mpmath.workprec(precision):
            found = []
            magnitude = 0.0
            for tree in (one, other):
                numeric = Numeric(point)
                try:
                    value = numeric.value(tree)
                except (ZeroDivisionError, ValueError):
                    value = None
                except (TooLargeError, OverflowError):
                    return None
                if value is not None and point and not is_complex and not numeric.real:
                    value = None
                magnitude = max(magnitude, numeric.magnitude)
                found.append(value)
            if None in found:
                return None if found == [None, None] else False
            if precision >= 2 * magnitude + 200:
                scale = max(1, *map(abs, found))
                return found[0], found[1], mpmath.ldexp(scale, int(min(magnitude, 60)) + 100 - precision)
            precision = int(2 * magnitude) + 250
    return None


def _points(one: Tree, other: Tree, names: list[str], kinds: set[str], integers: bool) -> Iterator[Point]:
    """Yield points, the same for the same names in every process: more where they are integers, as steps of fractions agree with
    much that they are not."""
    if not names:
        yield {}
        return
    for point in range(24 if integers else 10):
        scale = 1 if point < 6 else (Fraction(1, 50), 60)[point % 2]
        yield {name: _coordinate(name, point, integers) * (1 if integers else scale) for name in names}
    if not kinds & _KINKS:
        return
    numbers = _between(sorted({*_numbers(one), *_numbers(other)}))
    for k, name in enumerate(names):
        for number in numbers:
            for sign in (1, -1):
                near = Fraction(round(number)) if integers else number
                yield {n: _coordinate(n, k + 1, integers) for n in names} | {name: sign * near}


def _coordinate(name: str, point: int, integers: bool) -> Fraction:
    """Return a value for a variable: positive at the first two points, negative at the fourth, of either sign elsewhere."""
    source = random.Random(f"{name} {point}")
    # Small integers, too: powers of the large ones have more digits than are worked out.
    size = (
        Fraction(source.randint(1, 700 if point < 12 else 12))
        if integers
        else Fraction(source.randint(1000, 49000), 7000)
    )
    return -size if point == 3 or (point >= 2 and source.random() < 0.5) else size


def _numbers(tree: Tree) -> Iterator[float]:
    if tree[0] == "number" and 0 < tree[1] < 10**9:
        yield float(tree[1])
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from _numbers(part)


def _between(numbers: list[float]) -> list[Fraction]:
    """Return positive numbers between and beyond those where a formula with these constants may change."""
    places = {*numbers} | {number**0.5 for number in numbers} | {a / b for a in numbers[:6] for b in numbers[:6]}
    ordered = sorted({0.0, *places})[:16]
    middles = [(a + b) / 2 for a, b in pairwise(ordered)]
    return [
        Fraction(middle).limit_denominator(1000)
        for middle in [*middles, ordered[-1] * 1.5, ordered[-1] * 40 + 1]
        if middle > 1e-3
    ]


def _steps_over_integers(tree: Tree, names: list[str]) -> bool:
    """Return whether steps act on more than integers at integer points: floor(n/2), but not floor(x)."""
    if tree[0] in _STEPS:
        try:
            return any(
                rational(tree[1], {name: _coordinate(name, k, True) for name in names}).denominator > 1
                for k in range(8)
            )
        except ArithmeticError:
            return True
    return any(_steps_over_integers(part, names) for part in tree[1:] if isinstance(part, tuple))
