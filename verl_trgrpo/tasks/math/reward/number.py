r"""Numbers written out, such as `-1,234.5`, `\frac{3}{4}`, `1\frac{4}{5}`, `8.7\times10^{8}`, `0.\overline{3}` or `62.5\%`.

They are read as exact fractions.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 300
"""Longer numbers are not read, so that arithmetic on them stays cheap."""

MAX_EXPONENT = 1000

_D = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_EXPONENT = r"\^(?:\{(?P<NAME>[-+]?[0-9]+)\}|(?P<NAME1>[0-9]))"
_PATTERN = re.compile(
    r"(?P<sign>[-+]?)(?:"
    r"(?P<whole>[0-9]+)?\\frac\{(?P<top>-?[0-9]+)\}\{(?P<bottom>-?[0-9]+)\}"
    r"|(?:(?P<whole2>[0-9]+) )?(?P<top2>[0-9]+)/(?P<bottom2>[0-9]+)"
    r"|(?P<before>[0-9]+)\.(?P<plain>[0-9]*)\\(?:overline|bar)(?:\{(?P<period>[0-9]+)\}|(?P<digit>[0-9]))"
    rf"|(?P<mantissa>{_D})(?:(?:\\times|\\cdot|\*|x)10{_EXPONENT.replace('NAME', 'a')}|[eE](?P<b>[-+]?[0-9]+))?"
    rf"|10{_EXPONENT.replace('NAME', 'c')}"
    r")(?P<percent>\\?%)?"
)


@dataclass(frozen=True)
class Number:
    """A number as written.

    value: without a percent sign, exactly.
    percent: a percent sign follows.
    literal_integer: no fraction bar. An integer ground truth wants such an answer: `\\frac{10}{2}` is a task, not a result.
    last_place: the value of the last digit written, such as 0.1 for `9.6`; None for fractions and plain integers.
    """

    value: Fraction
    percent: bool = False
    literal_integer: bool = True
    last_place: Fraction | None = None


def read_number(text: str) -> Number | None:
    """Return the number that `text` (normalized) writes, or None if it is anything else, even a sum of numbers."""
    if len(text) > MAX_DIGITS or not (match := _PATTERN.fullmatch(text)):
        return None
    groups = match.groupdict()
    sign, percent = -1 if groups["sign"] == "-" else 1, groups["percent"] is not None
    top, bottom = groups["top"] or groups["top2"], groups["bottom"] or groups["bottom2"]
    if top is not None:
        whole = int(groups["whole"] or groups["whole2"] or 0)
        if int(bottom) == 0 or (whole and (int(top) < 0 or int(bottom) < 0)):
            return None
        return Number(sign * (whole + Fraction(int(top), int(bottom))), percent, literal_integer=False)
    if groups["before"] is not None:
        period = groups["period"] or groups["digit"]
        repeated = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(groups["plain"]))
        return Number(sign * (Fraction(f"{groups['before']}.{groups['plain'] or 0}") + repeated), percent, True)
    exponent = int(next((groups[name] for name in ("a", "a1", "b", "c", "c1") if groups[name]), 0))
    if abs(exponent) > MAX_EXPONENT:
        return None
    mantissa = (groups["mantissa"] or "1").replace(",", "")
    scale = Fraction(10) ** exponent
    decimals = len(mantissa.partition(".")[2])
    rounded = groups["mantissa"] is not None and (decimals > 0 or exponent != 0)
    last_place = scale / 10**decimals if rounded else None
    return Number(sign * Fraction(mantissa) * scale, percent, True, last_place)


def equal_numbers(gold: Number, answer: Number, *, rounded_gold: bool) -> bool:
    """Return whether the answer is the gold number.

    Without a percent sign in common, `50\\%` is both 50 and 0.5: the sign is often part of the question. With
    `rounded_gold`, an answer with more digits than a decimal gold is rounded to the gold's last place first.
    """
    values = {answer.value}
    if answer.percent and not gold.percent:
        values.add(answer.value / 100)
    if gold.percent and not answer.percent:
        values.add(answer.value * 100)
    if answer.value.denominator == 1 and gold.literal_integer and not answer.literal_integer:
        return False
    if gold.value in values:
        return True
    if not rounded_gold or gold.last_place is None:
        return False
    # An answer with fewer digits is a multiple of the gold's last place, so it is never this near without being equal.
    return any(abs(value - gold.value) <= gold.last_place / 2 for value in values)
