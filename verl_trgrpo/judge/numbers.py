r"""Read plain numbers, in digits or words, exactly; and decide whether two of them are equal."""

import re
import struct
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Literal

from verl_trgrpo.judge.spelling import GROUP

_MAX_DIGITS = 300  # longer numbers are not read, so that arithmetic on them stays cheap
_MAX_EXPONENT = 1000
_MIN_ROUNDED_DIGITS, _BINARY_PLACES = 7, 12
_DECIMAL = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_POWER_OF_TEN = r"10\^(?P<NAME>[0-9]|\{[-+]?[0-9]+\})"
_FRACTION = re.compile(r"\\frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}(?![0-9])")  # 1\frac{4}{5}
_IN_PARENTHESES = re.compile(r"(?<![0-9)])[(\[](-?[0-9]+)[)\]](?=/)|(?<=/)[(\[](-?[0-9]+)[)\]](?![0-9])")  # (2)/[3]
_WHOLE = re.compile(rf"[-+]?[0-9]{{1,{_MAX_DIGITS}}}")  # -12
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?:"
    r" ?(?:(?P<whole>[0-9]+) )?(?P<top>-?[0-9]+)/(?P<bottom>-?[0-9]+)"
    r"|(?P<before>[0-9]*\.(?P<plain>[0-9]*))(?:\\(?:overline|bar)(?P<period>[0-9]|\{[0-9]+\})|\((?P<round>[0-9]+)\)|\\ldots)"
    rf"|(?P<mantissa>{_DECIMAL})(?:(?:\\times|\\cdot|\*|x){_POWER_OF_TEN.replace('NAME', 'a')}|[eE](?P<b>[-+]?[0-9]+))?"
    rf"|{_POWER_OF_TEN.replace('NAME', 'c')}"
    r")(?P<percent>\\?%)?"
)  # -1234.5; 1 4/5; 0.1\overline{6}; 0.(3); 8.7\times10^{8}; 1e-5; 10^{9}; 62.5\%


Notation = Literal["decimal", "scientific", "periodic", "fraction", "unreduced", "mixed"]
_WITH_BAR = ("fraction", "unreduced", "mixed")


@dataclass(frozen=True)
class Number:
    """A number as written.

    Args:
        value: without a percent sign, exactly.
        percent: a percent sign follows.
        written: the way in which it is written, "unreduced" as a fraction that is not in lowest terms. A ground truth without a
            fraction bar that is an integer wants an answer without one: `\\frac{10}{2}` is a task, not a result.
        last_place: the value of the last digit written, such as 0.1 for `9.6`; None for fractions and plain integers.
    """

    value: Fraction
    percent: bool = False
    written: Notation = "decimal"
    last_place: Fraction | None = None

    @property
    def is_division(self) -> bool:
        r"""Whether it is an integer, written with a fraction bar: `\frac{10}{2}`."""
        return self.value.denominator == 1 and self.written in _WITH_BAR


def read_number(text: str) -> Number | None:
    r"""Return the number that `text` (normalized) writes, or None if it is anything else, even a sum of numbers.

    Numbers are written as `-1234.5`, `\frac{3}{4}`, `1\frac{4}{5}`, `8.7\times10^{8}`, `0.\overline{3}` or `62.5\%`.
    """
    if GROUP in text:
        text = text.replace(GROUP, "")
    if _WHOLE.fullmatch(text):
        return Number(Fraction(int(text)))
    match = (
        _NUMBER.fullmatch(_FRACTION.sub(r" \1/\2", _IN_PARENTHESES.sub(r"\1\2", text)))
        if len(text) <= _MAX_DIGITS
        else None
    )
    if match is None:
        return None
    sign, percent = -1 if match["sign"] == "-" else 1, match["percent"] is not None
    if match["top"]:
        whole, top, bottom = int(match["whole"] or 0), int(match["top"]), int(match["bottom"])
        if bottom == 0 or (whole and min(top, bottom) < 0):
            return None
        written: Notation = "mixed" if match["whole"] else "fraction" if gcd(top, bottom) == 1 else "unreduced"
        return Number(sign * (whole + Fraction(top, bottom)), percent, written)
    if match["before"]:
        period = match["round"] or (match["period"] or _repeated(match["plain"])).strip("{}")
        if not period:
            return None
        repeated = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(match["plain"]))
        return Number(sign * (Fraction(match["before"] + "0") + repeated), percent, "periodic")
    exponent = int((match["a"] or match["b"] or match["c"] or "0").strip("{}"))
    if abs(exponent) > _MAX_EXPONENT:
        return None
    mantissa = match["mantissa"] or "1"
    scale = Fraction(10) ** exponent
    decimals = len(mantissa.partition(".")[2])
    rounded = match["mantissa"] is not None and (decimals > 0 or exponent != 0)
    place = scale / 10**decimals if rounded else None
    scientific = any(match.group("a", "b", "c")) and 1 <= float(mantissa) < 10
    return Number(sign * Fraction(mantissa) * scale, percent, "scientific" if scientific else "decimal", place)


def _repeated(digits: str) -> str:
    r"""Return the period of `0.1666\ldots`: the shortest that is there three times, or twice if it is longer than a digit."""
    lengths = (n for n in range(1, len(digits) // 2 + 1) if digits.endswith(digits[-n:] * (3 if n == 1 else 2)))
    return next((digits[-n:] for n in lengths), "")


def equal_numbers(gold: Number, answer: Number, rounded_gold: bool) -> bool:
    """Return whether an answer equals the gold, or with `rounded_gold` rounds to it.

    Without a percent sign in common, `50%` is both 50 and 0.5: the sign is often part of the question.
    """
    values = {answer.value}
    if answer.percent and not gold.percent:
        # 0.4\% is not 0.4, which is less than a percentage
        values = {answer.value / 100} | ({answer.value} if abs(gold.value) >= 1 else set())
    if gold.percent and not answer.percent:
        values.add(answer.value * 100)
    if answer.is_division and gold.written not in _WITH_BAR:
        return False
    if gold.value in values or _is_binary(gold, answer):
        return True
    if gold.last_place is None or not (rounded_gold or has_many_places(gold)):
        return False
    # An answer with fewer digits is a multiple of the gold's last place, so it is never this near without being equal.
    return any(abs(value - gold.value) <= gold.last_place / 2 for value in values)


def has_many_places(number: Number) -> bool:
    """Return whether a number is a decimal of so many places that it is rounded, such as 0.6666666667.

    With fewer places, form does not tell `0.333`, a sum of three exact decimals, from `0.333`, a third.
    """
    place = number.last_place
    if place is None or number.percent:
        return False
    return place <= Fraction(1, 10**_MIN_ROUNDED_DIGITS) and abs(number.value) >= place * 10 ** (
        _MIN_ROUNDED_DIGITS - 1
    )


def _is_binary(gold: Number, answer: Number) -> bool:
    """Return whether the gold is what 32-bit or 64-bit arithmetic makes of the answer: 0.30000001192092896 for 0.3."""
    if gold.last_place is None or gold.last_place > Fraction(1, 10**_BINARY_PLACES) or abs(answer.value) > 1e30:
        return False
    single = struct.unpack("f", struct.pack("f", float(answer.value)))[0]
    return float(gold.value) in (single, float(answer.value))
