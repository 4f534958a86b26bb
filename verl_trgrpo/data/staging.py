"""Several files that appear together or not at all."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from verl_trgrpo.data.exchange import exchange

_BACKUP = "replaced-"


@contextmanager
def staged_files(directory: Path, replaces: Collection[str] = ()) -> Iterator[Path]:
    """Give a temporary directory to write files into, and put them into `directory` at the end, all at once.

    When the block ends normally the files are flushed to disk and the temporary directory takes the place of
    `directory` in one step. Whatever stops the process, a power cut included, `directory` then has either all the old
    files or all the new ones. On an exception nothing changes. A process that is killed may leave a hidden directory
    ``.NAME.building-*`` beside `directory`; the next call removes it, after it has put back subdirectories of
    `directory` that the killed process had no time to carry over.

    Not in one step, but file by file, where `directory` is the working directory or a mount point, has a parent that is
    write-protected, or lies on a file system that cannot swap directories.

    Args:
        directory: created if needed; other files and subdirectories in it stay.
        replaces: names of old files that belong to the same data set: they are gone if no new ones of that name come.

    Raises:
        ValueError: where `directory` cannot be created or written.
    """
    target = directory.resolve()
    created = [path for path in (target, *target.parents) if not path.exists()]
    try:
        stage = _new_stage(target)
    except OSError as error:
        raise ValueError(
            f"cannot write to {directory} ({error.strerror}); choose a directory that is writable"
        ) from error
    new_inode = stage.stat().st_ino
    lock = _lock(stage)
    try:
        yield stage
        _publish(stage, target, {*replaces})
    finally:
        if stage.stat().st_ino == new_inode:  # not swapped: an exception, or file by file
            shutil.rmtree(stage, ignore_errors=True)
        else:
            _retire(stage, target)
        if lock is not None:
            os.close(lock)
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


def _new_stage(target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    if not os.access(target, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "Permission denied")
    # A mount point, or a directory in a protected one, cannot be swapped; files move within one file system only.
    beside = os.access(target.parent, os.W_OK | os.X_OK) and target.parent.stat().st_dev == target.stat().st_dev
    place, prefix = target.parent if beside else target, f".{target.name}.building-"
    for left_over in [path for path in place.iterdir() if path.name.startswith(prefix) and path.is_dir()]:
        lock = _lock(left_over)
        if lock is not None:  # nobody works in it any more
            _retire(left_over, target)
            os.close(lock)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=place))


def _lock(directory: Path) -> int | None:
    """Return a descriptor that holds the directory's lock until it is closed, or None where another process has it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _retire(old: Path, target: Path) -> None:
    """Remove a directory of old or unfinished files; subdirectories go back to `target`, they are somebody else's."""
    for path in old.iterdir():
        if _is_foreign(path) and not (target / path.name).exists():
            path.rename(target / path.name)
    if not any(map(_is_foreign, old.iterdir())):
        shutil.rmtree(old, ignore_errors=True)


def _is_foreign(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(_BACKUP)


def _publish(stage: Path, target: Path, replaces: set[str]) -> None:
    new = sorted(path.name for path in stage.iterdir())
    for name in new:
        if (target / name).is_dir():
            raise ValueError(f"{target / name} is a directory; move it or choose another output directory")
    for name in new:
        flush(stage / name)
    here = Path.cwd()
    swappable = target != here and target not in here.parents and stage.parent == target.parent
    if not (swappable and _swap(stage, target, {*new, *replaces})):
        _replace_one_by_one(stage, target, new, replaces - {*new})
    flush(target.parent)


def _swap(stage: Path, target: Path, own: set[str]) -> bool:
    """Put `stage` in the place of `target`, with the foreign files of `target` in it, and return whether that worked.

    What is in `stage` then are the old files and the subdirectories, which `_retire` carries over: they are renamed and
    not linked, so that whoever works in them notices nothing.
    """
    stage.chmod(target.stat().st_mode & 0o7777)
    for path in target.iterdir():
        if path.name not in own and not path.is_dir():
            try:
                os.link(path, stage / path.name, follow_symlinks=False)
            except OSError:  # a file system without hard links
                shutil.copy2(path, stage / path.name, follow_symlinks=False)
    flush(stage)
    return exchange(stage, target)


def _replace_one_by_one(stage: Path, target: Path, new: list[str], stale: set[str]) -> None:
    backup = Path(tempfile.mkdtemp(prefix=_BACKUP, dir=stage))
    present = {path.name for path in target.iterdir() if path.name in {*new, *stale}}
    for name in present:
        shutil.copy2(target / name, backup / name)
    try:
        for name in new:
            (stage / name).replace(target / name)
        for name in present & stale:
            (target / name).unlink()
        flush(target)
    except BaseException:
        for name in {*new, *stale}:
            if name in present:
                (backup / name).replace(target / name)
            else:
                (target / name).unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk itself."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
