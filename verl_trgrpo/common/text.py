"""Strings for messages, and tables for terminals and Markdown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


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
    others = [other for other in known if other.rpartition(".")[0] != section]
    return next(iter(difflib.get_close_matches(key, others, n=1, cutoff=0.85)), "")


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str], align: str) -> str:
    """Return `rows` below `header` in padded columns, one line a row, without a line break at the end.

    Args:
        rows: cells; every row has as many as the header.
        header: names of the columns.
        align: one letter a column, ``l`` or ``r``.
    """
    return "\n".join("  ".join(line).rstrip() for line in _padded([header, *rows], align))


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a Markdown table that is readable as text, too: columns are padded."""
    head, *body = _padded([header, *rows], "l" * len(header))
    rule = ["-" * len(cell) for cell in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _padded(lines: Sequence[Sequence[str]], align: str) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(line, widths, align, strict=True)
        ]
        for line in lines
    ]
