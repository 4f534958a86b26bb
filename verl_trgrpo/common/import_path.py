"""What the processes of this project can import beside installed packages: modules on PYTHONPATH and in the working directory.

A command adds the working directory to its own path. Each process that it starts asks here: a process with this package's code
gets the path of the command as it is, another program (veRL's trainer, Ray's workers) gets the directory by PYTHONPATH.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

# Names the modules that veRL imports in every process.
EXTERNAL_MODULES = "VERL_USE_EXTERNAL_MODULES"
OWN_MODULE_FIX = (
    f"put the module into the directory of the command or on PYTHONPATH, or correct {EXTERNAL_MODULES} (names with commas and "
    "no spaces)"
)

_VARIABLE = "PYTHONPATH"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


@contextmanager
def large_imports() -> Iterator[None]:
    """Import without Python's collector of cycles, which would take a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def external_modules() -> list[str]:
    """Return the names of the modules that veRL imports in every process; it does not strip them."""
    names = os.environ.get(EXTERNAL_MODULES, "")
    return names.split(",") if names else []


def add_working_directory() -> None:
    """Make this process find modules in the working directory; last, so that no file there hides a package."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)


def same_path(code: str) -> list[str]:
    """Return the command of a process of this Python that finds what this process does, in the same order, and runs `code`."""
    places = [str(Path(place).absolute()) for place in (*sys.path, _PACKAGE_ROOT)]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {list(dict.fromkeys(places))!r}; {code}"]


def with_working_directory(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment, with the working directory at the end of PYTHONPATH.

    For programs that start others, whose Python may be another one.
    """
    places = [*filter(None, environment.get(_VARIABLE, "").split(os.pathsep)), str(Path.cwd())]
    return {**environment, _VARIABLE: os.pathsep.join(dict.fromkeys(places))}
