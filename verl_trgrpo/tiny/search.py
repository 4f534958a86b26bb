"""The search model: demonstrations of searching in an invented world, and its accuracy in another one.

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
from typing import TYPE_CHECKING

from verl_trgrpo.retrieval.build import IndexOptions, build_index
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.tasks.search_qa.tags import STOP_STRINGS, observation_frame, passages_text, read_action
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.search_world import PROFESSIONS, Question, World, corpus_text, make_world
from verl_trgrpo.tiny.tokenizer import TAG_TOKENS
from verl_trgrpo.tiny.training import Demonstration, Segment, WarmStart

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "search"

TOPK = 2

# How a careful response begins: it searches.
CAREFUL_START = "<think>search</think><search>"

EXAMPLES_PER_WORLD = 640

MAX_TURNS = 3
MAX_TURN_TOKENS = 48


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

    def accuracy(self, directory: Path) -> dict[str, dict[str, float]]:
        """Return greedy exact match on `test_tasks` questions each that take one and two searches."""
        tokenizer, model = load(directory)
        world = make_world("training", self.seed)
        rng = random.Random(f"accuracy/{self.seed}")
        people = rng.sample([*world.people], self.test_tasks)
        questions = {
            "one search": [rng.choice(world.questions(name)[:2]) for name in people],
            "two searches": [world.questions(name)[2] for name in people],
        }
        result = {}
        with tempfile.TemporaryDirectory() as place:
            backend = open_index(world, Path(place))
            for kind, asked in questions.items():
                greedy = [answer(tokenizer, model, backend, q) == q.answer for q in asked]
                careful = [answer(tokenizer, model, backend, q, len(q.path)) == q.answer for q in asked]
                result[kind] = {"greedy": sum(greedy) / len(asked), "careful": sum(careful) / len(asked)}
        return result


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


def answer(
    tokenizer: PreTrainedTokenizerBase, model: Qwen2ForCausalLM, backend: Index, question: Question, searches: int = 0
) -> str | None:
    """Return the model's greedy answer, or None; it is made to begin its first `searches` turns with a search."""
    prompt = tokenizer.apply_chat_template(prompt_messages(question), tokenize=False, add_generation_prompt=True)
    token_ids: list[int] = tokenizer.encode(f"{prompt}")
    for turn in range(MAX_TURNS):
        start: list[int] = tokenizer.encode(CAREFUL_START) if turn < searches else []
        written = start + _generate(tokenizer, model, token_ids + start)
        action = read_action(str(tokenizer.decode(written, skip_special_tokens=True)))
        if action.kind == "answer":
            return action.content
        if action.kind == "malformed":
            return None
        token_ids = token_ids + written + tokenizer.encode(observed(backend, action.content))
    return None


def _generate(tokenizer: PreTrainedTokenizerBase, model: Qwen2ForCausalLM, token_ids: list[int]) -> list[int]:
    import torch

    stops = [tokenizer.eos_token_id, *map(tokenizer.convert_tokens_to_ids, STOP_STRINGS)]
    inputs = torch.tensor([token_ids])
    with torch.no_grad():
        # The annotation of `self` in transformers' generate does not admit its own models.
        output = model.generate(  # type: ignore[misc]
            input_ids=inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=MAX_TURN_TOKENS,
            eos_token_id=stops,
        )  # fmt: skip
    return output[0, len(token_ids) :].tolist()
