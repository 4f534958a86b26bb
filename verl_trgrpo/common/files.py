"""Atomic files and directories, JSON, and locks between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Write an indented JSON file atomically; `default` converts values that JSON has no type for."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, default=default) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file does not exist or does not hold an object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the content of each line of a JSON Lines file, plain or gzip; skip empty lines.

    Raises:
        ValueError: a line is not JSON, or the gzip file is damaged; the message has the line's number.
    """
    number = 0
    # As bytes: only "\n" ends a line, while text files break at other characters that JSON allows in a string.
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, json.loads(line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}) after line {number}; get it again") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: it is not JSON ({error}); correct or remove the line") from error


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the block ends normally, else remove it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[Path]:
    """Hold the lock under which `directory` is built (``.NAME.lock`` beside it, which stays); yield its absolute path.

    Raises:
        ValueError: `directory` cannot be written, or another process is building it.
    """
    target = directory.resolve()
    if target.is_file():
        raise ValueError(f"{directory} is a file; name a directory")
    with contextlib.ExitStack() as held:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            busy = f"another process ({{holder}}) is building {directory}; wait for it or stop it"
            held.enter_context(lock(target.parent / f".{target.name}.lock", busy))
        except OSError as error:
            raise ValueError(
                f"cannot write to {directory} ({error.strerror}); choose a directory that is writable"
            ) from error
        yield target


@contextlib.contextmanager
def staged_directory(directory: Path, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Yield an empty directory to fill; when the block ends normally, move its entries into `directory`.

    A new `directory` appears in one step. In an existing one, entries are replaced one after the other and other entries
    stay. After an exception `directory` is as before. Files that a killed process left (``.NAME.building``) are removed by
    the next call.

    Args:
        directory: created if needed.
        replaces: names of old entries to remove if the new ones do not include them.

    Raises:
        ValueError: as `directory_lock`.
    """
    with directory_lock(directory) as target:
        stage = target.parent / f".{target.name}.building"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        try:
            yield stage
            _publish(stage, target, replaces)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def _publish(stage: Path, target: Path, replaces: Collection[str]) -> None:
    if not target.exists():
        stage.rename(target)
        return
    new = {path.name for path in stage.iterdir()}
    for name in sorted(new | set(replaces)):
        if (target / name).is_dir():
            shutil.rmtree(target / name)
        if name in new:
            (stage / name).replace(target / name)
        else:
            (target / name).unlink(missing_ok=True)


class BusyError(ValueError):
    """Another process holds a lock; the message says which one and what to do."""


@contextlib.contextmanager
def lock(path: Path, busy: str) -> Iterator[int]:
    """Hold the lock of the file `path` within the block; yield the file's descriptor.

    A child process that inherits the descriptor holds the lock, too; the kernel releases it when the last of them ends. The
    file is created if needed and stays. On a file system without locks the block runs without one.

    Args:
        path: lock file in an existing directory.
        busy: error message if another process holds the lock; ``{holder}`` in it is replaced by that process's number.

    Raises:
        BusyError: another process holds the lock.
        OSError: the file cannot be opened for writing.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _claim(descriptor, busy)
        name_holder(descriptor, os.getpid())
        yield descriptor
    finally:
        os.close(descriptor)


def _claim(descriptor: int, busy: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 64, 0).decode() or "unknown"
        raise BusyError(busy.replace("{holder}", holder)) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise


def name_holder(descriptor: int, pid: int) -> None:
    """Write the process that others should check into the file of a lock that is held."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(pid).encode(), 0)
