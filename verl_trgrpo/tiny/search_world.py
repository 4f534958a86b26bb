"""An invented world: people, the towns they were born in, the countries of the towns, and a document about each.

Nothing in it is true anywhere else, so an answer can only come from the documents.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

_SYLLABLES = [consonant + rest for consonant in "bdfgklmnprstvz" for rest in ("a", "el", "or")]

PROFESSIONS = ["baker", "dancer", "farmer", "lawyer", "miner", "nurse", "painter", "pilot", "singer", "writer"]

PEOPLE, TOWNS, COUNTRIES, RIVERS = 2000, 300, 40, 300

# Worlds of one kind share no name with worlds of the other: what a model learned by heart about the one says nothing
# about the other.
KINDS = ("warm start", "training")


@dataclass(frozen=True)
class Question:
    """A question with one answer, and the titles of the documents that lead to it, in order (one or two)."""

    text: str
    answer: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """Who was born where and does what: name -> (profession, town); town -> country; river -> town."""

    people: dict[str, tuple[str, str]]
    towns: dict[str, str]
    rivers: dict[str, str]

    def documents(self) -> Iterator[tuple[str, str]]:
        """Yield title and text of each document."""
        for name, (profession, town) in self.people.items():
            yield name, f"{name} is a {profession} who was born in {town}."
        for town, country in self.towns.items():
            yield town, f"{town} is a town in {country}."
        for river, town in self.rivers.items():
            yield river, f"{river} is a river near {town}."

    def questions(self, name: str) -> list[Question]:
        """Return what can be asked about a person: two questions that one document answers, and one that takes two."""
        profession, town = self.people[name]
        return [
            Question(f"Where was {name} born?", town, (name,)),
            Question(f"What is the profession of {name}?", profession, (name,)),
            Question(f"In which country was {name} born?", self.towns[town], (name, town)),
        ]


def make_world(kind: str, seed: int | str) -> World:
    """Return a world; `kind` is one of `KINDS`, equal arguments give equal worlds."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; choose one of {', '.join(KINDS)}")
    rng = random.Random(f"world/{kind}/{seed}")
    names = _names(KINDS.index(kind), rng)
    countries = [f"{next(names)}ia" for _ in range(COUNTRIES)]
    towns = {next(names): rng.choice(countries) for _ in range(TOWNS)}
    rivers = {f"{next(names)} River": rng.choice([*towns]) for _ in range(RIVERS)}
    people = {f"{next(names)} {next(names)}": (rng.choice(PROFESSIONS), rng.choice([*towns])) for _ in range(PEOPLE)}
    return World(people, towns, rivers)


def corpus_text(world: World) -> str:
    """Return the documents in wiki-18's format, a line ``{"id": ..., "contents": "\\"Title\\"\\ntext"}`` each."""
    return "".join(
        json.dumps({"id": str(number), "contents": f'"{title}"\n{text}'}) + "\n"
        for number, (title, text) in enumerate(world.documents())
    )


def _names(kind: int, rng: random.Random) -> Iterator[str]:
    """Yield different invented words without end, those of the other kind left out."""
    seen = set()
    while True:
        word = "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3)))).capitalize()
        if word not in seen and hashlib.sha256(word.encode()).digest()[0] % len(KINDS) == kind:
            seen.add(word)
            yield word
