"""Supervised training of the tiny searching model on demonstrations.

Most of the training shows careful demonstrations; the last part mixes in so many that guess that the model rarely
searches of its own accord although it can.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.retrieval.backend import Backend
from verl_trgrpo.retrieval.tantivy_backend import TantivyOptions
from verl_trgrpo.retrieval.tantivy_index import IndexOptions, build_index
from verl_trgrpo.tiny.puzzles.model import MAX_LENGTH, new_model
from verl_trgrpo.tiny.puzzles.supervised import NO_LABEL, Example, ScheduleOptions, fit, shuffled_batches
from verl_trgrpo.tiny.puzzles.tokenizer import TAG_TOKENS, TURN_END, train_tokenizer
from verl_trgrpo.tiny.search.demonstrations import Segment, demonstrate, prompt_messages
from verl_trgrpo.tiny.search.world import Question, World, make_world, write_corpus

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

VOCABULARY = 512
TOKENIZER_EXAMPLES = 2000
SEARCH_TOKENS = (*TAG_TOKENS, "<search>", "</search>", "<information>", "</information>")

# Batches that are drawn together and sorted by length, so that little is spent on padding.
BATCHES_PER_DRAW = 40

EXAMPLES_PER_WORLD = 640


@dataclass(frozen=True)
class SearchWarmStartOptions(ScheduleOptions):
    """How to train; see also `ScheduleOptions`.

    test_questions: questions about another world to measure the accuracy on, at least 1.
    """

    test_questions: int = 60


def open_index(world: World, directory: Path) -> Backend:
    """Write the world's documents and their index to `directory` and return the index, opened."""
    write_corpus(world, directory / "corpus.jsonl")
    build_index(IndexOptions(corpus=directory / "corpus.jsonl", out=directory / "index"))
    return TantivyOptions(directory / "index").open()


def train(
    options: SearchWarmStartOptions, progress: Progress = no_progress
) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and trained model (fp32)."""
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = random.Random(f"warm start/{options.seed}")
    examples = _demonstrations(options, rng)
    # The roles of the chat template, each often enough to become one token.
    roles = ["user\n", "assistant\n", "system\n"] * TOKENIZER_EXAMPLES
    texts = [
        question.text + "".join(segment.text for segment in segments)
        for question, segments in islice(examples, TOKENIZER_EXAMPLES)
    ]
    tokenizer = train_tokenizer([*texts, *roles], VOCABULARY, MAX_LENGTH, SEARCH_TOKENS)
    model = new_model(tokenizer)
    fit(model, _batches(tokenizer, options, rng), options.steps, progress)
    return tokenizer, model


def _demonstrations(options: SearchWarmStartOptions, rng: random.Random) -> Iterator[tuple[Question, list[Segment]]]:
    """Yield questions, half of which take two searches, and trajectories, a world after the other, without end.

    With one world the model would learn its few countries by heart instead of reading them.
    """
    examples = 0
    for number in count():
        world = make_world("warm start", f"{options.seed}/{number}")
        people = [*world.people]
        with tempfile.TemporaryDirectory() as directory:
            backend = open_index(world, Path(directory))
            for _ in range(EXAMPLES_PER_WORLD):
                *short, long = world.questions(rng.choice(people))
                question = long if rng.random() < 0.5 else rng.choice(short)
                in_first_part = examples < options.skill_share * options.steps * options.batch_size
                share = options.skill_careful if in_first_part else options.final_careful
                yield question, demonstrate(question, world, backend, rng.random() < share, rng)
                examples += 1


def _batches(
    tokenizer: PreTrainedTokenizerBase, options: SearchWarmStartOptions, rng: random.Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    demonstrations = _demonstrations(options, rng)
    for first in range(0, options.steps, BATCHES_PER_DRAW):
        batches = min(BATCHES_PER_DRAW, options.steps - first)
        drawn = [_example(tokenizer, *pair) for pair in islice(demonstrations, batches * options.batch_size)]
        yield from shuffled_batches(drawn, options.batch_size, tokenizer.pad_token_id, rng)


def _example(tokenizer: PreTrainedTokenizerBase, question: Question, segments: list[Segment]) -> Example:
    """Return a trajectory as tokens, each segment for itself as in a rollout; only the model's own have labels."""
    prompt = tokenizer.apply_chat_template(prompt_messages(question), tokenize=False, add_generation_prompt=True)
    input_ids = tokenizer.encode(prompt)
    labels = [NO_LABEL] * len(input_ids)
    for number, segment in enumerate(segments):
        ending = TURN_END if number + 1 == len(segments) else ""
        token_ids = tokenizer.encode(segment.text + ending)
        input_ids += token_ids
        labels += token_ids if segment.by_model else [NO_LABEL] * len(token_ids)
    return Example(input_ids, labels)
