"""Strings for messages, tables for terminals and Markdown, and HTML pages from templates.

Values of others reach a medium through its function: a terminal `show`, Markdown `as_markdown`, pictures `as_label`,
pages `render_page`.
"""

from __future__ import annotations

import difflib
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

# Control, format (direction marks among them), surrogate, private, line and paragraph separators.
_ACTING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the differences between two mappings, such as ``seed was 1, now 2``."""
    return [
        f"{name} was {shorten(before.get(name))}, now {shorten(now.get(name))}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name that is most similar to `name` in any case, "" if none has a similarity of `cutoff` (0 to 1)."""
    spelled = {other.casefold(): other for other in known}
    return next((spelled[near] for near in difflib.get_close_matches(name.casefold(), spelled, 1, cutoff)), "")


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Return ``did you mean NEAREST?``; if no name is similar, `otherwise`, or ``choose one of ...`` if that is None."""
    known = list(known)
    if meant := nearest(name, known):
        return f"did you mean {meant}?"
    return f"choose one of {', '.join(known)}" if otherwise is None else otherwise


def count_of(number: int, noun: str) -> str:
    """Return ``1 error`` or ``3 errors``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shorten(value: Any, limit: int = 100) -> str:
    """Return the repr of `value` for a message, in at most `limit` characters."""
    return _cut(repr(value), limit)


def escape_controls(text: str) -> str:
    """Write every character that could act on a terminal, line breaks and tabs aside, as in Python (``\\x1b``)."""
    return "".join(
        char.encode("unicode_escape", "surrogatepass").decode("ascii")
        if char not in "\n\t" and unicodedata.category(char) in _ACTING
        else char
        for char in text
    )


# First words of this project's commands, and what its messages call besides: programs of one environment.
COMMAND_WORDS = ("doctor", "quickstart", "train", "validate", "preview", "health", "compare", "report", "eval", "export",
                 "data", "search")  # fmt: skip
_PROGRAM = re.compile(
    rf"(?<![\w/.-])(verl-trgrpo(?= (?:{'|'.join(COMMAND_WORDS)}|COMMAND)\b)|python(?= -m verl)|pip(?= install\b)"
    r"|ray(?= start\b)|hf(?= upload\b))"
)


def typeable(text: str) -> str:
    """Return a text with the programs of its commands as this shell finds them.

    A program of this environment stays as it is where ``PATH`` leads to it, and has its path otherwise: relative to the current
    directory if it is below that.
    """
    return _PROGRAM.sub(lambda match: _as_typed(match[0]), text)


def _as_typed(program: str) -> str:
    own, found = Path(sys.executable).parent / program, shutil.which(program)
    if not own.is_file() or (found and Path(found).absolute() == own):
        return program
    return shlex.quote(str(from_here(own)))


def from_here(path: Path) -> Path:
    """Return a path relative to the current directory if it is below that, else as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def for_terminal(text: str) -> str:
    """Return a text as it may reach a terminal, see `escape_controls`, and with commands that can be typed, see `typeable`."""
    return escape_controls(typeable(text))


def show(text: object, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print a text to `stream`, by default standard output, with `for_terminal`: commands and the launcher print by it."""
    print(for_terminal(str(text)), file=stream, end=end, flush=True)


# What begins something in Markdown inside a line: HTML, entities, links, code, emphasis, tables, formulas; and addresses, which
# become links by themselves.
_MARKS = re.compile(r"[\\`*\[\]<>|&~$@#]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.", re.IGNORECASE)


def one_line(value: Any, limit: int = 200) -> str:
    """Return a value of others as one line of at most `limit` characters, none of which acts on a terminal."""
    return _cut(escape_controls(str(value)).replace("\n", " ").replace("\t", " "), limit)


def as_markdown(value: Any, limit: int = 200) -> str:
    """Return a value of others, in at most `limit` characters, for a line of Markdown, in which it is nothing but text."""
    return _MARKS.sub(r"\\\g<0>", one_line(value, limit))


def as_label(value: Any) -> str:
    """Return a value of others for a picture of matplotlib, which takes what is between dollar signs for a formula."""
    return one_line(value, 60).replace("$", r"\$")


def as_yaml(value: Any) -> str:
    """Return a configuration value for a message as it is written in YAML; strings with quotes."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return repr(value)


def as_plain_yaml(value: Any) -> str:
    """Return a configuration value for a message as it is written in YAML; strings without quotes."""
    if isinstance(value, str):
        return value
    return f"[{','.join(map(as_plain_yaml, value))}]" if isinstance(value, Sequence) else as_yaml(value)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it is empty, in at most 200 characters."""
    return _cut((str(error).strip().splitlines() or [type(error).__name__])[0], 200)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


