"""Write the list of methods that have no word of ``algorithm=`` into docs/related_methods.md.

.venv/bin/python docs/make_methods.py
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from verl_trgrpo.runs.other_methods import OTHER_METHODS

PAGE = Path(__file__).parent / "related_methods.md"
BEGIN, END = "<!-- other methods: begin -->\n\n", "\n<!-- other methods: end -->"


def made(text: str) -> str:
    """Return the page `text` with the list that the table gives."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{''.join(map(_bullet, OTHER_METHODS))}{END}{after}"


def _bullet(name: str) -> str:
    method = OTHER_METHODS[name]
    compared = f", compared {method.compared}" if method.compared else ""
    line = f"- **{name}** {method.answer} ({method.source}{compared})."
    return textwrap.fill(line, 130, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
