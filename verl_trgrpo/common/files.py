"""Atomic files and directories, JSON, and locks between processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import itertools
import json
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from verl_trgrpo.common.foreign import NotJSONError, lines_of, open_foreign, parse_json, real_path
from verl_trgrpo.common.text import did_you_mean

# Entries of a directory that are compared with a name.
_MOST_NAMES = 10_000


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Any, default: Callable[[Any], Any] | None = None) -> None:
    """Write an indented JSON file atomically; `default` converts values that JSON has no type for."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=default) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"))  # a lone surrogate, as JSON writes it


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the number and the content of each line of a JSON Lines file, plain or gzip; skip empty lines, follow a link.

    Raises:
        ValueError: a line is not JSON or too long, or the gzip file is damaged; the message has the line's number.
    """
    number = 0
    # As bytes: only "\n" ends a line, while text files break at other characters that JSON allows in a string.
    with open_foreign(real_path(path)) as packed, gzip.open(packed) if path.suffix.lower() == ".gz" else packed as file:
        try:
            for number, line in enumerate(lines_of(file, path), start=1):
                if line.strip():
                    yield number, parse_json(line)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is a damaged gzip file ({error}) after line {number}; get the file again"
            ) from error
        except NotJSONError as error:
            raise ValueError(f"{path}, line {number}: it is not JSON ({error}); correct or remove the line") from error


def free_name(path: Path) -> Path:
    """Return `path`, or if something has that name, even a dangling link, the first free one of ``path-2``, ``path-3``, ..."""
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([path], names) if not os.path.lexists(name))


def not_there(path: Path, otherwise: str = "check the path") -> str:
    """Return that a path does not exist in its directory, and the similar name there; `otherwise` is what to do without one."""
    directory = path.expanduser().absolute().parent
    if not directory.is_dir():
        missing = [place for place in (directory, *directory.parents) if not place.exists()]
        return f"{path} does not exist, because {missing[-1] if missing else directory} is not a directory; {otherwise}"
    with contextlib.suppress(OSError):
        names = [other.name for other in itertools.islice(directory.iterdir(), _MOST_NAMES)]
        alike = [name for name in names if Path(name).suffix == path.suffix]
        return f"{path} does not exist in {directory}; {did_you_mean(path.name, alike, otherwise)}"
    return f"{path} does not exist in {directory}; {otherwise}"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal; a link is followed, as a hash shows nothing of the file."""
    digest = hashlib.sha256()
    with open_foreign(real_path(path)) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the block ends normally, else remove it.

    Raises:
        ValueError: `path` is a device, a pipe or a directory, in whose place a file would stand.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a device, a pipe or a directory; name another file")
    # In a directory that others write in, only a name that cannot be foreseen, and that is not there, is one's own.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


# The one entry of ``.NAME.building``, by which a later build knows that it is the rest of a killed one.
_STAGE = "staged"

Owned = Callable[[Path], Iterable[str]]
"""Returns the names of the entries of a directory that belong to its builder; those that say so come last."""


@contextlib.contextmanager
def directory_lock(directory: Path, owned: Owned = lambda _: ()) -> Iterator[Path]:
    """Hold the lock under which `directory` is built (``.NAME.lock`` beside it, which stays); yield its absolute path.

    A replacement by `staged_directory` that was killed is undone or finished first.

    Raises:
        ValueError: `directory` cannot be written, another process is building it, or ``.NAME.old`` beside it is not what such a
            replacement leaves: a directory of this user with what is `owned`. Anybody may have put it there, so it stays.
    """
    target = real_path(directory)
    check_no_circle(directory)
    if target.exists() and not target.is_dir():
        raise ValueError(f"{directory} is not a directory, but a file, pipe or device; name a directory")
    busy = f"another process ({{holder}}) is building {directory}; wait for its end, or stop the process"
    with contextlib.ExitStack() as held:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock(_beside(target, "lock"), busy))
        except OSError as error:
            raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another directory") from error
        old = _beside(target, "old")
        if os.path.lexists(old):
            if not _is_left_over(old, owned):
                raise ValueError(
                    f"{old} was not left by an earlier build of {directory}; look inside, then move this directory away"
                )
            _settle(target, owned)
        yield target


