"""Formulas of letters as quotients of polynomials with rational coefficients, worked out exactly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from verl_trgrpo.judge.parser import Tree

Polynomial = dict[tuple[int, ...], Fraction]
"""Coefficients by the exponents of the letters, none of them 0."""

_MOST_TERMS, _MOST_PRODUCTS, _LARGEST_EXPONENT, _MOST_BITS = 200, 20_000, 40, 2000


class NoPolynomialError(ArithmeticError):
    """a formula is not a quotient of polynomials, or one that is too large."""


class Quotient:
    """A formula as a quotient of polynomials that is not reduced: what it multiplies and divides by is kept.

    Args:
        tree: with numbers, letters, sums, products, quotients and powers of integers.
        letters: all that it has; `pi` and `e` count as letters.

    Raises:
        NoPolynomialError: there is something else in it, or it is too large to be worked out.
    """

    def __init__(self, tree: Tree, letters: Sequence[str]) -> None:
        self._letters = letters
        self.top, self.bottom = self._of(tree)

    def _of(self, tree: Tree) -> tuple[Polynomial, Polynomial]:
        kind, one = tree[0], self._constant(Fraction(1))
        if kind == "number":
            return self._constant(tree[1]), one
        if kind in ("name", "pi", "e"):
            name = tree[1] if kind == "name" else kind
            return {tuple(int(each == name) for each in self._letters): Fraction(1)}, one
        if kind == "group":
            return self._of(tree[1])
        if kind == "^" and tree[2][0] == "number" and tree[2][1].denominator == 1:
            return self._power(*self._of(tree[1]), int(tree[2][1]))
        if kind not in ("+", "*", "/"):
            raise NoPolynomialError(f"{kind} is not an operation of polynomials")
        top, bottom = self._of(tree[1])
        for part in tree[2:]:
            other, below = self._of(part)
            if kind == "+":
                top, bottom = _added(top, bottom, other, below)
            else:
                if kind == "/":
                    other, below = _inverse(other, below)
                top, bottom = _product(top, other), _product(bottom, below)
        return top, bottom

    def _power(self, top: Polynomial, bottom: Polynomial, exponent: int) -> tuple[Polynomial, Polynomial]:
        if abs(exponent) > _LARGEST_EXPONENT:
            raise NoPolynomialError(f"{exponent} is too large an exponent")
        if exponent < 0:
            top, bottom = _inverse(top, bottom)
        found = self._constant(Fraction(1)), self._constant(Fraction(1))
        for _ in range(abs(exponent)):
            found = _product(found[0], top), _product(found[1], bottom)
        return found

    def _constant(self, number: Fraction) -> Polynomial:
        return {(0,) * len(self._letters): number} if number else {}


def divided(polynomial: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Return the polynomial that a division gives, None if it leaves a remainder."""
    rest, found = dict(polynomial), Polynomial()
    lead = max(divisor)
    for _ in range(_MOST_TERMS):
        if not rest:
            return found
        first = max(rest)
        exponents = tuple(a - b for a, b in zip(first, lead, strict=True))
        if min(exponents, default=0) < 0:
            return None
        found[exponents] = rest[first] / divisor[lead]
        rest = _sum(rest, _product({exponents: -found[exponents]}, divisor))
    return None


def content(polynomial: Polynomial) -> Fraction:
    """Return the largest positive number of which all coefficients are integer multiples: 2 of `4x+6`."""
    tops, bottoms = [each.numerator for each in polynomial.values()], [each.denominator for each in polynomial.values()]
    return Fraction(gcd(*tops), lcm(*bottoms))


def is_constant(polynomial: Polynomial) -> bool:
    return not any(map(any, polynomial))


def factor_between(one: Polynomial, other: Polynomial) -> Fraction | None:
    """Return the number by which one polynomial is a multiple of the other, None if it is none."""
    if one.keys() != other.keys() or not one:
        return None
    factors = {one[each] / other[each] for each in one}
    return factors.pop() if len(factors) == 1 else None


def _added(top: Polynomial, bottom: Polynomial, other: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return the sum of two quotients over the larger denominator, where one is a multiple of the other."""
    if (factor := divided(below, bottom)) is not None:
        return _sum(_product(top, factor), other), below
    if (factor := divided(bottom, below)) is not None:
        return _sum(top, _product(other, factor)), bottom
    return _sum(_product(top, below), _product(other, bottom)), _product(bottom, below)


def _inverse(top: Polynomial, bottom: Polynomial) -> tuple[Polynomial, Polynomial]:
    if not top:
        raise NoPolynomialError("a division by zero")
    return bottom, top


def _sum(one: Polynomial, other: Polynomial) -> Polynomial:
    found = dict(one)
    for exponents, number in other.items():
        found[exponents] = found.get(exponents, Fraction(0)) + number
        if not found[exponents]:
            del found[exponents]
    return _checked(found)


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    if len(one) * len(other) > _MOST_PRODUCTS:
        raise NoPolynomialError("too many terms")
    found = Polynomial()
    for exponents, number in one.items():
        for more, factor in other.items():
            key = tuple(a + b for a, b in zip(exponents, more, strict=True))
            found[key] = found.get(key, Fraction(0)) + number * factor
    return _checked({exponents: number for exponents, number in found.items() if number})


def _checked(polynomial: Polynomial) -> Polynomial:
    if len(polynomial) > _MOST_TERMS or any(
        max(each.numerator.bit_length(), each.denominator.bit_length()) > _MOST_BITS for each in polynomial.values()
    ):
        raise NoPolynomialError("too large a polynomial")
    return polynomial
