"""The answer block of a Knights-and-Knaves response, prepared for reading: one spelling, and `@0`, `@1` ... for names."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from verl_trgrpo.tasks.knights_and_knaves.reward import forms, vocabulary

MAX_ANSWER_CHARS = 5_000
"""A longer answer (spaces and tabs in a row counted as one) is not read; honest ones are many times shorter."""
_MAX_COMBINING_RUN = 8  # normalising a run of n combining marks takes n^2 steps
_CHARACTERS = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "‐": "-", "–": " - ", "—": " - ", "−": "-", "*": "", "`": ""}
)
_EDGE_UNDERSCORES = re.compile(r"\b_+|_+\b")
# The prompt's example has "[first character]", so some models keep the brackets.
_BRACKETED = re.compile(r"(?<![\w@\]])\[(@[0-9]+)\](?![\w@(\[])")
_INLINE_NUMBER = re.compile(r"(?<!\S)(?:\([1-9][0-9]?\)|[1-9][0-9]?[.)])(?= ?@)")


def normalize(text: str) -> str | None:
    """One spelling per character and one space per gap, without emphasis marks; None where that is not possible.

    NFKC makes equal what looks equal (José in NFC and NFD, full-width and mathematical letters). Zero-width characters,
    strike-through and look-alike letters stay as they are, and so make a word unknown.
    """
    text = "\n".join(" ".join(line.split()) for line in text.splitlines())
    if len(text) > MAX_ANSWER_CHARS:
        return None
    if not text.isascii():
        run = 0
        for character in text:
            run = run + 1 if unicodedata.combining(character) else 0
            if run > _MAX_COMBINING_RUN:
                return None
        text = unicodedata.normalize("NFKC", text)
        if len(text) > MAX_ANSWER_CHARS:  # one character may become 18
            return None
    if "@" in text:  # stands for a name further on
        return None
    text = text.translate(_CHARACTERS)
    return _EDGE_UNDERSCORES.sub("", text) if "_" in text else text


@lru_cache(maxsize=1024)
def _name_pattern(names: tuple[str, ...]) -> tuple[re.Pattern[str], Mapping[str, int]]:
    """The pattern that finds a name as a whole word, and the person each spelling stands for.

    A name may be written as given, in capitals or in small letters, unless that is a word of the language itself:
    then, as for a person called Rest, Truth or A, only the given spelling counts.
    """
    people = {normalize(name) or name: person for person, name in enumerate(names)}
    variants = [
        (variant, person)
        for name, person in people.items()
        if name.lower() not in vocabulary.KNOWN_WORDS
        for variant in {name.upper(), name.lower()} - people.keys()
    ]
    ambiguous = Counter(variant for variant, _ in variants)
    people |= {variant: person for variant, person in variants if ambiguous[variant] == 1}
    alternatives = "|".join(map(_spelling_pattern, sorted(people, key=len, reverse=True)))
    before, after = r"(?<![^\s.,;:!()\[\]|=→⇒])", r"(?=[\s.,;:!?()\[\]|=→⇒]|-(?!\w)|'s\b|'(?:\s|$)|$)"
    return re.compile(f"{before}(?:{alternatives}){after}"), people


def _spelling_pattern(spelling: str) -> str:
    pattern = re.escape(spelling)
    if re.fullmatch(forms.ROLE, spelling.lower()):  # "a Knight" is the role even where somebody is called Knight
        return rf"(?<!\ba )(?<!\ban )(?<!\bthe ){pattern}"
    if spelling.lower() in ("a", "an", "the"):  # "ZOEY IS A KNIGHT" does not name a person called A
        return rf"{pattern}(?! (?i:{forms.ROLE})\b)"
    return pattern


def replace_names(text: str, names: tuple[str, ...]) -> tuple[str, frozenset[int]]:
    """The text with `@0`, `@1` ... for the names, also for names in square brackets, and the people it mentions."""
    pattern, people = _name_pattern(names)
    mentioned: set[int] = set()

    def mark(match: re.Match[str]) -> str:
        person = people[match[0]]
        mentioned.add(person)
        return f"@{person}"

    text = _BRACKETED.sub(r"\1", pattern.sub(mark, text))
    return _INLINE_NUMBER.sub("\n", text), frozenset(mentioned)