# Last parts of dotted keys that say nothing without their section.
_OF_MANY = ("enable", "enabled", "name", "path", "type")
# Sections that repeat the settings of the model that is trained, for others.
_COPIES = ("critic.", "reward.", "distillation.", "actor_rollout_ref.ref.")


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Return the dotted key that was probably meant, or "".

    In this order: a last part in the same section, written a little differently; the end of a longer key; the same last part
    elsewhere in the same first section, or outside it, unless the key has a section that does not exist, and is another
    program's; a section written a little differently.
    What belongs to a part that is switched on, beside its ``enable``, is meant from around that part alone.
    ``tool_path`` is not ``model_path`` written differently: every word has to be similar. Case does not count. Any other key of
    another section is another thing, however alike the names are.
    """
    spelled, key = {other.casefold(): other for other in known}, key.casefold()
    section, _, name = key.rpartition(".")
    here = {other.rpartition(".")[2]: other for other in spelled if other.rpartition(".")[0] == section}
    if near := nearest(name, [other for other in here if _same_words(name, other)], cutoff=0.7):
        return spelled[here[near]]
    parts = {each.rpartition(".")[0] for each in spelled if each.endswith((".enable", ".enabled"))}
    same = [other for other in spelled if other.rpartition(".")[2] == name]
    found = [other for other in same if other.endswith(f".{key}")]
    same = [other for other in same if _is_meant(other, section, parts)]
    if not found and name not in _OF_MANY:
        found = [other for other in same if section and other.partition(".")[0] == key.partition(".")[0]]
        # Beside keys of a section that exists: the shallow ones of the model that is trained.
        main = [other for other in same if here and other.count(".") < 4 and not other.startswith(_COPIES)]
        elsewhere = len(same) == 1 and "_" in name and (here or not section)
        found = found or main or (same if elsewhere else [])
    if found and (section or name not in _OF_MANY):
        inside = [other for other in found if section and other.startswith(f"{section}.")]
        return spelled[min(inside or found, key=lambda other: _distance(key, other))]
    others = [other for other in spelled if other in same or "/" in other or not section]
    return spelled.get(nearest(key, others, cutoff=0.85), "")


def _is_meant(other: str, section: str, parts: Collection[str]) -> bool:
    inside = other.rpartition(".")[0]
    return inside not in parts or not section or f"{inside}.".startswith(f"{section}.")


def _distance(key: str, other: str) -> tuple[int, bool, int]:
    """Return how far a key is that has the same last part: by sections of both, the model that is trained, then length."""
    return -len({*key.split(".")} & {*other.split(".")}), other.startswith(("critic.", "reward.")), len(other)


def _same_words(name: str, other: str) -> bool:
    """Return True if each word of one name is similar to one of the other, or both are similar when written as one word."""
    words, others = name.split("_"), other.split("_")
    if len(words) > len(others):
        words, others = others, words
    joined = bool(nearest(name.replace("_", ""), [other.replace("_", "")], cutoff=0.85))
    return all(nearest(word, others, cutoff=0.6) for word in words) and (joined or len(words) == len(others))


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str], align: str) -> str:
    """Return a table with padded columns for a terminal; `align` has a letter for each, ``l`` or ``r``."""
    return "\n".join("  ".join(line).rstrip() for line in _padded([header, *rows], align))


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Return a Markdown table with padded columns."""
    head, *body = _padded([header, *rows], "l" * len(header))
    rule = ["-" * len(cell) for cell in head]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _padded(lines: Sequence[Sequence[str]], align: str) -> list[list[str]]:
    columns = []
    for column, side in zip(zip(*lines, strict=True), align, strict=True):
        width = max(map(len, column))
        columns.append([cell.rjust(width) if side == "r" else cell.ljust(width) for cell in column])
    return [[*line] for line in zip(*columns, strict=True)]


# Control characters, which a model may write and HTML does not allow.
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}


def render_page(template: Path, **content: Any) -> str:
    """Render a Jinja template, all strings escaped; `content` must have every name that it uses. Lone surrogates become ``?``."""
    from jinja2 import Environment, StrictUndefined

    options: Any = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    source = Environment(**options).from_string(template.read_text(encoding="utf-8"))
    page = source.render(**content).translate(_CONTROL)
    return page.encode("utf-8", errors="replace").decode("utf-8")
