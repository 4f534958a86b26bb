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
from verl_trgrpo.data.checks import files

MAX_LINES, MAX_CHARS = 40, 3000

_BOLD, _DIM, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"

# Control, format (direction marks among them), surrogate, private, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@dataclass(frozen=True)
class ShowOptions:
    """Which rows of `file` to show, and how.

    rows: at most this many, from 1.
    start: position of the first one, from 0.
    index: only the row or rows with this extra_info.index.
    data_source: only rows of this data source; `start` then counts these.
    full: long texts in full length.
    tokenizer: directory of a tokenizer, to show the prompt as its chat template renders it.
    color: whether headings are highlighted with terminal codes.

    Raises ValueError for a file that does not exist and numbers out of range.
    """

    file: Path
    rows: int = 3
    start: int | None = None
    index: int | None = None
    data_source: str | None = None
    full: bool = False
    tokenizer: Path | None = None
    color: bool = False

    def __post_init__(self) -> None:
        problems = [] if self.file.is_file() else [f"{self.file} is not a file; check the path"]
        if self.rows < 1:
            problems.append(f"rows is {self.rows}; show at least 1")
        if self.start is not None and self.start < 0:
            problems.append(f"start is {self.start}; rows count from 0")
        if self.start is not None and self.index is not None:
            problems.append("start and index are both given; choose one")
        raise_problems(problems)


def show_rows(options: ShowOptions) -> Iterator[str]:
    """Yield the text of each row that `options` choose.

    Raises ValueError for a file that cannot be read, a tokenizer that cannot be loaded, or when no row fits.
    """
    from verl_trgrpo.data.checks.lengths import load_tokenizer

    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    try:
        schema, count = files.read_schema(options.file)
        shown = 0
        for position, row in _chosen(options, files.read_rows(options.file, schema.names)):
            yield _Renderer(options, tokenizer).row(row, f"row {position} of {count}")
            shown += 1
            if shown == options.rows:
                return
    except files.UnreadableError as error:
        raise ValueError(f"{options.file}: {error}") from error
    if not shown:
        raise ValueError(f"{options.file} has {count} rows, none of which fits; check start, index and data source")


def escape(text: str) -> str:
    """Return `text` with every character that could act on a terminal written as in Python (`\\x1b`), but for tabs."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    if char == "\t" or unicodedata.category(char) not in _ESCAPED:
        return char
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _chosen(options: ShowOptions, rows: Iterator[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    fitting = 0
    for position, row in enumerate(rows):
        extra_info = row.get("extra_info")
        index = extra_info.get("index") if isinstance(extra_info, Mapping) else None
        if options.data_source is not None and row.get("data_source") != options.data_source:
            continue
        if options.index is not None and index != options.index:
            continue
        if fitting >= (options.start or 0):
            yield position, row
        fitting += 1


class _Renderer:
    def __init__(self, options: ShowOptions, tokenizer: Any) -> None:
        self.full, self.color, self.tokenizer = options.full, options.color, tokenizer

    def row(self, row: Mapping[str, Any], title: str) -> str:
        parts = [self._heading(f"=== {title} | data source {_plain(row.get('data_source'))} ===", _BOLD)]
        prompt = row.get("prompt")
        for message in prompt if isinstance(prompt, list) else [prompt]:
            if isinstance(message, Mapping):
                parts += [self._heading(f"--- {_plain(message.get('role'))}"), self._text(message.get("content"))]
            else:
                parts += [self._heading("--- prompt"), self._text(message)]
        if self.tokenizer is not None:
            parts += self._template(prompt)
        reward_model = row.get("reward_model")
        truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else reward_model
        parts += [self._heading("--- ground truth"), self._text(truth)]
        parts.append(self._heading("--- extra_info"))
        parts += self._fields(row.get("extra_info"))
        rest = {name: value for name, value in row.items() if name not in files.COLUMNS}
        if rest:
            parts += [self._heading("--- other columns"), *self._fields(rest)]
        return "\n".join(parts) + "\n"

    def _heading(self, text: str, style: str = _DIM) -> str:
        text = escape(text)
        return f"{style}{text}{_RESET}" if self.color else text

    def _template(self, prompt: Any) -> list[str]:
        try:
            text = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            tokens = len(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        except Exception as error:  # templates raise what they like
            return [self._heading("--- chat template"), escape(f"refuses the prompt: {files.first_line(error)}")]
        return [self._heading(f"--- chat template ({tokens} tokens)"), self._text(text)]

    def _fields(self, fields: Any) -> list[str]:
        if not isinstance(fields, Mapping):
            return [self._text(fields)]
        return [f"{escape(str(name))}: {self._text(value)}" for name, value in fields.items()]

    def _text(self, value: Any) -> str:
        text = value if isinstance(value, str) else repr(value)
        shown = text
        if not self.full:
            shown = "\n".join(text[:MAX_CHARS].split("\n")[:MAX_LINES])
        lines = "\n".join(escape(line) for line in shown.split("\n"))
        left = len(text) - len(shown)
        return f"{lines}\n[{left} more characters; --full shows them]" if left else lines


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else repr(value)
