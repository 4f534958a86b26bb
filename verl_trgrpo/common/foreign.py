"""The only door to files that somebody else may have made: regular files, of a bounded size, and no links."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

MIB = 1 << 20
RECORD_LIMIT = 16 * MIB
"""Most bytes of a file that is read as a whole: a manifest, a record, a configuration."""


class ForeignFileError(ValueError):
    """A file cannot be opened or read; the message names the file, the reason and the remedy."""


def open_foreign(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a regular file to read its bytes. A pipe is not waited for, a device is not read, and a link is not followed.

    Args:
        path: of the file; what a user has typed may be a link, so commands resolve it first.
        limit: most bytes that the file may have; None for files that are read in pieces.

    Raises:
        FileNotFoundError: there is no such file.
        ForeignFileError: it is a link, no regular file, larger than `limit`, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if Path(path).is_symlink():
            raise ForeignFileError(f"{path} is a link; put the file itself in its place") from error
        raise ForeignFileError(
            f"{path} cannot be opened ({error.strerror}); restore it or change its rights"
        ) from error
    status = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "is no regular file; put a file in its place"
    elif limit is not None and status.st_size > limit:
        problem = f"has {status.st_size:,} bytes, more than the {limit:,} that such a file may have; restore it"
    if problem:
        os.close(descriptor)
        raise ForeignFileError(f"{path} {problem}")
    return os.fdopen(descriptor, "rb")


def read_foreign(path: Path, limit: int = RECORD_LIMIT) -> bytes:
    """Return the content of a file, at most `limit` bytes.

    Raises:
        FileNotFoundError, ForeignFileError: as `open_foreign`; it cannot be read, or grows beyond the limit meanwhile.
    """
    with open_foreign(path, limit) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise ForeignFileError(f"{path} cannot be read ({error.strerror}); restore it") from error
    if len(content) > limit:
        raise ForeignFileError(f"{path} has more than {limit:,} bytes; restore it")
    return content


def read_foreign_json(path: Path, limit: int = RECORD_LIMIT) -> Any:
    """Return the value in a JSON file.

    Raises:
        FileNotFoundError, ForeignFileError: as `read_foreign`; the content is not JSON.
    """
    content = read_foreign(path, limit)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"{path} is not JSON ({error}); restore or remove it") from error
