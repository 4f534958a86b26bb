"""Text tables for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(
    rows: Sequence[Sequence[str]], header: Sequence[str] | None = None, align: str = "", gap: int = 2
) -> str:
    """Return `rows` in padded columns, one line a row, without a line break at the end.

    Args:
        rows: cells; every row has as many as the header.
        header: names of the columns, above them.
        align: one letter a column, ``l`` or ``r``; columns beyond its end are aligned to the left.
        gap: spaces between columns.
    """
    lines = [*([header] if header else []), *rows]
    return "\n".join((" " * gap).join(line).rstrip() for line in _padded(lines, align))


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a Markdown table that is readable as text, too: columns are padded."""
    head, *body = [" | ".join(line) for line in _padded([header, *rows], "")]
    rule = " | ".join("-" * len(cell) for cell in _padded([header, *rows], "")[0])
    return "\n".join(f"| {line} |" for line in (head, rule, *body))


def _padded(lines: Sequence[Sequence[str]], align: str) -> list[list[str]]:
    if not lines:
        return []
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    sides = align.ljust(len(widths), "l")
    return [
        [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(line, widths, sides, strict=True)
        ]
        for line in lines
    ]
