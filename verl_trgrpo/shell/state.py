"""What is known while a bash script is followed: variables, arguments, the directory, and why the rest is not known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Value = str | dict[str, str]
"""A text, or an array by key."""

# Bash has no text with a zero byte, so one on each side marks the number of a reason.
MARK = re.compile("\0([0-9]+)\0")


@dataclass
class State:
    """What a subshell has of its own."""

    variables: dict[str, Value] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    directory: str = ""

    def copy(self) -> State:
        """Return a copy, whose arrays are copies."""
        arrays = {name: dict(value) if isinstance(value, dict) else value for name, value in self.variables.items()}
        return State(arrays, [*self.arguments], self.directory)


class Reasons:
    """Texts that are not known, each by a mark that goes through every operation on texts."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    def mark(self, line: int, why: str) -> str:
        """Return the mark of a text that is not known for a reason."""
        reason = f"line {line}: {why}"
        if reason not in self._reasons:
            self._reasons.append(reason)
        return f"\0{self._reasons.index(reason)}\0"

    def of(self, word: str) -> str:
        """Return why a word is not known, beginning with the line; "" where it is known."""
        found = MARK.search(word)
        return self._reasons[int(found[1])] if found else ""


def common(values: Sequence[Value | None], unknown: str) -> Value:
    """Return what values have in common: of arrays the items, with `unknown` for the others."""
    arrays = [value for value in values if isinstance(value, dict)]
    if len(arrays) < len(values):
        return unknown
    keys = dict.fromkeys(key for array in arrays for key in array)
    same = {key for key in keys if all(array.get(key) == arrays[0].get(key) for array in arrays)}
    return {key: arrays[0][key] if key in same else unknown for key in keys}
