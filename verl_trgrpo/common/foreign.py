"""The only door to files that somebody else may have made: regular files, of a bounded size, and no links.

What a user has typed may be a link: its reader takes `real_path`. The entries of a directory may not, because whoever made it
has chosen where they lead; only a snapshot in Hugging Face's cache may, into the blobs of its own repository. Directories on
the way may be links. What a library opens by its path is looked at here before.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import stat
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from verl_trgrpo.common.secrets import line_problems, password_problems
from verl_trgrpo.common.text import count_of, shorten

MIB = 1 << 20
RECORD_LIMIT = 16 * MIB
"""Most bytes of a file that is read as a whole: a manifest, a record, a configuration."""
LINE_LIMIT = 64 * MIB
"""Most bytes of one line of a file that is read line by line."""
JSON_LIMIT = 2048 * MIB
"""Most bytes of a JSON file of rows, which is parsed as a whole."""
MODEL_LIMIT = 512 * MIB
"""Most bytes of a model's file that is not one of weights, such as its tokenizer."""

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".data", ".ckpt")
_MOST_ENTRIES = 10_000


class ForeignFileError(ValueError):
    """A file cannot be opened or read; the message names the file, the reason and the remedy."""


class NotJSONError(ValueError):
    """A text is not JSON of one meaning; the message has the reason."""


def open_foreign(path: Path, limit: int | None = None) -> BinaryIO:
    """Open a regular file to read its bytes. A pipe is not waited for, a device is not read, and a link is not followed.

    Args:
        path: of the file; `real_path` of what a user has typed.
        limit: most bytes that the file may have; None for files that are read in pieces.

    Raises:
        FileNotFoundError: there is no such file.
        ForeignFileError: it is a link, no regular file, larger than `limit`, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except (OSError, ValueError) as error:  # a ValueError for characters that no name may have
        if getattr(error, "errno", None) != errno.ELOOP:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ForeignFileError(
                f"{path} cannot be opened ({reason}); restore the file or change its rights"
            ) from error
        target, snapshots = real_path(path), real_path(path).parent.parent / "snapshots"
        if target.parent.name == "blobs" and real_path(Path(path).parent).is_relative_to(snapshots):
            return open_foreign(target, limit)
        raise ForeignFileError(f"{path} is a link; put the file itself in its place") from error
    status = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a regular file; put a file in its place"
    elif limit is not None and status.st_size > limit:
        problem = f"has {status.st_size:,} bytes, more than the {limit:,} that such a file may have; restore the file"
    if problem:
        os.close(descriptor)
        raise ForeignFileError(f"{path} {problem}")
    return os.fdopen(descriptor, "rb")


def real_path(path: Path) -> Path:
    """Return the file that a path leads to; unlike ``Path.resolve``, never raise for links in a circle."""
    return Path(os.path.realpath(path))


def read_foreign(path: Path, limit: int = RECORD_LIMIT) -> bytes:
    """Return the content of a file, at most `limit` bytes.

    Raises:
        FileNotFoundError, ForeignFileError: as `open_foreign`; it cannot be read, or grows beyond the limit meanwhile.
    """
    with open_foreign(path, limit) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise ForeignFileError(f"{path} cannot be read ({error.strerror}); restore the file") from error
    if len(content) > limit:
        raise ForeignFileError(f"{path} has more than {limit:,} bytes; restore the file")
    return content


def read_foreign_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        FileNotFoundError, ForeignFileError: as `read_foreign`; the content is not JSON.
    """
    try:
        return parse_json(read_foreign(path, RECORD_LIMIT))
    except NotJSONError as error:
        raise ForeignFileError(f"{path} is damaged ({error}); restore or remove the file") from error


def parse_json(content: bytes | str) -> Any:
    """Return the value of JSON that somebody else may have made.

    Raises:
        NotJSONError: it is something else, nested too deeply, or has a key twice in an object, of which one would be dropped.
    """
    try:
        return json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise NotJSONError(str(error)) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shorten(name)} occurs twice in one object, after {count_of(len(found), 'key')}")
        found[name] = value
    return found


def load_yaml(path: Path) -> Any:
    """Return what OmegaConf makes of a YAML file that a user has named, which may have no password.

    Raises:
        FileNotFoundError, ForeignFileError: as `read_foreign`; an address in it has a password, also in a comment.
        OmegaConfBaseException, YAMLError: OmegaConf cannot read it.
    """
    from omegaconf import OmegaConf

    content = read_foreign(real_path(path))
    check_no_alias(content, path)
    # Before it is parsed, because a parser's message can repeat it; and after, because YAML can escape any character.
    problems = line_problems(content.decode("utf-8", "replace"), str(path))
    loaded = None if problems else OmegaConf.load(BytesIO(content))
    if OmegaConf.is_config(loaded):
        problems = password_problems({str(path): OmegaConf.to_container(loaded)})
    if problems:
        raise ForeignFileError(problems[0])
    return loaded


def check_no_alias(content: bytes, path: Path) -> None:
    """Raise a ForeignFileError for YAML with aliases: a few lines with them can represent gigabytes.

    Text that no parser of YAML reads passes, as whoever loads it reports the mistake.
    """
    import yaml

    with contextlib.suppress(yaml.YAMLError):
        if b"*" in content and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, _yaml_loader())):
            raise ForeignFileError(f"{path} has YAML aliases (*NAME); write the values in their places")


def _yaml_loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def lines_of(file: BinaryIO | gzip.GzipFile, path: Path, limit: int = LINE_LIMIT) -> Iterator[bytes]:
    """Yield the lines of an opened file, each with its end; `path` is for the message.

    Raises:
        ForeignFileError: a line has more than `limit` bytes.
    """
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise ForeignFileError(f"{path}, line {number}: it has more than {limit:,} bytes; split or remove the line")
        yield line


def check_no_link(directory: Path) -> None:
    """Look at an entry of a run that is taken for a directory, whose content a command shows or publishes.

    Raises:
        ForeignFileError: it is a link, which whoever made the run may have led anywhere.
    """
    if directory.is_symlink():
        raise ForeignFileError(f"{directory} is a link; name what it leads to, or put the directory in its place")


def is_entry(path: Path, limit: int | None = None) -> bool:
    """Return whether an entry of a directory is a file that may be read; False for a directory, or if there is none.

    Raises:
        ForeignFileError: as `open_foreign`.
    """
    if path.is_dir() and not path.is_symlink():
        return False
    try:
        open_foreign(path, limit).close()
    except FileNotFoundError:
        return False
    return True


def check_model_directory(directory: Path) -> None:
    """Look through the directory of a model or tokenizer before a library reads it.

    Raises:
        ForeignFileError: a file in it, or below, is a link, no regular file, or far larger than such files are; or it has more
            entries than models have.
    """
    found = 0
    for place, directories, files in os.walk(real_path(directory)):
        for name in [*directories, *files]:
            is_entry(Path(place, name), None if name.endswith(_WEIGHTS) else MODEL_LIMIT)
        found += len(directories) + len(files)
        if found > _MOST_ENTRIES:
            raise ForeignFileError(
                f"{directory} has more than {_MOST_ENTRIES:,} entries; name the directory of one model"
            )
