"""Rows of a data file as text for a terminal, which obeys what it is sent: all but plain characters is escaped."""

import unicodedata
from collections.abc import Iterator
from itertools import islice

from verl_trgrpo.data.options import ShowOptions
from verl_trgrpo.data.parquet import extra_info_of, ground_truth_of, read_rows, read_schema

# Control, format (direction marks among them), surrogate, private, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def show_rows(options: ShowOptions) -> Iterator[str]:
    """Yield the text of each row that `options` choose. Raises ValueError for a file that cannot be read."""
    read_schema(options.file)  # says what is wrong with the file as a whole
    fitting = (row for row in read_rows(options.file) if options.index in (None, extra_info_of(row).get("index")))
    for row in islice(fitting, options.rows):
        messages = row["prompt"] if isinstance(row.get("prompt"), list) else [row.get("prompt")]
        said = [(m.get("role"), m.get("content")) if isinstance(m, dict) else ("prompt", m) for m in messages]
        parts = [("data source", row.get("data_source")), *said, ("ground truth", ground_truth_of(row))]
        yield "\n".join(escape(f"--- {heading}\n{value}") for heading, value in parts) + "\n"


def escape(text: str) -> str:
    """Return `text` with every character that could act on a terminal written as in Python (`\\x1b`), but for line breaks
    and tabs."""
    return "".join(
        char.encode("unicode_escape", "surrogatepass").decode("ascii")
        if char not in "\n\t" and unicodedata.category(char) in _ESCAPED
        else char
        for char in text
    )
