"""Scripts outside the package as modules; those of one directory import each other by name."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def load_scripts(folder: Path, *names: str) -> list[ModuleType]:
    """Return the modules of a directory with these names."""
    sys.path.insert(0, str(folder))
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))
