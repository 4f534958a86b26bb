"""Equality of formulas, with math-verify as the parser and sympy for the values. Imported in the judge process only."""

import hashlib
import random
import re
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, NormalizationConfig, latex2sympy, normalize_latex
from math_verify import verify
from math_verify.grader import should_treat_as_complex

_WORKING_DIGITS = 60
_TOLERANCE = sympy.Float(10, _WORKING_DIGITS) ** -40
_STEPS = (sympy.floor, sympy.ceiling, sympy.Mod, sympy.sign)
_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)  # m and M are two quantities
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,} [a-zA-Z]{2,}")
_FACTORIAL_POWER = re.compile(r"([a-zA-Z0-9]|\([^()]*\))!\^")
_TEXT = re.compile(r"\\text\{([a-zA-Z]+)\}")
_SCRIPT = r"(?:\w|\{(?:[^{}]|\{[^{}]*\})*\})"
_NAMES = "sin|cos|tan|cot|sec|csc|log|ln|lg|exp|sqrt|frac|binom|min|max|left|right"
_FUNCTION = rf"\\(?:arc)?(?:{_NAMES})h?(?![a-zA-Z])(?:_{_SCRIPT})?(?:\^{_SCRIPT})?"
_PRODUCT = re.compile(
    rf"({_FUNCTION}|\\(?!pi|[a-z]*theta|alpha|beta|gamma|lambda|mu|phi|rho|sigma|omega)[a-zA-Z]+)|([a-zA-Z0-9)}}])(?=\()|(\))(?=[a-zA-Z0-9])"
)
_CAPITAL_I = re.compile(r"(\\[a-zA-Z]+|_\{[^{}]*\}|_\w)|I(?:_\w|_\{\w+\})?")
_SYMBOL = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{\w+\}))?"
_DERIVATIVE = re.compile(
    rf"\\frac\{{\s*(?P<kind>d|\\partial)\s*(?:\^\{{?(?P<order>[0-9])\}}?)?\s*(?P<of>{_SYMBOL})\s*\}}"
    rf"\{{\s*(?:d|\\partial)\s*(?P<by>{_SYMBOL})\s*(?(order)\^\{{?(?P=order)\}}?)\s*\}}"
)
_PRIMED = re.compile(rf"(?P<of>{_SYMBOL})(?P<primes>'+)")
_GREATEST_DIVISOR = re.compile(r"\\(gcd|lcm|phi|mathbb)(?:\(([^()]*)\)|\{([^{}]*)\})")
_AT_A_NUMBER = re.compile(r"(?<![a-zA-Z\\}])([a-zA-Z])\(([0-9]+(?:\.[0-9]+)?)\)")
_ACCENTED = re.compile(rf"\\(bar|overline|hat|tilde|vec)\s*(?:\{{({_SYMBOL})\}}|([a-zA-Z])(?![a-zA-Z]))")
_ODD_ROOT = re.compile(r"\\sqrt\[([3579])\]\{-([0-9]+|[a-zA-Z])\}")
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?|[a-zA-Z])\^\\circ")
_SLASH_FRACTION = re.compile(r"(?<![0-9.}\w)])([0-9]+)/([0-9]+)(?=[a-zA-Z\\])")
_GROUPED_ARGUMENT = re.compile(r"(\\log_(?:\w|\{[^{}]*\}))\{([^{}]*)\}")

# The parser learns its grammar while it works; what is compared before the fork need not be learned by every worker.
WARM_UP = (
    r"\frac{1+\sqrt{5}}{2}", r"x^2-2x+\frac{1}{3}", r"\frac{n(n+1)(2n+1)}{6}", r"2^{n}-n-1", r"\pi-\log_{2} 3", r"n!", r"|x-1|",
    r"\sin(x)+\cos 2t+\tan\theta", r"e^{-\frac{t}{RC}}", r"\binom{2n}{n}", r"\left\lfloor\frac{n}{2}\right\rfloor+1", r"y=2x+1",
    r"C_{1}e^{-2t}+\ln x", r"-8-8\sqrt{3}i", r"[P_{0}^{2/5}-\frac{2}{5}gz]^{5/2}", r"\frac{d v}{d t}+b v=f", r"\{x\}\cup(1,2]",
)  # fmt: skip


def warm_up() -> None:
    """Let the parser learn its grammar; see `WARM_UP`."""
    for gold, answer in [("(x+1)^2", "x^2+2x+1"), *zip(WARM_UP, WARM_UP, strict=True)]:
        same_formula(gold, answer)


def same_formula(gold: str, answer: str) -> bool:
    """Return whether two LaTeX formulas are equal. For what they do not understand, the libraries raise errors of any kind.

    Numbers and expressions are compared by value to 40 significant digits, at points fixed by the names of their variables;
    equations are equal if one is a multiple of the other. Anything else is left to math-verify.
    """
    variables = {match["by"] for match in _DERIVATIVE.finditer(gold + " " + answer) if match["kind"] == "d"}
    by = variables.pop() if len(variables) == 1 else ""
    one, other = _parse(gold, by), _parse(answer, by)
    if gold == answer:
        return True
    equations = isinstance(one, sympy.Eq) and isinstance(other, sympy.Eq)
    if equations:
        one, other = one.lhs - one.rhs, other.lhs - other.rhs
    if isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr):
        # Step functions of fractions agree with much that they are not, and their variables stand for integers.
        integers = _steps_over_integers(one) or _steps_over_integers(other)
        pairs = [
            (_value(one, point, integers), _value(other, point, integers)) for point in range(16 if integers else 4)
        ]
        values = [(a, b) for a, b in pairs if a is not None and b is not None]
        if len(values) >= 2:
            first, first_other = values[0] if equations else (1, 1)
            return all(_close(a * first_other, b * first) for a, b in values) and (first != 0) == (first_other != 0)
        if any((a is None) != (b is None) for a, b in pairs):
            return False
    return not equations and bool(verify(one, other, timeout_seconds=None))


