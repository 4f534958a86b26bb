"""Passages from a corpus file: JSON lines with `id` and `contents`, plain or gzip, as the wiki-18 dump has them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

MAX_LINE_BYTES = 1 << 24
MAX_REPORTED = 5


@dataclass(frozen=True, slots=True)
class Passage:
    """One line of a corpus; both fields are valid Unicode and not empty."""

    id: str
    contents: str


class Corpus:
    """One pass over a corpus file.

    Iterating gives the passages. A line that is none is left out, counted in `bad_lines`, and described in
    `bad_examples` (the first few, "line 7: ..."); empty lines are nothing at all. `bytes_read` counts bytes of the file
    as it is on disk, of `size`. After the last passage `sha256` is the file's digest.

    Raises ValueError, when iterated, for a gzip file that is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.lines = 0
        self.bad_lines = 0
        self.bad_examples: list[str] = []
        self.sha256 = ""
        self._raw: _DigestedFile | None = None

    @property
    def bytes_read(self) -> int:
        return self._raw.position if self._raw else 0

    def __iter__(self) -> Iterator[Passage]:
        with _DigestedFile(self.path) as raw:
            self._raw = raw
            buffered = io.BufferedReader(raw, 1 << 20)
            try:
                yield from self._passages(gzip.GzipFile(fileobj=buffered) if _is_gzip(self.path) else buffered)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(
                    f"{self.path} is a damaged gzip file ({error}) after line {self.lines}; get it again"
                ) from error
            raw.read_to_end()
            self.sha256 = raw.digest.hexdigest()

    def _passages(self, file: io.BufferedIOBase) -> Iterator[Passage]:
        while line := file.readline(MAX_LINE_BYTES + 1):
            self.lines += 1
            too_long = len(line) > MAX_LINE_BYTES
            while too_long and not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
                pass
            if not line.strip() and not too_long:
                continue
            try:
                if too_long:
                    raise ValueError(f"longer than {MAX_LINE_BYTES} bytes")
                yield _passage(line)
            except ValueError as error:
                self.bad_lines += 1
                if len(self.bad_examples) < MAX_REPORTED:
                    self.bad_examples.append(f"line {self.lines}: {error}")


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


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


class _DigestedFile(io.RawIOBase):
    """A file that is read once from beginning to end, and hashed and counted on the way."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.digest = hashlib.sha256()
        self.position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:count])
        self.position += count
        return count

    def read_to_end(self) -> None:
        while self.read(1 << 20):
            pass

    def close(self) -> None:
        self._file.close()
        super().close()
