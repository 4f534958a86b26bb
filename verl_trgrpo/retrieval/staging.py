"""A directory that is built out of sight and appears at once, when it is complete."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from verl_trgrpo.data.exchange import exchange
from verl_trgrpo.data.staging import flush


@contextmanager
def staged_directory(directory: Path) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends normally it takes the place of `directory` in one step.

    It stands beside `directory` under the name ``.NAME.building``. On an exception it is removed and `directory` stays
    as it was. A process that is killed leaves it behind, and the next build of the same directory clears it. A whole
    old `directory` is replaced, so the caller decides beforehand whether it may be.

    Raises:
        ValueError: where the directory cannot be written, or another process builds the same one.
    """
    target = directory.resolve()
    stage = target.parent / f".{target.name}.building"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(stage, directory)
    except OSError as error:
        raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another directory") from error
    try:
        _clear(stage)
        yield stage
        for path in stage.rglob("*"):
            flush(path)
        flush(stage)
        _publish(stage, target)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _lock(stage: Path, directory: Path) -> int:
    """Create and lock the staging directory; the lock ends with the process, however it ends."""
    while True:
        stage.mkdir(exist_ok=True)
        descriptor = os.open(stage, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ValueError(f"another process is building {directory}; wait for it or stop it") from error
        # Between the two calls another build may have finished and renamed the directory that is now locked.
        if stage.exists() and os.path.samestat(os.fstat(descriptor), stage.stat()):
            return descriptor
        os.close(descriptor)


def _clear(stage: Path) -> None:
    for path in stage.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _publish(stage: Path, target: Path) -> None:
    if not target.exists():
        stage.rename(target)
    elif exchange(stage, target):
        shutil.rmtree(stage, ignore_errors=True)
    else:  # a file system that cannot swap: for a moment there is no directory, but never half of one
        old = target.parent / f".{target.name}.replaced"
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        stage.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    flush(target.parent)
