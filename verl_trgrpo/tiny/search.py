"""The search demonstration: how its model is warm-started, and the questions, documents and index it trains on.

A careful demonstration searches as often as the question takes and is right. A lazy one answers a question that takes two
searches after the first. A careless one guesses.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa

from verl_trgrpo.common.files import write_text
from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.write import DataFile, write_dataset
from verl_trgrpo.retrieval.index import Index, read_manifest
from verl_trgrpo.retrieval.index_builder import IndexOptions, build_index
from verl_trgrpo.tasks.search_qa.format import observation_frame, passages_text
from verl_trgrpo.tasks.search_qa.rows import SEARCH_AGENT
from verl_trgrpo.tiny.search_world import PROFESSIONS, Question, World, corpus_text, make_world
from verl_trgrpo.tiny.tokenizer import TAG_TOKENS
from verl_trgrpo.tiny.training import Demonstration, Segment, WarmStart

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "search"

TOPK = 2

EXAMPLES_PER_WORLD = 640

# People asked about; one question each, half of them with two searches. No person is in both splits.
TRAIN, TEST = 768, 192

CORPUS = "corpus.jsonl"


@dataclass(frozen=True, kw_only=True)
class SearchWarmStart(WarmStart):
    """Questions about an invented world: the model of the search demonstration."""

    world = "search"
    vocabulary = 512
    added_tokens = (*TAG_TOKENS, "<search>", "</search>", "<information>", "</information>")
    tokenizer_examples = 2000
    tokenizer_careful = 0.9
    libraries = (*WarmStart.libraries, "tantivy")

    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """Yield trajectories, half of them about questions that take two searches, a world after the other.

        With one world the model would learn its few countries by heart instead of reading them.
        """
        for number in count():
            world = make_world("warm start", f"{self.seed}/{number}")
            people = [*world.people]
            with tempfile.TemporaryDirectory() as directory:
                backend = open_index(world, Path(directory))
                for _ in range(EXAMPLES_PER_WORLD):
                    *short, long = world.questions(rng.choice(people))
                    question = long if rng.random() < 0.5 else rng.choice(short)
                    careful = rng.random() < next(shares)
                    segments = demonstrate(question, world, backend, careful, rng)
                    yield Demonstration(prompt_messages(question), segments)


def open_index(world: World, directory: Path) -> Index:
    """Write the world's documents and their index to `directory` and return the index, opened."""
    corpus = directory / "corpus.jsonl"
    corpus.write_text(corpus_text(world), encoding="utf-8")
    build_index(IndexOptions(corpus=corpus, out=directory / "index"))
    return Index(directory / "index")


def prompt_messages(question: Question) -> list[dict[str, str]]:
    """Return the chat messages: the question alone, the tiny model needs no instructions."""
    return [{"role": "user", "content": question.text}]


def demonstrate(question: Question, world: World, backend: Index, careful: bool, rng: random.Random) -> list[Segment]:
    """Return a whole trajectory after the prompt.

    Wrong answers are drawn from `world`; observations are what `backend`, an index of its documents, really finds. A
    `careful` one searches as often as needed; another guesses, or where two searches are needed perhaps stops after one.
    """
    if not careful and (len(question.path) == 1 or rng.random() < 0.5):
        return [Segment(f"<think>guess</think><answer>{_guess(question, world, rng)}</answer>", True)]
    path = question.path if careful else question.path[:1]
    segments = []
    for title in path:
        segments.append(Segment(f"<think>search</think><search>{title}</search>", True))
        segments.append(Segment(observed(backend, title), False))
    answer = question.answer if careful else world.people[question.path[0]][1]
    segments.append(Segment(f"<think>found</think><answer>{answer}</answer>", True))
    return segments


def observed(backend: Index, query: str) -> str:
    """Return the observation after a search, as the agent loop writes it."""
    opening, closing = observation_frame()
    return opening + passages_text(backend.search([query], TOPK)[0]) + closing


def _guess(question: Question, world: World, rng: random.Random) -> str:
    if question.answer in PROFESSIONS:
        return rng.choice(PROFESSIONS)
    places = world.towns.keys() if len(question.path) == 1 else {*world.towns.values()}
    return rng.choice(sorted(places))


def prepare(directory: Path, seed: int) -> bool:
    """Write data, corpus and index below `directory`, or find them there; return whether the data were built.

    ``data`` receives ``train.parquet``, ``test.parquet``, a manifest and ``corpus.jsonl``; ``index`` an index of the corpus.
    Equal seeds give equal files. The world shares no name with those of the warm start.

    Raises:
        ValueError: when the directory cannot be written, or has files of unknown origin.
    """
    world = make_world("training", seed)
    arguments = {"train": TRAIN, "test": TEST, "seed": seed}
    manifest = write_dataset(
        directory / "data",
        _data_files(world, seed),
        arrow_schema(
            [pa.field("searches", pa.int64())],
            pa.struct([("target", pa.list_(pa.string()))]),
            [pa.field("agent_name", pa.string())],
        ),
        builder="search demo",
        made_from=arguments,
        command=["verl-trgrpo", "search", "demo"],
        replace_other=True,
    )
    corpus = directory / "data" / CORPUS
    built = manifest is not None
    if built or not corpus.exists():
        write_text(corpus, corpus_text(world))
    index = directory / "index"
    if built or read_manifest(index) is None:
        build_index(IndexOptions(corpus=corpus, out=index, force=True))
    return built


def _data_files(world: World, seed: int) -> Iterator[DataFile]:
    rng = random.Random(f"questions/{seed}")
    people = rng.sample([*world.people], TRAIN + TEST)
    questions = [
        world.questions(name)[2] if number % 2 else rng.choice(world.questions(name)[:2])
        for number, name in enumerate(people)
    ]
    # Test first: another number of train questions would leave the test set as it is.
    splits = {"test": questions[:TEST], "train": questions[TEST:]}
    for split, asked in splits.items():
        rows = [
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
        yield DataFile(split, rows)
