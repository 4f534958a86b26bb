"""The part of a Markdown page that a program makes, between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""


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
    return f"{before}{begin}\n\n{made.strip()}\n\n{end}{after}" if made else f"{before}{begin}\n\n{end}{after}"
