"""Values of formulas at a point: exactly where they are rational, also modulo a prime, and numerically elsewhere."""

import hashlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any

import mpmath

from verl_trgrpo.judge.parser import Tree

_MAX_BITS = 20_000  # of a number that is written out, and of a magnitude
_MAX_BITS_AT_A_POINT = 1500  # where other points can be tried
_MAX_FACTORIAL = 20_000
_MAX_GAMMA = 100  # of a factorial between integers


class NotRationalError(ArithmeticError):
    """The value at this point is not found by exact arithmetic."""


class TooLargeError(ArithmeticError):
    """A value has more digits than are worked out."""


def stand_in(*key: Any) -> int:
    """Return a number of 64 bits that stands for a function at its arguments, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def rational(tree: Tree, where: Mapping[str, Any], prime: int = 0) -> Any:
    """Return the value of a rational expression, as a fraction or modulo a prime.

    Raises:
        NotRationalError: a root, an irrational number or function, or an exponent that is not an integer.
        ZeroDivisionError: the value is undefined.
        TooLargeError: an exponent or factorial is too large.
    """
    value_of = partial(rational, where=where, prime=prime)
    match tree:
        case ("number" | "name") as kind, content:
            value = content if kind == "number" else where[content]
        case "^", base, exponent:
            power = rational(exponent, where)
            if power.denominator > 1:
                raise NotRationalError
            value = _power(value_of(base), power.numerator, prime)
        case ("!" | "!!" | "binomial") as kind, *parts:
            value = _counted(kind, [rational(part, where) for part in parts], prime)
        case (("+" | "group"), *terms):
            value = sum(map(value_of, terms))
        case "*", *factors:
            value = prod(map(value_of, factors))
        case "/", top, bottom:
            value = value_of(top) * _inverse(value_of(bottom), prime)
        case "call", name, *arguments:
            value = stand_in(name, *map(value_of, arguments))
        case "symmetric", name, *arguments:
            value = stand_in(name, *sorted(map(value_of, arguments)))
        case _:
            raise NotRationalError
    return value.numerator * _inverse(value.denominator, prime) % prime if prime else Fraction(value)


def _inverse(value: Any, prime: int) -> Any:
    if not prime:
        return 1 / Fraction(value)
    if value % prime == 0:
        raise ZeroDivisionError
    return pow(int(value), -1, prime)


def _power(base: Any, exponent: int, prime: int) -> Any:
    if exponent < 0:
        base, exponent = _inverse(base, prime), -exponent
    if not prime and exponent * max(base.numerator.bit_length(), base.denominator.bit_length()) > _MAX_BITS:
        raise TooLargeError
    return pow(int(base), exponent, prime) if prime else base**exponent


def _counted(kind: str, numbers: list[Fraction], prime: int) -> Any:
    """Return a factorial or binomial coefficient."""
    if any(number.denominator > 1 for number in numbers):
        raise NotRationalError
    top, *rest = (number.numerator for number in numbers)
    count = top if not rest else min(rest[0], top - rest[0])
    if min(top, count) < 0:
        raise ZeroDivisionError
    if top > _MAX_FACTORIAL:
        raise TooLargeError
    value = divisor = 1
    for factor in range(top, top - count, -2 if kind == "!!" else -1):
        value = value * factor % prime if prime else value * factor
    for factor in range(1, count + 1 if rest else 1):
        divisor = divisor * factor % prime if prime else divisor * factor
    return value * _inverse(divisor, prime)


class Numeric:
    """Works out values of trees at a point with the precision of mpmath's context.

    Attributes:
        magnitude: the largest binary exponent, of either sign, among all values on the way.
        real: no root, logarithm or power on the way left the real numbers.
    """

    def __init__(self, where: Mapping[str, Fraction]) -> None:
        self.where = where
        self.magnitude = 0.0
        self.real = True

    def value(self, tree: Tree) -> Any:
        """Return a real or complex number of mpmath.

        Raises:
            ArithmeticError: the value is undefined (ZeroDivisionError), or it is too large (TooLargeError).
        """
        kind, *parts = tree
        if kind in ("number", "name"):
            found = _float(parts[0] if kind == "number" else self.where[parts[0]])
        elif kind in ("pi", "e", "i"):
            return mpmath.mpc(0, 1) if kind == "i" else +getattr(mpmath.mp, kind)
        elif kind == "^":
            found = self.power(*parts)
        else:
            values = [self.value(part) for part in parts if isinstance(part, tuple)]
            if kind in ("gcd", "lcm", "det", "arg", "call", "symmetric"):
                found = _opaque(kind, parts, values)
            else:
                self.check(abs(values[0]) if kind.endswith("h") else 0)
                found = _FUNCTIONS.get(kind, getattr(mpmath, kind, None))(*values)  # type: ignore[misc]
            if not _is_real(found) and all(map(_is_real, values)):
                self.real = False
        if not _is_real(found) and found.imag == 0:
            found = found.real
        if not mpmath.isfinite(found):
            raise ZeroDivisionError
        self.check(mpmath.mag(found) if found else 0)
        return found

    def check(self, magnitude: Any) -> None:
        """Take note of a magnitude: the nearer `tanh` comes to 1, the more digits tell it from 1."""
        self.magnitude = max(self.magnitude, abs(float(magnitude)))
        if self.magnitude > (_MAX_BITS_AT_A_POINT if self.where else _MAX_BITS):
            raise TooLargeError

    def power(self, base: Tree, exponent: Tree) -> Any:
        """Return a power; it is real for a negative base where the exponent is a fraction with an odd denominator."""
        value = self.value(base)
        try:
            number = rational(exponent, self.where)
        except NotRationalError:
            number = self.value(exponent)
        if not value:
            return value ** abs(number.numerator) if isinstance(number, Fraction) and number > 0 else mpmath.inf
        self.check(mpmath.log(abs(value), 2) * (_float(number) if isinstance(number, Fraction) else abs(number)))
        if not isinstance(number, Fraction):
            found = mpmath.power(value, number)
        elif number.denominator == 1:
            return value ** int(number)
        elif _is_real(value) and value < 0 and number.denominator % 2 and _is_constant(exponent):
            return (-1) ** (number.numerator % 2) * (-value) ** _float(number)
        else:
            found = value ** _float(number)
        self.real = self.real and (_is_real(found) or not _is_real(value))
        return found


def _opaque(kind: str, parts: list[Any], values: list[Any]) -> Any:
    """Return a number that stands for the value of a function at its arguments, whose order may not count."""
    rounded = [mpmath.nstr(value, 25) for value in values]
    name = kind if isinstance(parts[0], tuple) else parts[0]
    if kind in ("gcd", "lcm", "symmetric"):
        name, rounded = ("gcd" if kind == "lcm" else name), sorted(rounded)
    key = stand_in(name, *rounded)
    found = 1 + mpmath.ldexp(key, -64)
    if kind == "call" and not name.startswith("norm") and key % 2:
        found = -found
    return values[0] * values[1] / found if kind == "lcm" and len(values) == 2 else found


def _real_only(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*values: Any) -> Any:
        if not all(map(_is_real, values)):
            raise ZeroDivisionError
        return function(*values)

    return checked


def _in_reach(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*values: Any) -> Any:
        if max(map(abs, values)) > (_MAX_FACTORIAL if all(map(mpmath.isint, values)) else _MAX_GAMMA):
            raise TooLargeError
        return function(*values)

    return checked


def _root(value: Any, index: Any) -> Any:
    if _is_real(value) and value < 0 and mpmath.isint(index) and int(index) % 2:
        return -((-value) ** (1 / index))
    return mpmath.sqrt(value) if index == 2 else mpmath.power(value, 1 / index)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "+": lambda *values: mpmath.fsum(values), "*": lambda *values: mpmath.fprod(values), "/": lambda a, b: a / b,
    "group": lambda value: value, "log": lambda value, base: mpmath.log(value) / mpmath.log(base), "root": _root, "abs": abs,
    "floor": _real_only(mpmath.floor), "ceiling": _real_only(mpmath.ceil), "max": _real_only(max), "min": _real_only(min),
    "!": _in_reach(mpmath.factorial), "!!": _in_reach(mpmath.fac2), "binomial": _in_reach(mpmath.binomial),
}  # fmt: skip


def _float(number: Fraction) -> Any:
    return mpmath.mpf(number.numerator) / number.denominator


def _is_constant(tree: Tree) -> bool:
    return tree[0] != "name" and all(_is_constant(part) for part in tree[1:] if isinstance(part, tuple))


def _is_real(value: Any) -> bool:
    return not isinstance(value, mpmath.mpc)
