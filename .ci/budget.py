"""Compare the lines and modules of each room with its budget, [tool.budget] of pyproject.toml; `make lint` runs it.

A room is a directory of Python files, all below it included; `__init__.py` counts as lines, not as a module. A room may have 2 %
more than its figures, in any case 20 lines and one module: enough for a shaping, a rule or a fix, not for a subject. What the
package has in all is bounded by the last of `total`, which only falls.
"""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = "verl_trgrpo"


def at_most(figure: int, least: int) -> int:
    """Return a figure with its room."""
    return figure + max(least, math.ceil(0.02 * figure))


def measured(room: Path) -> tuple[int, int]:
    """Return lines and modules of a room."""
    files = [path for path in room.rglob("*.py") if path.is_file()]
    return sum(len(path.read_text().splitlines()) for path in files), sum(path.name != "__init__.py" for path in files)


def problems(root: Path, rooms: Mapping[str, Sequence[int]], total: Sequence[int]) -> list[str]:
    """Return a message for each room that has no budget, does not exist or is over its budget, and for the total."""
    packages = [path.parent for path in (root / PACKAGE).glob("*/__init__.py")]
    found = {f"{PACKAGE}/{path.name}" for path in packages if measured(path)[1]}
    messages = [f"{room}: has no budget; give it one in pyproject.toml" for room in sorted(found - rooms.keys())]
    for room, figures in rooms.items():
        if not (root / room).is_dir():
            messages.append(f"{room}: does not exist; remove its budget")
            continue
        (lines, modules), (most, files) = measured(root / room), map(at_most, figures, (20, 1))
        if lines > most or modules > files:
            messages.append(
                f"{room}: {lines} lines in {modules} modules, at most {most} in {files}; take something away, or raise its "
                "budget in pyproject.toml and say in the commit why the subject belongs here"
            )
    if any(later >= earlier for earlier, later in itertools.pairwise(total)):
        messages.append(f"total={list(total)}: must fall from one release to the next; lower the last one")
    if (lines := measured(root / PACKAGE)[0]) > total[-1]:
        messages.append(f"{PACKAGE}: {lines} lines, at most {total[-1]}; take something away, here or in another room")
    return messages


def main() -> int:
    import tomllib  # Python 3.11

    budget: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]
    found = problems(ROOT, budget["rooms"], budget["total"])
    lines = measured(ROOT / PACKAGE)[0]
    print(
        "\n".join(found) or f"{len(budget['rooms'])} rooms within their budgets, {lines} of {budget['total'][-1]} lines"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
