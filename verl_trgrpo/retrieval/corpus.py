"""Passages from a corpus file: JSON lines with `id` and `contents`, plain or gzip, as the wiki-18 dump has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from verl_trgrpo.common.files import json_lines


@dataclass(frozen=True, slots=True)
class Passage:
    """One line of a corpus; both fields are valid Unicode and not blank."""

    id: str
    contents: str


def read_corpus(path: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus file; empty lines do not count.

    Raises ValueError for a line that is no passage, with its number, and for a gzip file that is damaged.
    """
    for number, row in json_lines(path):
        try:
            passage = _passage(row)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}; correct the line, or take it out") from error
        yield passage


def _passage(row: Any) -> Passage:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    identity, contents = row.get("id"), row.get("contents")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    for name, value in (("id", identity), ("contents", contents)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} is missing or not a text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} holds half a surrogate pair") from error
    return Passage(cast(str, identity), cast(str, contents))
