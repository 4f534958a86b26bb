"""Equality of formulas, with math-verify as the parser and sympy for the values. Imported by the judge process only."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify
from math_verify.grader import should_treat_as_complex

logging.getLogger("math_verify").setLevel(logging.CRITICAL)
logging.getLogger("latex2sympy2_extended").setLevel(logging.CRITICAL)

DIGITS = 40
"""Two values are the same if they agree to this many significant digits."""
_WORKING_DIGITS = 60
_POINTS = range(4)
_INTEGER_POINTS = range(4, 20)
_STEPS = (sympy.floor, sympy.ceiling, sympy.Mod, sympy.sign)
_NEGATIVE_FROM = 2
_ENOUGH_POINTS = 2

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)  # m and M are two quantities
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,} [a-zA-Z]{2,}")
_FACTORIAL_POWER = re.compile(r"([a-zA-Z0-9]|\([^()]*\))!\^")
_TEXT = re.compile(r"\\text\{([a-zA-Z]+)\}")
_PRODUCT = re.compile(r"(\\[a-zA-Z]+)|([a-zA-Z0-9)])(?=\((?!0\)))|(\))(?=[a-zA-Z0-9])")
_CAPITAL_I = re.compile(r"(\\[a-zA-Z]+|_\{[^{}]*\}|_\w)|I(?:_(\w)|_\{(\w+)\})?")

# The parser learns its grammar while it works; what is parsed before the fork need not be learned by every worker.
_WARM_UP = (
    r"\frac{1+\sqrt{5}}{2}", r"x^2-2x+\frac{1}{3}", r"\frac{n(n+1)(2n+1)}{6}", r"2^{n}-n-1", r"\sqrt[3]{4}", r"\pi-\log_{2} 3",
    r"\sin(x)+\cos 2t+\tan\theta", r"e^{-\frac{t}{RC}}", r"\binom{2n}{n}", r"\left\lfloor\frac{n}{2}\right\rfloor+1", r"n!",
    r"C_{1}e^{-2t}+\ln x", r"|x-1|", r"y=2x+1", r"x\leq 2", r"-8-8\sqrt{3}i", r"[P_{0}^{2/5}-\frac{2}{5}gz]^{5/2}",
    r"k(4k^{2}+k-1)/2", r"\frac{d v}{d t}+b v=f", r"\lceil n/2\rceil", r"\arcsin(1.3\sin\theta_w)", r"\{x\}\cup(1,2]", r"\infty",
)  # fmt: skip


def warm_up() -> None:
    """Parse and compare typical formulas, so that later ones take their usual time."""
    for text in _WARM_UP:
        understand(text)
    same_formula(r"(x+1)^2", r"x^2+2x+1")


def understand(text: str) -> Any | None:
    """Return the sympy object that the LaTeX formula `text` stands for, or None."""
    try:
        return _parse(text)
    except MemoryError:
        raise
    except Exception:  # the library raises many kinds for what it does not understand
        return None


@lru_cache(maxsize=256)
def _parse(text: str) -> Any | None:
    if _PROSE.search(re.sub(r"\\[a-zA-Z]+", r"\\x", text)):
        return None
    text = _TEXT.sub(r"\1", text)
    text = _FACTORIAL_POWER.sub(r"(\1!)^", text)  # the parser does not know n!^2
    # "k(k+1)" may call a function k; as a product it parses ten times faster, and both sides are read alike.
    # I(0) is no product, which would be 0.
    text = _PRODUCT.sub(lambda match: match[1] or (match[2] or match[3]) + r"\cdot ", text)
    # The parser takes I for the imaginary unit and drops its index; here it is a variable, such as a current.
    text = _CAPITAL_I.sub(lambda match: match[1] or _variable("I", match[2] or match[3]), text)
    text = normalize_latex(rf"\boxed{{{text}}}", _NORMALIZATION)
    return latex2sympy(
        text,
        is_real=not should_treat_as_complex(text),
        convert_degrees=False,
        normalization_config=None,
        conversion_config=_CONVERSION,
    )


def _variable(name: str, index: str | None) -> str:
    return rf"\variable{{{name}_{index}}}" if index else rf"\variable{{{name}}}"


def same_formula(gold: str, answer: str) -> bool:
    """Return whether two LaTeX formulas are equal; False if one is not understood.

    Numbers and expressions are compared by value, at points fixed by the names of their variables; equations are equal
    if one is a multiple of the other. Anything else is left to math-verify.
    """
    gold_object, answer_object = understand(gold), understand(answer)
    if gold_object is None or answer_object is None:
        return False
    try:
        return _same(gold_object, answer_object)
    except MemoryError:
        raise
    except Exception:
        return False


def _same(gold: Any, answer: Any) -> bool:
    if isinstance(gold, sympy.Eq) and isinstance(answer, sympy.Eq):
        return _proportional(gold.lhs - gold.rhs, answer.lhs - answer.rhs)
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr):
        # Step functions of fractions agree with much that they are not, and their variables stand for integers.
        points = _INTEGER_POINTS if gold.has(*_STEPS) or answer.has(*_STEPS) else _POINTS
        pairs = [(_value(gold, point), _value(answer, point)) for point in points]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(known) >= _ENOUGH_POINTS:
            return all(_close(a, b) for a, b in known)
        if any((a is None) != (b is None) for a, b in pairs):
            return False
    return bool(verify(gold, answer, timeout_seconds=None))


def _proportional(gold: Any, answer: Any) -> bool:
    pairs = [(_value(gold, point), _value(answer, point)) for point in _POINTS]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if len(known) < _ENOUGH_POINTS or any(a == 0 or b == 0 for a, b in known):
        return False
    first_gold, first_answer = known[0]
    return all(_close(a * first_answer, b * first_gold) for a, b in known[1:])


def _close(a: Any, b: Any) -> bool:
    """Whether two values agree in relation to their size; only zero agrees with zero."""
    return bool(abs(a - b) <= sympy.Float(10, _WORKING_DIGITS) ** -DIGITS * max(abs(a), abs(b)))


def _value(expression: Any, point: int) -> Any | None:
    """Value of an expression at a point, to 60 digits, or exactly 0; None where it has no finite value."""
    # A decimal is meant exactly: 7.6 is 38/5, not the nearest binary number.
    replaced: dict[Any, Any] = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    replaced |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    exact = expression.xreplace(replaced)
    where = {symbol: _coordinate(symbol.name, point) for symbol in exact.free_symbols}
    value = exact.evalf(_WORKING_DIGITS, subs=where, maxn=2 * _WORKING_DIGITS)
    real, imaginary = map(_zero_if_cancelled, value.as_real_imag())
    if not (value.is_finite and real.is_Number and imaginary.is_Number):
        return None
    # Where the logarithm or root of a negative number has several values, equal formulas may take different ones.
    return (
        None
        if imaginary and where and point >= _NEGATIVE_FROM and not exact.has(sympy.I)
        else real + sympy.I * imaginary
    )


def _zero_if_cancelled(part: Any) -> Any:
    """Return 0 for a float of which 120 working digits leave fewer than 40 correct ones: its terms cancel one another."""
    return sympy.Integer(0) if isinstance(part, sympy.Float) and part._prec < DIGITS * math.log2(10) else part


def _coordinate(name: str, point: int) -> sympy.Rational:
    """A value for a variable, the same for the same name in every process.

    At the first four points a fraction of size 1/7 to 7, at the others an integer of size 1 to 700; all are negative at the
    fourth point, and some at the third and from the fifth on.
    """
    digest = hashlib.sha256(f"{name} {point}".encode()).digest()
    seed = int.from_bytes(digest[:4], "big")
    size = sympy.Rational(1000 + seed % 48000, 7000) if point in _POINTS else sympy.Integer(1 + seed % 700)
    negative = point == _NEGATIVE_FROM + 1 or (point >= _NEGATIVE_FROM and digest[4] % 2)
    return -size if negative else size
