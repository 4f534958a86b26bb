"""What a prompt says, when two prompts count as the same, and how they are cut into words.

Equal are texts that differ only in Unicode compatibility forms (NFKC: full-width letters, ligatures, superscripts), in
upper and lower case, and in white space. Punctuation stays, because "x+1" and "x-1" are different problems. A task may
know more: `RowKey` gives rows that mean the same, such as puzzles with other names, the same key.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from verl_trgrpo.data.parquet import extra_info_of

# Returns a key that two rows of a task share exactly when they mean the same, None for rows of other tasks.
RowKey = Callable[[Mapping[str, Any]], str | None]

_WORD = re.compile(r"\w+|[-+*/^=<>−×÷≤≥≠]")


def normalize_text(text: str) -> str:
    """Return `text` in NFKC, case-folded, every run of white space as one space, none at the ends."""
    if text.isascii():
        folded = text.lower()
    else:
        # Folding can undo NFKC and the other way round; twice is what Unicode defines for caseless matching.
        folded = unicodedata.normalize("NFD", text).casefold()
        folded = unicodedata.normalize("NFKD", folded).casefold()
        folded = unicodedata.normalize("NFKC", folded)
    return " ".join(folded.split())


def prompt_text(prompt: Any) -> str:
    """Return what a prompt says: the contents of its messages, those of the system only if there are no others.

    Anything that is no list of messages with text gives the empty text.
    """
    return "\n".join(content for _, content in _messages(prompt))


def question_text(row: Mapping[str, Any]) -> str:
    """Return what a row asks: `extra_info.question` if it has that, else the last message of its prompt."""
    question = extra_info_of(row).get("question")
    messages = _messages(row.get("prompt"))
    last = next(
        (content for role, content in reversed(messages) if role == "user"), messages[-1][1] if messages else ""
    )
    return question if isinstance(question, str) and question.strip() else last


def words_of(text: str) -> list[str]:
    """Return the words of a text, normalized: runs of letters and digits, and signs of arithmetic one by one.

    Other punctuation is left out, so that quotes, full stops and the braces of LaTeX make no difference.
    """
    return _WORD.findall(normalize_text(text))


def row_keys(row: Mapping[str, Any], row_key: RowKey) -> tuple[str, ...]:
    """Return keys of which two rows share one exactly when their prompts count as equal; none for an empty prompt.

    They begin with ``text:`` or, for what the task says, with ``task:``.
    """
    text, key = normalize_text(prompt_text(row.get("prompt"))), row_key(row)
    return (*(("text:" + text,) if text else ()), *(("task:" + key,) if key else ()))


def _messages(prompt: Any) -> list[tuple[Any, str]]:
    messages = [message for message in prompt if isinstance(message, Mapping)] if isinstance(prompt, list) else []
    spoken = [message for message in messages if message.get("role") != "system"] or messages
    return [(m.get("role"), m["content"]) for m in spoken if isinstance(m.get("content"), str)]
