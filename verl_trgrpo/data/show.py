"""Rows of a data file as text for a terminal.

Data files come from anywhere and a terminal obeys what it is sent, so everything but plain characters is escaped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.data.parquet import COLUMNS, extra_info_of, ground_truth_of, read_rows, read_schema
from verl_trgrpo.data.tokens import load_tokenizer, render_prompt

MAX_LINES, MAX_CHARS = 40, 3000

# Control, format (direction marks among them), surrogate, private, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True)
class ShowOptions:
    """Which rows to show, and how.

    Raises ValueError for a file that does not exist and numbers out of range.

    Args:
        file: a parquet file.
        rows: at most this many, from 1.
        start: from which fitting row on, counted from 0.
        index: only rows with this extra_info.index.
        data_source: only rows of this data source.
        full: long texts in full length.
        tokenizer: directory of a local model, to show the prompt as its chat template renders it.
    """

    file: Path
    rows: int = 3
    start: int = 0
    index: int | None = None
    data_source: str | None = None
    full: bool = False
    tokenizer: Path | None = None

    def __post_init__(self) -> None:
        problems = [] if self.file.is_file() else [f"{self.file} is not a file; check the path"]
        if self.rows < 1:
            problems.append(f"rows is {self.rows}; show at least 1")
        if self.start < 0:
            problems.append(f"start is {self.start}; rows count from 0")
        raise_problems(problems)

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is one of those asked for, wherever it stands."""
        source_fits = self.data_source is None or row.get("data_source") == self.data_source
        return source_fits and (self.index is None or extra_info_of(row).get("index") == self.index)


def show_rows(options: ShowOptions) -> Iterator[str]:
    """Yield the text of each row that `options` choose.

    Raises ValueError for a file that cannot be read, a tokenizer that cannot be loaded, or when no row fits.
    """
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    fitting = 0
    schema, count = read_schema(options.file)
    for position, row in enumerate(read_rows(options.file, schema.names)):
        if not options.fits(row):
            continue
        if fitting >= options.start:
            title = f"=== row {position} of {count} | data source {row.get('data_source')} ==="
            yield "\n".join([escape(title), *_parts(row, tokenizer, options.full), ""])
        fitting += 1
        if fitting == options.start + options.rows:
            return
    if fitting <= options.start:
        raise ValueError(f"{options.file} has {count} rows, none of which fits; check start, index and data source")


def escape(text: str) -> str:
    """Return `text` with every character that could act on a terminal written as in Python (`\\x1b`), but for tabs."""
    return "".join(
        char.encode("unicode_escape", "surrogatepass").decode("ascii")
        if char != "\t" and unicodedata.category(char) in _ESCAPED
        else char
        for char in text
    )


def _parts(row: Mapping[str, Any], tokenizer: Any, full: bool) -> Iterator[str]:
    """Yield headings and what stands below them."""
    prompt = row.get("prompt")
    for message in prompt if isinstance(prompt, list) else [prompt]:
        known = message if isinstance(message, Mapping) else {"role": "prompt", "content": message}
        yield f"--- {escape(str(known.get('role')))}\n{_text(known.get('content'), full)}"
    if tokenizer is not None:
        try:
            text, tokens = render_prompt(tokenizer, prompt)
            yield f"--- chat template ({tokens} tokens)\n{_text(text, full)}"
        except ValueError as error:
            yield f"--- chat template\n{_text(str(error), full)}"
    yield f"--- ground truth\n{_text(ground_truth_of(row), full)}"
    rest = {name: value for name, value in row.items() if name not in COLUMNS}
    for heading, fields in (("extra_info", extra_info_of(row)), ("other columns", rest)):
        if fields:
            yield f"--- {heading}"
        for name, value in fields.items():
            yield f"{escape(name)}: {_text(value, full)}"


def _text(value: Any, full: bool) -> str:
    text = value if isinstance(value, str) else repr(value)
    shown = text if full else "\n".join(text[:MAX_CHARS].split("\n")[:MAX_LINES])
    lines = "\n".join(escape(line) for line in shown.split("\n"))
    left = len(text) - len(shown)
    return f"{lines}\n[{left} more characters; --full shows them]" if left else lines
