"""Passages from a corpus file: JSON lines with `id` and `contents`, plain or gzip, as the wiki-18 dump has them."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class Passage:
    """One line of a corpus; both fields are valid Unicode and not blank."""

    id: str
    contents: str


def read_corpus(path: Path) -> Iterator[Passage]:
    """Yield the passages of a corpus file; empty lines do not count.

    Raises ValueError for a line that is no passage, with its number, and for a gzip file that is damaged.
    """
    number = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(file, start=1):  # noqa: B007
                if line.strip():
                    yield _passage(line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}) after line {number}; get it again") from error
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}; correct the line, or take it out") from error


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
