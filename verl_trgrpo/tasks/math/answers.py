"""Ground truths of many types as one type: a list of texts, any of which is right."""

import math
import re
from decimal import Decimal
from typing import Any

from verl_trgrpo.tasks.math.reward.scorer import MAX_GOLD_CHARS


class NoAnswerError(ValueError):
    """A row whose answer is missing or blank. Public data has some, so a builder drops and counts them."""


def read_answers(value: Any) -> list[str]:
    r"""Return the acceptable answers of a row: texts without white space at their ends, each once.

    A text stays as it is, with its leading zeros, `$` and commands: the reward understands those. A number becomes the
    shortest decimal text that means it, without an exponent. The entries of a list are alternatives and stay apart.

    Raises:
        NoAnswerError: there is none: null, a blank text, an empty list.
        ValueError: anything else, NaN or infinity, or a text longer than the reward takes.

    >>> read_answers(142.0), read_answers("025\n"), read_answers([0.5, r"$\frac{1}{2}$"])
    (['142'], ['025'], ['0.5', '$\\frac{1}{2}$'])
    """
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise NoAnswerError("the row has no answer")
    return list(dict.fromkeys(_answer(item) for item in (value if isinstance(value, list) else [value])))


def number_text(value: int | float) -> str:
    """Return a finite number as a plain decimal: 142.0 as "142", 1e23 as "1" and 23 zeros, 0.5 as "0.5"."""
    text = format(Decimal(repr(value)), "f")  # repr has the digits that somebody wrote, the exact value has more
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def answers_agree(one: list[str], other: list[str]) -> bool:
    """Return whether two lists of answers have one in common, as far as text and plain numbers tell."""
    return not {*map(_key, one)}.isdisjoint(map(_key, other))


def is_text(value: Any) -> bool:
    """Return whether `value` is a text that is not blank and can be written as UTF-8."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can have half of a surrogate pair
        return False
    return True


def is_number(value: Any) -> bool:
    """Return whether `value` is an int or a finite float; a bool is neither."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _answer(value: Any) -> str:
    if is_number(value):
        value = number_text(value)
    if not is_text(value) or len(value.strip()) > MAX_GOLD_CHARS:
        shown = repr(value)[:60]
        raise ValueError(
            f"an answer is {shown}; expected a text of 1 to {MAX_GOLD_CHARS} characters, a finite number, or a list of "
            "those"
        )
    return value.strip()


def _key(answer: str) -> str:
    text = "".join(answer.split()).strip("$")
    if not re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text):
        return text
    whole, _, part = text.removeprefix("-").partition(".")
    return f"{'-' * text.startswith('-')}{whole.lstrip('0')}.{part.rstrip('0')}"
