"""Text tables for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str], align: str) -> str:
    """Return `rows` below `header` in padded columns, one line a row, without a line break at the end.

    Args:
        rows: cells; every row has as many as the header.
        header: names of the columns.
        align: one letter a column, ``l`` or ``r``.
    """
    return "\n".join("  ".join(line).rstrip() for line in _padded([header, *rows], align))


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a Markdown table that is readable as text, too: columns are padded."""
    head, *body = _padded([header, *rows], "l" * len(header))
    rule = ["-" * len(cell) for cell in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _padded(lines: Sequence[Sequence[str]], align: str) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(line, widths, align, strict=True)
        ]
        for line in lines
    ]
