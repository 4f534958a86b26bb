"""Files and directories that appear whole or not at all, JSON, and one lock for what only one process may do at a time."""

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
    """Write a file that appears whole: it is written beside `path` and then renamed."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that appears whole: it is written beside `path` and then renamed."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Write a readable file that appears whole; `default` turns what is no JSON type into one."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=default) + "\n"
    # What UTF-8 has no bytes for, in names of files for example, is the same in JSON's notation.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one where there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the content of each line of a file of JSON lines, plain or gzip; empty lines only count.

    Raises ValueError for a line that is not JSON, with its number, and for a gzip file that is damaged.
    """
    number = 0
    # As bytes: only "\n" ends a line, while text files break at other characters that JSON allows in a text.
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, json.loads(line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}) after line {number}; get it again") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}: it is not JSON ({error}); correct the line, or take it out"
            ) from error


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; when the block ends normally that file becomes `path`, else nothing changes."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staged_directory(directory: Path, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends normally its entries move into `directory`.

    A new `directory` appears in one step. In an existing one entries are replaced one after the other, and other entries
    stay. On an exception `directory` is as before. What a killed process left (``.NAME.building``) the next call removes.

    Args:
        directory: created if needed.
        replaces: names of old entries that are removed if no new ones of that name come.

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
            held.enter_context(lock(target.parent / f".{target.name}.lock", busy, remove=True))
        except OSError as error:
            raise ValueError(
                f"cannot write to {directory} ({error.strerror}); choose a directory that is writable"
            ) from error
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


@contextlib.contextmanager
def lock(path: Path, busy: str, remove: bool = False) -> Iterator[int]:
    """Hold the lock of the file `path`, which is created if needed, for the duration; yield its descriptor.

    A child process that inherits the descriptor holds the lock, too. The kernel drops it with the last of them, however
    they end. Where a file system has no locks the block runs without one.

    Args:
        path: the lock's file, in an existing directory.
        busy: what to say when another process has it; ``{holder}`` in it stands for that process's number.
        remove: remove the file at the end; not for a lock that a child process goes on holding.

    Raises:
        BusyError: another process has the lock.
        OSError: the file cannot be opened for writing.
    """
    with contextlib.ExitStack() as held:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            held.callback(os.close, descriptor)
            _claim(descriptor, busy)
            if _is_file_at(path, descriptor):
                break
            held.close()  # its holder removed it after it was opened here; the next process will lock a new file
        name_holder(descriptor, os.getpid())
        if remove:  # before it is closed: whoever locks the file after that finds it gone, and starts again
            held.callback(_remove, path)
        yield descriptor


def _claim(descriptor: int, busy: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
        raise BusyError(busy.replace("{holder}", holder)) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


class BusyError(ValueError):
    """Another process holds a lock; the message says which and what to do."""


def name_holder(descriptor: int, pid: int) -> None:
    """Write into a held lock's file which process others should look at; on a full disk nobody is named."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(pid).encode(), 0)
