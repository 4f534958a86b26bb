"""The search model: demonstrations of searching in an invented world.

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

from verl_trgrpo.retrieval.build import IndexOptions, build_index
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.tasks.search_qa.tags import observation_frame, passages_text
from verl_trgrpo.tiny.search_world import PROFESSIONS, Question, World, corpus_text, make_world
from verl_trgrpo.tiny.tokenizer import TAG_TOKENS
from verl_trgrpo.tiny.training import Demonstration, Segment, WarmStart

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "search"

TOPK = 2

EXAMPLES_PER_WORLD = 640


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

    Args:
        question: of `world`.
        world: where wrong answers are drawn from.
        backend: an index of the world's documents; observations are what it really finds.
        careful: search as often as needed; else guess, or where two searches are needed perhaps stop after one.
        rng: draws the kind of carelessness and the guesses.
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
