"""Swapping two directories in one step of the file system, so that no moment shows a part of each."""

import ctypes
import os
import sys
from pathlib import Path

_CURRENT_DIRECTORY = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two existing entries of one file system atomically; return False where that is not possible.

    Python has no function for it. Linux has `renameat2` (glibc 2.28 or later), macOS `renamex_np`; some file systems
    refuse.
    """
    library = ctypes.CDLL(None)
    paths = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return library.renamex_np(*paths, _EXCHANGE) == 0
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        return library.renameat2(_CURRENT_DIRECTORY, paths[0], _CURRENT_DIRECTORY, paths[1], _EXCHANGE) == 0
    return False