@contextlib.contextmanager
def staged_directory(directory: Path, owned: Owned = lambda _: ()) -> Iterator[Path]:
    """Yield an empty directory to fill; when the block ends normally, it becomes `directory`.

    An existing one is renamed to ``.NAME.old``, the new one takes its name, what is `owned` of the old one is deleted, and its
    other entries move into the new one. After an exception, `directory` is as before. A process that is killed leaves the old
    or the new one whole; if it was between the renames, the old one returns with the next call, or with `settle_directory`.

    Raises:
        ValueError: as `directory_lock`; `directory` holds the current directory; ``.NAME.building`` is not what a build leaves.
    """
    with directory_lock(directory, owned) as target:
        if Path.cwd().is_relative_to(target):
            raise ValueError(f"{directory} holds the current directory; start in another one, or choose one below it")
        building = _beside(target, "building")
        stage = building / _STAGE
        if os.path.lexists(building):
            if not _is_own(building) or any(path.name != _STAGE for path in building.iterdir()):
                raise ValueError(
                    f"{building} was not left by an earlier build; look inside, then move this directory away"
                )
            _remove(building)
        stage.mkdir(parents=True)
        old, moved = _beside(target, "old"), False
        try:
            yield stage
            if target.exists():
                shutil.copymode(target, stage)
                if os.path.lexists(old):
                    raise ValueError(
                        f"{old} appeared while {directory} was built; look inside, then move this directory away"
                    )
                target.rename(old)
                moved = True
            stage.rename(target)
        finally:
            if moved:
                _settle(target, owned)
            _remove(building)


def settle_directory(directory: Path, owned: Owned) -> None:
    """Return a directory to its place that a killed replacement left beside it; do nothing if that is not needed or allowed."""
    target = real_path(directory)
    if not target.exists() and _beside(target, "old").is_dir():
        with contextlib.suppress(ValueError, OSError), directory_lock(directory, owned):
            pass


def _settle(target: Path, owned: Owned) -> None:
    """Undo a replacement between its two renames, finish one after them."""
    old = _beside(target, "old")
    if not target.exists():
        old.rename(target)
    else:
        own = [*owned(old)]
        for path in [path for path in old.iterdir() if path.name not in own]:
            if os.path.lexists(target / path.name):
                _remove(path)
            else:
                path.rename(target / path.name)
        for (
            name
        ) in own:  # what says whose directory it is comes last, so that a kill leaves a directory that can be settled
            _remove(old / name)
        old.rmdir()


def _is_left_over(old: Path, owned: Owned) -> bool:
    """Return whether a directory is one that a replacement moved aside: this user's, and of the same builder or empty."""
    if not _is_own(old):
        return False
    return not any(old.iterdir()) or any(os.path.lexists(old / name) for name in owned(old))


def _is_own(path: Path) -> bool:
    """Return whether a path is a directory of this user, and no link to one."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{ending}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class BusyError(ValueError):
    """Another process holds a lock; the message says which one and what to do."""


@contextlib.contextmanager
def lock(path: Path, busy: str) -> Iterator[int]:
    """Hold the lock of the file `path` within the block; yield the file's descriptor.

    A child process that inherits the descriptor holds the lock, too; the kernel releases it when the last of them ends. The
    file is created if needed and stays. On a file system without locks the block runs without one.

    Raises:
        BusyError: another process holds the lock; the message is `busy` with its number in place of ``{holder}``.
        ValueError: the file is a link or not a regular file, or holds anything else than the number of a process.
        OSError: the file cannot be opened for writing.
    """
    descriptor = open_plain(path)
    try:
        holder = os.pread(descriptor, 64, 0).strip()
        if holder and not holder.isdigit():
            raise ValueError(
                f"{path} is not a lock: the file holds something else; look inside, then move this file away"
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(busy.replace("{holder}", holder.decode() or "unknown")) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
                raise
        name_holder(descriptor, os.getpid())
        yield descriptor
    finally:
        os.close(descriptor)


def check_no_circle(directory: Path) -> None:
    """Raise a ValueError for a directory to write whose links lead in a circle."""
    try:
        directory.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{directory} is a link that leads to itself; remove the link") from error


def open_plain(path: Path, flags: int = 0) -> int:
    """Open a file to read and write, created if needed, and return its descriptor; `flags` are further ones of ``os.open``.

    Raises:
        ValueError: it is a link, has a second name, or is not a regular file: writing to it would change a file elsewhere.
        OSError: it cannot be opened.
    """
    refusal = f"{path} is a link or no regular file; remove the entry"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(refusal) from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise ValueError(refusal)
    return descriptor


def name_holder(descriptor: int, pid: int) -> None:
    """Write the process that others should check into the file of a lock that is held."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(pid).encode(), 0)
