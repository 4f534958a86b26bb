"""What a check says."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Level(str, enum.Enum):
    """How bad it is: the run would fail or be wrong, it may surprise, or it could not be looked at."""

    ERROR = "error"
    WARNING = "warning"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One sentence of a check.

    Args:
        level: how bad it is.
        key: the configuration key to look at.
        message: value, reason and remedy.
    """

    level: Level
    key: str
    message: str


def error(key: str, message: str) -> Finding:
    return Finding(Level.ERROR, key, message)


def warning(key: str, message: str) -> Finding:
    return Finding(Level.WARNING, key, message)


def not_checked(key: str, message: str) -> Finding:
    return Finding(Level.NOT_CHECKED, key, message)


def complaint_of(check: Callable[[], object], key: str) -> list[Finding]:
    """An error with the message of the ValueError that ``check`` raises, if it does."""
    try:
        check()
    except ValueError as problem:
        return [error(key, str(problem))]
    return []
