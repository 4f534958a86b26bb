"""Write the answers for methods that are not an ``algorithm=`` of this project into docs/related_methods.md.

.venv/bin/python docs/make_methods.py
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from studies.pages import filled
from verl_trgrpo.runs.other_methods import OTHER_METHODS, OtherMethod

PAGE = Path(__file__).parent / "related_methods.md"
HEAD = "| method | other trainers | here | answer | compared with |\n|---|---|---|---|---|\n"


def made(text: str) -> str:
    """Return the page `text` with the table of methods that other trainers have, and the list of all others."""
    elsewhere = {name: method for name, method in OTHER_METHODS.items() if method.trainers}
    text = filled(text, "other methods, table", HEAD + "".join(_row(*each) for each in elsewhere.items()))
    return filled(
        text,
        "other methods, list",
        "".join(_bullet(*each) for each in OTHER_METHODS.items() if each[0] not in elsewhere),
    )


def kind(method: OtherMethod) -> str:
    """Return ``options`` for values of the configuration, ``lines`` for lines of one's own, else ``no``."""
    if method.program:
        return "options, in part" if re.search(r"=\w", method.answer) else "no"
    if "docs/write_your_own.md" in method.answer:
        return "lines"
    return "options" if method.answer.startswith("is ") else "no"


def _row(name: str, method: OtherMethod) -> str:
    here = f"{kind(method)} | {method.answer.removeprefix('is ')}"
    return f"| {name} | {method.trainers} | {here} | {_compared(method)} |\n"


def _bullet(name: str, method: OtherMethod) -> str:
    line = f"- **{name}** {method.answer} ({_compared(method)})."
    return textwrap.fill(line, 130, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


def _compared(method: OtherMethod) -> str:
    program = f"; tried by `{method.program}`" if method.program else ""
    return f"{method.source}, compared {method.compared}{program}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
