"""The only way from JSON that somebody else may have made to values: one schema for each file, one message for what is wrong.

Not for modules that `core` imports, which has no pydantic.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from verl_trgrpo.common.foreign import ForeignFileError, lines_of, open_foreign, parse_json, read_foreign_json
from verl_trgrpo.common.text import shorten

_MOST_SHOWN = 5

logger = logging.getLogger(__name__)


class Schema(BaseModel):
    """Fields of a JSON object, of exactly their types; other fields are kept and not looked at."""

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", protected_namespaces=())

    def content(self) -> dict[str, Any]:
        """Return the fields that were read or set, as JSON types."""
        return self.model_dump(exclude_unset=True)


Read = TypeVar("Read", bound=Schema)


def _encodable(text: str) -> str:
    if not text.isascii():
        text.encode()  # a UnicodeEncodeError is a ValueError
    return text


def _as_number(value: Any) -> float | None:
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


Text = Annotated[str, AfterValidator(_encodable)]
"""A string without lone surrogates, which no file can hold."""
Whole = Annotated[int, Field(ge=0, lt=1 << 53)]
"""An integer that counts something."""
OptionalNumber = Annotated[float | None, BeforeValidator(_as_number)]
"""Any number; None for a value of another type."""


def typed(schema: type[Read], content: object, where: str | Path) -> Read:
    """Return JSON content as its schema.

    Args:
        schema: the class to build.
        content: what was parsed.
        where: file, and line if there are several, for the message.

    Raises:
        ForeignFileError: fields have other types; the message names each with its value.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        found = {
            ".".join(map(str, one["loc"])): f"={shorten(one['input'], 60)}: {_reason(one['msg'])}"
            for one in error.errors(include_url=False)
        }
    except RecursionError:
        found = {"content": ": nested too deeply"}
    shown = "; ".join(f"{shorten(name)[1:-1] or 'content'}{what}" for name, what in list(found.items())[:_MOST_SHOWN])
    raise ForeignFileError(f"{where} is damaged ({shown}); correct, restore or remove the file")


def read_typed(path: Path, schema: type[Read], mark: str = "") -> Read:
    """Return the content of a JSON file as its schema, without fields where the file does not exist.

    A file of another kind may have the same name: an object without the key `mark` counts as not there.

    Raises:
        ForeignFileError: as `read_foreign_json` and `typed`.
    """
    try:
        content = read_foreign_json(path)
    except FileNotFoundError:
        content = {}
    other = mark and isinstance(content, dict) and mark not in content
    return typed(schema, {} if other else content, path)


def typed_line(schema: type[Read], line: bytes, where: str) -> Read:
    """Return a line of a JSON Lines file as its schema. Raises a ForeignFileError if it is something else."""
    try:
        content = parse_json(line)
    except ValueError as error:
        raise ForeignFileError(
            f"{where} is damaged ({shorten(line, 60)}: {error}); correct or remove the line"
        ) from error
    return typed(schema, content, where)


def typed_lines(schema: type[Read], path: Path, start: int = 0, before: int = 0) -> Iterator[tuple[int, Read | None]]:
    """Yield the number of bytes of each ended line of a JSON Lines file, and the line as its schema, None if it is damaged.

    However many lines are damaged, one warning tells the first and how many there are. A last line that has not ended is still
    being written.

    Args:
        schema: the class to build.
        path: of the file.
        start: byte to begin with.
        before: number of lines in front of that.

    Raises:
        FileNotFoundError, ForeignFileError: as `open_foreign` and `lines_of`.
    """
    first, damaged = "", 0
    with open_foreign(path) as file:
        file.seek(start)
        for number, line in enumerate(lines_of(file, path), start=before + 1):
            if not line.endswith(b"\n"):
                break
            try:
                yield len(line), typed_line(schema, line, f"{path}, line {number},")
            except ForeignFileError as error:
                first, damaged = first or str(error), damaged + 1
                yield len(line), None
    if damaged:
        logger.warning("%s; it is left out%s", first, f", as {damaged - 1} more" if damaged > 1 else "")


def _reason(message: str) -> str:
    return message[0].lower() + message[1:]
