"""Supervised training of the tiny model on demonstrations.

Most of the training shows careful demonstrations, which work out a truth table. The last part mixes in so many careless
ones that the model rarely reasons of its own accord although it can: reinforcement learning then has a behaviour to
select, as it has in large models.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tiny.puzzles.demonstrations import varied_puzzles, warm_start_puzzles
from verl_trgrpo.tiny.puzzles.model import MAX_LENGTH, new_model
from verl_trgrpo.tiny.puzzles.puzzle_texts import demonstration, prompt_messages, prompt_text
from verl_trgrpo.tiny.puzzles.supervised import NO_LABEL, Example, ScheduleOptions, fit, shuffled_batches
from verl_trgrpo.tiny.puzzles.tokenizer import TURN_END, train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

# There are 95 different puzzles with two people; about half of them are held out.
MOST_TWO_PERSON_PUZZLES = 40
# Shares of the sizes, by the largest size.
SIZE_SHARES = {3: {2: 0.2, 3: 0.8}, 4: {2: 0.1, 3: 0.3, 4: 0.6}}

VOCABULARY = 640
TOKENIZER_EXAMPLES = 4000

# Batches that are drawn together and sorted by length, so that little is spent on padding.
BATCHES_PER_DRAW = 40


@dataclass(frozen=True)
class WarmStartOptions(ScheduleOptions):
    """How to train; see also `ScheduleOptions`.

    puzzles: different puzzles per number of people, at least 1; there are `MOST_TWO_PERSON_PUZZLES` with two people at most.
    test_puzzles: held-out puzzles per number of people to measure the accuracy on, at least 1.
    most_people: puzzles have two to this many people; a key of `SIZE_SHARES`.
    """

    puzzles: int = 6000
    test_puzzles: int = 40
    most_people: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_people not in SIZE_SHARES:
            raise ValueError(f"most_people is {self.most_people}; it must be one of {', '.join(map(str, SIZE_SHARES))}")

    @property
    def sizes(self) -> range:
        """Numbers of people."""
        return range(2, self.most_people + 1)


def train(
    options: WarmStartOptions, progress: Progress = no_progress
) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and trained model (fp32)."""
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = random.Random(f"warm start/{options.seed}")
    counts = {
        size: min(MOST_TWO_PERSON_PUZZLES, options.puzzles) if size == 2 else options.puzzles for size in options.sizes
    }
    pools = {size: warm_start_puzzles(size, count, options.seed) for size, count in counts.items()}
    puzzles = varied_puzzles(pools, SIZE_SHARES[options.most_people], rng)
    tokenizer = train_tokenizer(_tokenizer_texts(puzzles, rng), VOCABULARY, MAX_LENGTH)
    model = new_model(tokenizer)
    fit(model, _batches(tokenizer, puzzles, options, rng), options.steps, progress)
    return tokenizer, model


def _tokenizer_texts(puzzles: Iterator[Puzzle], rng: random.Random) -> Iterator[str]:
    for puzzle in islice(puzzles, TOKENIZER_EXAMPLES):
        yield from (message["content"] for message in prompt_messages(puzzle))
        yield demonstration(puzzle, rng.random() < 0.5, rng)
    # The roles of the chat template, each often enough to become one token.
    yield from ["user\n", "assistant\n", "system\n"] * TOKENIZER_EXAMPLES


def _batches(
    tokenizer: PreTrainedTokenizerBase, puzzles: Iterator[Puzzle], options: WarmStartOptions, rng: random.Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield ``options.steps`` pairs of input_ids and labels, both (batch_size, length) int64, padded on the right.

    Only response tokens have labels; elsewhere they are -100.
    """
    skill_steps = round(options.skill_share * options.steps)
    for first in range(0, options.steps, BATCHES_PER_DRAW):
        count = min(BATCHES_PER_DRAW, options.steps - first)
        careful = options.skill_careful if first < skill_steps else options.final_careful
        examples = []
        for puzzle in islice(puzzles, count * options.batch_size):
            response = demonstration(puzzle, rng.random() < careful, rng) + TURN_END
            prompt, response_ids = tokenizer.encode(prompt_text(tokenizer, puzzle)), tokenizer.encode(response)
            examples.append(Example(prompt + response_ids, [NO_LABEL] * len(prompt) + response_ids))
        yield from shuffled_batches(examples, options.batch_size, tokenizer.pad_token_id, rng)
