"""When two prompts count as the same, and how prompts are cut into words.

Equal are texts that differ only in Unicode compatibility forms (NFKC: full-width letters, ligatures, superscripts), in
upper and lower case, and in white space. Punctuation stays, because "x+1" and "x-1" are different problems.
Knights-and-Knaves puzzles are equal if they differ only in who is called what (`kk.canonical`).
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from verl_trgrpo.tasks.knights_and_knaves.canonical import canonical_key
from verl_trgrpo.tasks.knights_and_knaves.logic import parse_statements

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
    if not isinstance(prompt, list):
        return ""
    messages = [message for message in prompt if isinstance(message, Mapping)]
    contents = [message.get("content") for message in [m for m in messages if m.get("role") != "system"] or messages]
    return "\n".join(content for content in contents if isinstance(content, str))


def words_of(normalized: str) -> list[str]:
    """Return the words of a normalized text: runs of letters and digits, and signs of arithmetic one by one.

    Other punctuation is left out, so that quotes, full stops and the braces of LaTeX make no difference.
    """
    return _WORD.findall(normalized)


def puzzle_key(row: Mapping[str, Any]) -> str | None:
    """Return the canonical puzzle of a row that carries Knights-and-Knaves statements, else None.

    They are looked for under `extra_info.statements` and `reward_model.ground_truth.statements`, a Python literal as
    text; they are read as a literal, never evaluated.
    """
    reward_model = row.get("reward_model")
    ground_truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    for place in (row.get("extra_info"), ground_truth):
        statements = place.get("statements") if isinstance(place, Mapping) else None
        if isinstance(statements, str):
            try:
                return canonical_key(parse_statements(statements))
            except ValueError:
                continue
    return None


def row_keys(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return texts of which two rows share one exactly when their prompts count as equal; none for an empty prompt."""
    text = normalize_text(prompt_text(row.get("prompt")))
    puzzle = puzzle_key(row)
    return (*(("text:" + text,) if text else ()), *(("puzzle:" + puzzle,) if puzzle else ()))