def _opaque(kind: str, text: str) -> str:
    """Return a symbol that stands for what has no value of its own; equal strings get equal symbols."""
    return rf"\variable{{{kind}{hashlib.blake2b(re.sub(chr(32), '', text).encode(), digest_size=6).hexdigest()}}} "


def _derivatives(text: str, by: str) -> str:
    """Return `text` with derivatives as symbols: `y'`, `\\dot y` and `dy/dt` are one if `t` is the only such variable."""
    text = _DERIVATIVE.sub(
        lambda m: _opaque("D", f"{m['kind'] if m['kind'] != 'd' else ''}{m['order'] or 1} {m['of']} {m['by']}"), text
    )
    return _PRIMED.sub(lambda m: _opaque("D", f"{len(m['primes'])} {m['of']} {by}"), text)


def _divisor(match: re.Match[str]) -> str:
    arguments = sorted((match[2] if match[2] is not None else match[3]).replace(" ", "").split(","))
    if match[1] == "lcm" and len(arguments) == 2:
        return rf"\frac{{({arguments[0]})({arguments[1]})}}{{{_opaque('gcd', ','.join(arguments))}}}"
    return _opaque(match[1], ",".join(arguments))


def _prepare(text: str, by: str) -> str:
    """Return a formula as the parser understands it: without what it would read as something else."""
    text = _derivatives(_TEXT.sub(r"\1", text), by)
    text = _GREATEST_DIVISOR.sub(_divisor, text.replace(r"\varphi", r"\phi"))
    text = _ACCENTED.sub(lambda m: _opaque(m[1].replace("overline", "bar"), m[2] or m[3]), text)
    text = _ODD_ROOT.sub(r"(-\\sqrt[\1]{\2})", text)  # the parser takes the root that is not real
    text = _AT_A_NUMBER.sub(lambda m: _opaque("at", f"{m[1]} {m[2]}"), text)
    text = _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)
    text = _SLASH_FRACTION.sub(r"\\frac{\1}{\2}", _GROUPED_ARGUMENT.sub(r"\1(\2)", text))
    text = _FACTORIAL_POWER.sub(r"(\1!)^", text)  # the parser does not know n!^2
    # "k(k+1)" may call a function k; as a product it parses ten times faster, and both sides are read alike.
    text = _PRODUCT.sub(lambda match: match[1] or (match[2] or match[3]) + r"\cdot ", text)
    # The parser takes I for the imaginary unit and drops its index; here it is a variable, such as a current.
    return _CAPITAL_I.sub(lambda match: match[1] or rf"\variable{{{re.sub('[{}_]', '', match[0])}}}", text)


@lru_cache(maxsize=256)
def _parse(text: str, by: str = "") -> Any:
    if _PROSE.search(re.sub(r"\\[a-zA-Z]+", r"\\x", text)):
        raise ValueError(f"{text} reads like prose")
    text = normalize_latex(rf"\boxed{{{_prepare(text, by)}}}", _NORMALIZATION)
    parsed = latex2sympy(
        text,
        is_real=not should_treat_as_complex(text),
        convert_degrees=False,
        normalization_config=None,
        conversion_config=_CONVERSION,
    )
    if parsed is None:
        raise ValueError(f"{text} is not a formula")
    return parsed


def _steps_over_integers(expression: Any) -> bool:
    """Return whether step functions act on more than integers at integer points: floor(n/2), but not floor(x)."""
    steps = [step for step in expression.atoms(*_STEPS) if step.args]
    if not steps:
        return False
    for step in steps:
        where = {symbol: _coordinate(symbol.name, 0, True) for symbol in step.free_symbols}
        argument = step.args[0].xreplace(where)
        if len(step.args) > 1 or argument.is_integer is not True:
            return True
    return False


def _close(a: Any, b: Any) -> bool:
    """Return whether two values agree in relation to their size; only zero agrees with zero."""
    return bool(abs(a - b) <= _TOLERANCE * max(abs(a), abs(b)))


def _value(expression: Any, point: int, integers: bool) -> Any | None:
    """Value of an expression at a point; None where it has no finite value."""
    # A decimal is meant exactly: 7.6 is 38/5, not the nearest binary number.
    replaced: dict[Any, Any] = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    replaced |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    exact = expression.xreplace(replaced)
    where = {symbol: _coordinate(symbol.name, point, integers) for symbol in exact.free_symbols}
    value = exact.evalf(_WORKING_DIGITS, subs=where, maxn=2 * _WORKING_DIGITS)
    real, imaginary = value.as_real_imag()
    if not (value.is_finite and real.is_Number and imaginary.is_Number):
        return None
    # Where the logarithm or root of a negative number has several values, equal formulas may take different ones.
    ambiguous = where and point >= 2 and not exact.has(sympy.I) and not _close(value, real)
    return None if ambiguous else value


def _coordinate(name: str, point: int, integers: bool) -> sympy.Rational:
    """Return a value for a variable, the same for the same name in every process.

    Positive at the first two points, negative at the fourth, of either sign elsewhere; an integer of size 1 to 700, or a
    fraction of size 1/7 to 7.
    """
    source = random.Random(f"{name} {point}")
    size = sympy.Integer(source.randint(1, 700)) if integers else sympy.Rational(source.randint(1000, 49000), 7000)
    return -size if point == 3 or (point >= 2 and source.random() < 0.5) else size
