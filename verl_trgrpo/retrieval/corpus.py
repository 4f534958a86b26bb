"""Passages from a corpus file: JSON lines with `id` and `contents`, plain or gzip, as the wiki-18 dump has them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

MAX_REPORTED = 5


@dataclass(frozen=True, slots=True)
class Passage:
    """One line of a corpus; both fields are valid Unicode and not blank."""

    id: str
    contents: str


class Corpus:
    """The passages of a corpus file; iterate once.

    A line that is no passage is left out, counted in `bad_lines`, and described in `bad_examples` (the first few, "line 7:
    ..."); empty lines do not count.

    Raises ValueError, when iterated, for a gzip file that is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        self.bad_lines = 0
        self.bad_examples: list[str] = []

    def __iter__(self) -> Iterator[Passage]:
        with gzip.open(self.path) if self.path.suffix == ".gz" else self.path.open("rb") as file:
            try:
                for self.lines, line in enumerate(file, start=1):
                    passage = self._read(line) if line.strip() else None
                    if passage is not None:
                        yield passage
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(
                    f"{self.path} is a damaged gzip file ({error}) after line {self.lines}; get it again"
                ) from error

    def _read(self, line: bytes) -> Passage | None:
        try:
            return _passage(line)
        except ValueError as error:
            self.bad_lines += 1
            if len(self.bad_examples) < MAX_REPORTED:
                self.bad_examples.append(f"line {self.lines}: {error}")
            return None


def _passage(line: bytes) -> Passage:
    try:
        row: Any = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON") from error
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
