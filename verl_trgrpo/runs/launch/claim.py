"""One run at a time in a run directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

LOCK_FILE = "run.lock"


class InUseError(RuntimeError):
    """Another process trains in the directory; the message says which."""


@contextlib.contextmanager
def claimed(run_dir: Path) -> Iterator[int]:
    """Claim a run directory for the duration, and yield the file descriptor that stands for the claim.

    A process that inherits the descriptor keeps the claim alive: when the launcher is killed and its training goes on, a
    second launcher is refused. The kernel drops the claim with the last of these processes, however they end.

    Args:
        run_dir: an existing directory.

    Raises:
        InUseError: when somebody else has it.
        OSError: when the directory cannot be written.
    """
    descriptor = os.open(run_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not lock(descriptor):
            holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
            raise InUseError(
                f"{run_dir} is being trained in by process {holder}; wait for it, end it (kill {holder}), or choose another "
                "trainer.default_local_dir"
            )
        name_holder(descriptor, os.getpid())
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Lock an open file without waiting; return False when another process holds it.

    The lock belongs to the open file: a child that inherits the descriptor holds it, too, and the last one to end drops it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have no locks; a run is worth more than the protection.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise
    return True


def name_holder(descriptor: int, pid: int) -> None:
    """Write into a claimed directory's lock file which process others should look at; on a full disk nobody is named."""
    os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, str(pid).encode(), 0)
