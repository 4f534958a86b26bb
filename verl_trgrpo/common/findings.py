"""Findings: what a check reports about some input, and one error that reports all problems at once."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Findings with the same reason that are shown one by one, at most.
_ALONE = 5


class InvalidInputError(ValueError):
    """Report one or more problems with input; the message lists them, `grouped`, and `messages` holds them separately."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = list(messages)
        shown = grouped(self.messages)
        lines = shown if len(shown) == 1 else [f"{len(shown)} problems:", *shown]
        super().__init__("\n- ".join(lines))


def raise_invalid(messages: Sequence[str]) -> None:
    """Raise one InvalidInputError for all `messages`, if there are any."""
    if messages:
        raise InvalidInputError(messages)


def range_errors(values: Mapping[str, object], ranges: Mapping[str, str]) -> list[str]:
    """Return a message for each value that is not a number in the interval of its name, such as ``(0, 1]``.

    A round bracket excludes the end. Names without an interval are skipped.
    """
    messages = []
    for name, interval in ranges.items():
        if name not in values:
            continue
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            messages.append(f"{name}={value!r} is not a number; give one in {interval}")
        elif not _within(value, interval):
            messages.append(f"{name}={value!r} is out of range; give a number in {interval}")
    return messages


def _within(value: float, interval: str) -> bool:
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value > low if interval[0] == "(" else value >= low
    below = value < high if interval[-1] == ")" else value <= high
    return above and below


class Level(str, enum.Enum):
    """Severity of a finding."""

    ERROR = "error"
    WARNING = "warning"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Args:
        level: ERROR (the run would fail or give wrong results), WARNING (it may surprise) or NOT_CHECKED.
        where: the configuration key, file or row.
        message: value, reason and fix.
    """

    level: Level
    where: str
    message: str

    @classmethod
    def error(cls, where: str, message: str) -> Finding:
        """Build an ERROR finding: the run would fail or give wrong results."""
        return cls(Level.ERROR, where, message)

    @classmethod
    def warning(cls, where: str, message: str) -> Finding:
        """Build a WARNING finding: the run may surprise."""
        return cls(Level.WARNING, where, message)

    @classmethod
    def not_checked(cls, where: str, message: str) -> Finding:
        """Build a NOT_CHECKED finding: what could not be checked here, and why."""
        return cls(Level.NOT_CHECKED, where, message)


def grouped(messages: Sequence[str]) -> list[str]:
    """Return messages of the form "place: reason; remedy" with many of the same reason in one: a line for each place."""
    by_reason: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for message in messages:
        place, _, rest = message.partition(": ")
        reason, _, remedy = rest.partition("; ")
        by_reason[reason if remedy else message].append((message, f"{place}: {remedy}"))
    found = []
    for reason, each in by_reason.items():
        many = len(each) > _ALONE and reason != each[0][0]
        lines = "".join(f"\n    {line}" for _, line in each)
        found += [f"{reason} ({len(each)} times):{lines}"] if many else [message for message, _ in each]
    return found


def messages_of(error: BaseException) -> list[str]:
    """Return the messages of an InvalidInputError, or the single message of any other error."""
    return error.messages if isinstance(error, InvalidInputError) else [str(error) or type(error).__name__]


def findings_of(check: Callable[[], object], where: str) -> list[Finding]:
    """Run ``check`` and return an ERROR finding for each message of the ValueError that it raises."""
    try:
        check()
    except ValueError as raised:
        return [Finding.error(where, message) for message in messages_of(raised)]
    return []
