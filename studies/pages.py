"""The part of a Markdown page that a program makes, between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""

from pathlib import Path

from verl_trgrpo.common.files import write_text


def filled(page: str, name: str, made: str) -> str:
    """Return a page with ``made`` between the markers of ``name``.

    Raises:
        ValueError: the page lacks a marker.
    """
    begin, end = (f"<!-- {name}: {side} -->" for side in ("begin", "end"))
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"the page lacks the lines {begin} and {end}; add them")
    return before + "\n\n".join(filter(None, (begin, made.strip(), end))) + after


def fill(page: Path, name: str, made: str) -> None:
    """Replace what is between the markers of ``name`` in a file.

    Raises:
        ValueError: the file lacks a marker.
    """
    try:
        text = filled(page.read_text(encoding="utf-8"), name, made)
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from None
    write_text(page, text)
