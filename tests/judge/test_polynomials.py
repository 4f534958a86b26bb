"""Quotients of polynomials, against sympy's own arithmetic."""

import operator
import random
from fractions import Fraction

import pytest
import sympy

from verl_trgrpo.judge.polynomials import NoPolynomialError, Quotient, content, divided, factor_between, is_constant

LETTERS = ["e", "pi", "x", "y"]
SYMBOLS = sympy.symbols(LETTERS)
SEEDS = range(40)


def random_tree(source, depth=3):
    """Return a tree of the parser and the same formula of sympy, without a division by zero."""
    kind = source.choice(["number", "name", "pi", "group", "+", "+", "*", "*", "/", "^"]) if depth else "name"
    if kind == "number":
        number = Fraction(source.randint(-4, 4), source.randint(1, 3))
        return ("number", number), sympy.Rational(number.numerator, number.denominator)
    if kind in ("name", "pi"):
        place = source.randrange(4)
        name = LETTERS[place]
        return ((name,) if name in ("e", "pi") else ("name", name)), SYMBOLS[place]
    tree, value = random_tree(source, depth - 1)
    if kind == "group":
        return ("group", tree), value
    if kind == "^":
        power = source.randint(-2, 3)
        if power < 0 and not sympy.cancel(value):
            return ("^", tree, ("number", Fraction(2))), value**2
        return ("^", tree, ("number", Fraction(power))), value**power
    other, value_too = random_tree(source, depth - 1)
    if kind == "/" and not sympy.cancel(value_too):
        return tree, value
    combine = {"+": operator.add, "*": operator.mul, "/": operator.truediv}[kind]
    return (kind, tree, other), combine(value, value_too)


def in_sympy(polynomial):
    return sum(
        (
            sympy.Rational(number.numerator, number.denominator)
            * sympy.prod(s**k for s, k in zip(SYMBOLS, each, strict=True))
            for each, number in polynomial.items()
        ),
        sympy.Integer(0),
    )


def random_polynomial(source, terms=3):
    found = {}
    for _ in range(terms):
        found[tuple(source.randint(0, 2) for _ in LETTERS)] = Fraction(
            source.choice([-3, -2, -1, 1, 2, 3]), source.randint(1, 3)
        )
    return found


def from_sympy(value):
    terms = sympy.Poly(value, *SYMBOLS, domain="QQ").terms()
    return {each: Fraction(int(number.p), int(number.q)) for each, number in terms if number}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_quotient_has_the_value_of_its_formula(seed):
    tree, value = random_tree(random.Random(seed))
    quotient = Quotient(tree, LETTERS)
    assert sympy.cancel(in_sympy(quotient.top) / in_sympy(quotient.bottom) - value) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_product_is_divided_by_its_factors_and_by_nothing_else(seed):
    source = random.Random(seed)
    one, other, rest = (random_polynomial(source, terms) for terms in (3, 2, 1))
    product = from_sympy(in_sympy(one) * in_sympy(other))
    assert divided(product, other) == one
    changed = from_sympy(in_sympy(product) + in_sympy(rest))
    remainder = sympy.reduced(in_sympy(changed), [in_sympy(other)], *SYMBOLS)[1]
    assert (divided(changed, other) is None) == (remainder != 0)


def test_a_letter_is_not_divided_by_another():
    assert divided({(0, 0, 1, 0): Fraction(1)}, {(0, 0, 0, 1): Fraction(1)}) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_the_content_is_what_all_coefficients_share(seed):
    polynomial = random_polynomial(random.Random(seed))
    found = content(polynomial)
    expected = sympy.Poly(in_sympy(polynomial), *SYMBOLS, domain="QQ").content()
    assert found == Fraction(int(expected.p), int(expected.q))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_factor_between_multiples_is_found(seed):
    source = random.Random(seed)
    polynomial, factor = random_polynomial(source), Fraction(source.choice([-3, 2, 5]), source.randint(1, 7))
    multiple = {each: factor * number for each, number in polynomial.items()}
    assert factor_between(multiple, polynomial) == factor
    place = source.choice([*multiple])
    assert factor_between(multiple | {place: multiple[place] * 2}, polynomial) is (
        2 * factor if len(multiple) == 1 else None
    )
    assert factor_between({}, {}) is factor_between(polynomial, {(9, 9, 9, 9): Fraction(1)}) is None


def test_a_constant_has_no_letter():
    assert is_constant({}) and is_constant({(0, 0, 0, 0): Fraction(3)})
    assert not is_constant({(0, 0, 1, 0): Fraction(3)})


def test_sums_keep_the_larger_denominator_and_what_is_divided_by():
    x, one = ("name", "x"), ("number", Fraction(1))
    # 1/x + 1/x^2 is over x^2, and x^2/x is not reduced
    found = Quotient(("+", ("/", one, x), ("/", one, ("*", x, x))), LETTERS)
    assert (in_sympy(found.top), in_sympy(found.bottom)) == (SYMBOLS[2] + 1, SYMBOLS[2] ** 2)
    found = Quotient(("/", ("*", x, x), x), LETTERS)
    assert (in_sympy(found.top), in_sympy(found.bottom)) == (SYMBOLS[2] ** 2, SYMBOLS[2])


SUM = ("+", *(("name", letter) for letter in "abcdefgh"))


@pytest.mark.parametrize(
    "tree",
    [
        ("sin", ("name", "x")),
        ("^", ("name", "x"), ("name", "y")),
        ("^", ("name", "x"), ("number", Fraction(1, 2))),
        ("^", ("name", "x"), ("number", Fraction(41))),
        ("/", ("number", Fraction(1)), ("number", Fraction(0))),
        ("^", ("+", ("name", "x"), ("*", ("number", Fraction(-1)), ("name", "x"))), ("number", Fraction(-1))),
        ("^", SUM, ("number", Fraction(6))),
        ("*", *[("number", Fraction(10**300))] * 3),
        ("*", *[("^", ("+", *SUM[1:4]), ("number", Fraction(12)))] * 4),
    ],
    ids=[
        "function",
        "power of a letter",
        "root",
        "exponent",
        "zero",
        "zero that is worked out",
        "terms",
        "digits",
        "products",
    ],
)
def test_what_is_no_polynomial_or_too_large_is_said(tree):
    with pytest.raises(NoPolynomialError):
        Quotient(tree, [*"abcdefgh", "x", "y"])
