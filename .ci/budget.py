"""Compare the lines and modules of each room with its budget, [tool.budget] of pyproject.toml; `make lint` runs it.

A room is a directory of Python files, all below it included; `__init__.py` counts as lines, not as a module. A number there is
raised in a commit of its own reason, and lowered when a room has shrunk.
"""

import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]


def measured(room: Path) -> tuple[int, int]:
    """Return lines and modules of a room."""
    files = [path for path in room.rglob("*.py") if path.is_file()]
    return sum(len(path.read_text().splitlines()) for path in files), sum(path.name != "__init__.py" for path in files)


def main() -> int:
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budget"]
    packages = [path.parent for path in (ROOT / "verl_trgrpo").glob("*/__init__.py")]
    rooms = {f"verl_trgrpo/{path.name}" for path in packages if measured(path)[1]}
    problems = [f"{room}: has no budget; give it one in pyproject.toml" for room in sorted(rooms - budget.keys())]
    for room, (most_lines, most_modules) in budget.items():
        if not (ROOT / room).is_dir():
            problems.append(f"{room}: does not exist; remove its budget")
            continue
        lines, modules = measured(ROOT / room)
        if lines > most_lines or modules > most_modules:
            problems.append(
                f"{room}: {lines} lines in {modules} modules, budget {most_lines} in {most_modules}; "
                "take something away, or raise the budget in pyproject.toml and say why in the commit"
            )
    print("\n".join(problems) or f"{len(budget)} rooms within their budgets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
