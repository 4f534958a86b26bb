"""Build what the search demonstration needs: an invented world, questions as veRL rows, an index of documents and a server.

The world has people, the towns they were born in and the countries of the towns, and a document about each. Nothing in it is
true anywhere else, so an answer can only come from the documents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.files import write_text
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.retrieval.index import IndexOptions, build_index, read_manifest
from verl_trgrpo.retrieval.server import READY
from verl_trgrpo.tasks.data_set import DataSet
from verl_trgrpo.tasks.search_qa import SEARCH_AGENT

# The demonstration's model: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "search"

# People asked about; one question each, half of them with two searches. No person is in both splits.
TRAIN, TEST = 768, 192

CORPUS = "corpus.jsonl"

_SYLLABLES = [consonant + rest for consonant in "bdfgklmnprstvz" for rest in ("a", "el", "or")]

PROFESSIONS = ["baker", "dancer", "farmer", "lawyer", "miner", "nurse", "painter", "pilot", "singer", "writer"]

PEOPLE, TOWNS, COUNTRIES, RIVERS = 2000, 300, 40, 300

# Worlds of different kinds have no name in common, so that nothing that a model learned by heart about one helps in the other.
KINDS = ("warm start", "training")


@dataclass(frozen=True)
class Question:
    """A question with one answer, and the titles of the documents that lead to it, in order (one or two)."""

    text: str
    answer: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """An invented world.

    people: profession and town of birth by name.
    towns: country by town.
    rivers: a town nearby by river.
    """

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
        """Return three questions about a person: two that one document answers, and one that takes two."""
        profession, town = self.people[name]
        return [
            Question(f"Where was {name} born?", town, (name,)),
            Question(f"What is the profession of {name}?", profession, (name,)),
            Question(f"In which country was {name} born?", self.towns[town], (name, town)),
        ]


def make_world(kind: str, seed: int | str) -> World:
    """Return a world of a kind of `KINDS`; equal arguments give equal worlds."""
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
    """Yield different invented words of a kind without end."""
    seen = set()
    while True:
        word = "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3)))).capitalize()
        if word not in seen and hashlib.sha256(word.encode()).digest()[0] % len(KINDS) == kind:
            seen.add(word)
            yield word


def prompt_messages(question: Question) -> list[dict[str, str]]:
    """Return the chat messages: the question alone, without instructions."""
    return [{"role": "user", "content": question.text}]


def prepare(directory: Path, seed: int) -> bool:
    """Write data, corpus and index below `directory` unless they are there; return whether the data were built.

    ``data`` receives ``train.parquet``, ``test.parquet``, a manifest and ``corpus.jsonl``; ``index`` an index of the corpus.
    Equal seeds give equal files. The world has no name in common with those of the warm start.

    Raises:
        ValueError: the directory cannot be written or has files of unknown origin.
    """
    world = make_world("training", seed)
    data_set = DataSet(
        directory / "data",
        builder="search demo",
        made_from={"train": TRAIN, "test": TEST, "seed": seed},
        command=["examples/search_demo.py"],
        replace_other=True,
    )
    if built := not data_set.is_there():
        schema = arrow_schema(
            [pa.field("searches", pa.int64())],
            pa.struct([("target", pa.list_(pa.string()))]),
            [pa.field("agent_name", pa.string())],
        )
        data_set.write(_rows(world, seed), schema)
    corpus = directory / "data" / CORPUS
    if built or not corpus.exists():
        write_text(corpus, corpus_text(world))
    index = directory / "index"
    if built or read_manifest(index) is None:
        build_index(IndexOptions(corpus=corpus, out=index, force=True))
    return built


def _rows(world: World, seed: int) -> dict[str, list[dict[str, Any]]]:
    rng = random.Random(f"questions/{seed}")
    people = rng.sample([*world.people], TRAIN + TEST)
    questions = [
        world.questions(name)[2] if number % 2 else rng.choice(world.questions(name)[:2])
        for number, name in enumerate(people)
    ]
    # Test first: another number of train questions would leave the test set as it is.
    return {
        split: [
            build_row(
                data_source="search_qa",
                prompt=prompt_messages(question),
                ability="fact-reasoning",
                ground_truth={"target": [question.answer]},
                extra_info={"searches": len(question.path)},
                columns={"agent_name": SEARCH_AGENT},
            )
            for question in asked
        ]
        for split, asked in (("test", questions[:TEST]), ("train", questions[TEST:]))
    }


@contextlib.contextmanager
def server_process(
    index: Path,
    log_file: Path,
    *flags: object,
    port: int = 0,
    command: Sequence[str] = (sys.executable, "-m", "verl_trgrpo", "search"),
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``verl-trgrpo search serve`` as a child process for the duration of a block, which gets it and the URL of searches.

    The server also ends if this process dies in any way, SIGKILL included: the pipe to its standard input is closed then.
    It gets further `flags`; `log_file` receives its errors.

    Raises:
        RuntimeError: the server does not start.
    """
    words = [*command, "serve", "--index", index, "--port", port, "--stop-with-stdin", *flags]
    with (
        log_file.open("ab") as log,
        subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Ctrl-C in a terminal must not stop the server before the run that uses it has stopped.
            start_new_session=True,
        ) as process,
    ):
        try:
            line = process.stdout.readline()  # type: ignore[union-attr]
            if not line.startswith(READY):
                raise RuntimeError(f"the search server did not start; see {log_file}")
            yield process, line.removeprefix(READY).split()[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdout.read()  # type: ignore[union-attr]  # ends when the last process of the server has
