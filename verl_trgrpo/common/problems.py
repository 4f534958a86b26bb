"""What is wrong with some input: one type for a finding, and one error that reports all of them at once."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class ProblemsError(ValueError):
    """One or more problems with input; the message lists them, `problems` has them apart."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        lines = self.problems if len(self.problems) == 1 else [f"{len(self.problems)} problems:", *self.problems]
        super().__init__("\n- ".join(lines))


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one ProblemsError, which is a ValueError, for all `problems`, if there are any."""
    if problems:
        raise ProblemsError(problems)


def range_problems(values: Mapping[str, object], ranges: Mapping[str, str]) -> list[str]:
    """Return a complaint for each value that is no number in its interval.

    Args:
        values: by name; names without an interval are not looked at.
        ranges: intervals such as ``(0, 1]`` by name; a round bracket leaves the end out.
    """
    problems = []
    for name, interval in ranges.items():
        if name not in values:
            continue
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            problems.append(f"{name}={value!r} is not a number; give one in {interval}")
        elif not _within(value, interval):
            problems.append(f"{name}={value!r} is out of range; give a number in {interval}")
    return problems


def _within(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low if interval[0] == "(" else value >= low
    below = value < high if interval[-1] == ")" else value <= high
    return above and below


class Level(str, enum.Enum):
    """How bad a finding is: a run would fail or be wrong, it may surprise, or it could not be looked at."""

    ERROR = "error"
    WARNING = "warning"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Args:
        level: how bad it is.
        where: what it is about: a configuration key, a file, a row.
        message: value, reason and remedy.
    """

    level: Level
    where: str
    message: str


def error(where: str, message: str) -> Finding:
    """Return a finding with which a run would fail or be wrong."""
    return Finding(Level.ERROR, where, message)


def warning(where: str, message: str) -> Finding:
    """Return a finding that may surprise."""
    return Finding(Level.WARNING, where, message)


def not_checked(where: str, message: str) -> Finding:
    """Return a finding that says what could not be looked at, and why."""
    return Finding(Level.NOT_CHECKED, where, message)


def problems_of(error: BaseException) -> list[str]:
    """Return the problems that an error reports, one where it is no ProblemsError."""
    return error.problems if isinstance(error, ProblemsError) else [str(error) or type(error).__name__]


def complaints_of(check: Callable[[], object], where: str) -> list[Finding]:
    """Return an error for each problem of the ValueError that ``check`` raises, if it does."""
    try:
        check()
    except ValueError as raised:
        return [error(where, problem) for problem in problems_of(raised)]
    return []


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what has another value now, such as ``seed was 1, now 2``."""
    return [
        f"{name} was {shorten(before.get(name))}, now {shorten(now.get(name))}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]


def choice_hint(name: str, known: Iterable[str]) -> str:
    """Return what may stand in the place of an unknown name: the nearest, and all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f"{f'did you mean {near[0]}? Known are' if near else 'choose one of'} {', '.join(known)}"


def count_of(number: int, noun: str) -> str:
    """Return ``1 error`` or ``3 errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(value: Any, limit: int = 100) -> str:
    """Return `value` for a message, as Python would write it, in at most `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def as_yaml(value: Any) -> str:
    """Return a value of a configuration for a message, as a recipe or an override has it; texts with quotes."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def as_plain_yaml(value: Any) -> str:
    """As `as_yaml`, texts without quotes."""
    return value if isinstance(value, str) else as_yaml(value)


def first_line(error: BaseException, limit: int = 200) -> str:
    """Return the first line of an error's message, in at most `limit` characters, or its type where it says nothing."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= limit else line[: limit - 3] + "..."


def nearest_key(key: str, known: Iterable[str]) -> str:
    """The dotted key that was probably meant: of a like last part, best in the same section; "" where none is like it."""
    section, _, name = key.rpartition(".")
    known = list(known)
    here = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == section}
    if near := difflib.get_close_matches(name, here, n=1, cutoff=0.7):
        return here[near[0]]
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    if elsewhere:
        inside = [other for other in elsewhere if section and other.startswith(f"{section}.")]
        return min(inside or elsewhere, key=len)
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.85)), "")
