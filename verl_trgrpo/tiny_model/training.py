"""Supervised training of the tiny model on demonstrations.

Most of the training shows careful demonstrations, which work out a truth table. The last part mixes in so many careless
ones that the model rarely reasons of its own accord although it can: reinforcement learning then has a behaviour to
select, as it has in large models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from verl_trgrpo.data.kk_puzzles import Puzzle
from verl_trgrpo.data.kk_sources import Progress, no_progress
from verl_trgrpo.tiny_model.demonstrations import varied_puzzles, warm_start_puzzles
from verl_trgrpo.tiny_model.model import MAX_LENGTH, new_model
from verl_trgrpo.tiny_model.puzzle_texts import demonstration, prompt_messages, prompt_text
from verl_trgrpo.tiny_model.tokenizer import TURN_END, train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase, Qwen2ForCausalLM

# There are 95 different puzzles with two people; about half of them are held out.
MOST_TWO_PERSON_PUZZLES = 40
SIZE_SHARES = {2: 0.2, 3: 0.8}

VOCABULARY = 640
TOKENIZER_EXAMPLES = 4000

WARM_UP_STEPS = 50
# With 0.02 names are still not copied reliably after 2000 steps.
MATRIX_LEARNING_RATE = 0.005
OTHER_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE_SHARE = 0.02
MAX_GRADIENT_NORM = 1.0
TYPICAL_RESPONSE = 64

# Batches that are drawn together and sorted by length, so that little is spent on padding.
BATCHES_PER_DRAW = 40


@dataclass(frozen=True)
class WarmStartOptions:
    """How to train.

    seed: any integer from 0; decides the puzzles, the weights at the start and the order.
    puzzles: different puzzles with three people, at least 1; there are `MOST_TWO_PERSON_PUZZLES` with two people at most.
    steps: optimizer steps, at least 1.
    batch_size: demonstrations per step, at least 1.
    skill_share: share of the steps, from 0 to 1, in the first part of the training.
    skill_careful: share of careful demonstrations in the first part, from 0 to 1.
    final_careful: the same in the last part; the trained model reasons about as often.
    threads: threads of torch, at least 1.
    test_puzzles: held-out puzzles per number of people to measure the accuracy on, at least 1.

    Raises ValueError that lists everything that is out of range.
    """

    seed: int = 0
    puzzles: int = 6000
    steps: int = 2000
    batch_size: int = 16
    skill_share: float = 0.8
    skill_careful: float = 0.9
    final_careful: float = 0.3
    threads: int = 1
    test_puzzles: int = 40

    def __post_init__(self) -> None:
        lowest = {"seed": 0, "puzzles": 1, "steps": 1, "batch_size": 1, "threads": 1, "test_puzzles": 1}
        problems = [
            f"{name} is {getattr(self, name)}; it must be at least {least}"
            for name, least in lowest.items()
            if getattr(self, name) < least
        ]
        problems += [
            f"{name} is {getattr(self, name)}; it must be from 0 to 1"
            for name in ("skill_share", "skill_careful", "final_careful")
            if not 0 <= getattr(self, name) <= 1
        ]
        if problems:
            raise ValueError("; ".join(problems))


def train(
    options: WarmStartOptions, progress: Progress = no_progress
) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and trained model (fp32)."""
    import torch
    from torch.optim.lr_scheduler import LambdaLR

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = random.Random(f"warm start/{options.seed}")
    counts = {2: min(MOST_TWO_PERSON_PUZZLES, options.puzzles), 3: options.puzzles}
    pools = {size: warm_start_puzzles(size, count, options.seed) for size, count in counts.items()}
    puzzles = varied_puzzles(pools, SIZE_SHARES, rng)
    tokenizer = train_tokenizer(_tokenizer_texts(puzzles, rng), VOCABULARY, MAX_LENGTH)
    model = new_model(tokenizer).train()
    optimizers = _optimizers(model)
    schedules = [LambdaLR(optimizer, partial(_learning_rate_factor, steps=options.steps)) for optimizer in optimizers]
    batches = _batches(tokenizer, puzzles, options, rng)
    for input_ids, labels in progress(batches, options.steps, "warm start"):
        _loss(model, input_ids, labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad(set_to_none=True)
    return tokenizer, model.eval()


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
            examples.append((tokenizer.encode(prompt_text(tokenizer, puzzle)), tokenizer.encode(response)))
        examples.sort(key=lambda example: len(example[0]) + len(example[1]))
        starts = list(range(0, len(examples), options.batch_size))
        rng.shuffle(starts)
        for start in starts:
            yield _padded(examples[start : start + options.batch_size], tokenizer.pad_token_id)


def _padded(examples: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    length = max(len(prompt) + len(response) for prompt, response in examples)
    input_ids = torch.full((len(examples), length), pad)
    labels = torch.full((len(examples), length), -100)
    for row, (prompt, response) in enumerate(examples):
        end = len(prompt) + len(response)
        input_ids[row, :end] = torch.tensor(prompt + response)
        labels[row, len(prompt) : end] = torch.tensor(response)
    return input_ids, labels


def _loss(model: Qwen2ForCausalLM, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of the labelled tokens per `TYPICAL_RESPONSE` tokens of each response.

    A mean over the batch would weigh each token of a batch of short responses more; as batches are sorted by length and
    careless responses are short, the model would learn to guess far more often than it was shown to.
    """
    from torch.nn.functional import cross_entropy

    # Padding stands on the right, where causal attention keeps it out of every labelled token. Logits of tokens
    # without a label are not computed.
    hidden = model.model(input_ids=input_ids).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    labelled = targets != -100
    total = cross_entropy(model.lm_head(hidden[labelled]), targets[labelled], reduction="sum")
    return total / (len(labels) * TYPICAL_RESPONSE)


def _optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the weight matrices and AdamW for embeddings, biases and norms.

    In 400 steps Muon reaches a loss for which AdamW alone needs over 600.
    """
    import torch

    named = list(model.named_parameters())
    matrices = [weight for name, weight in named if weight.ndim == 2 and "embed" not in name]
    others = [weight for name, weight in named if weight.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, weight_decay=0.01),
        torch.optim.AdamW(others, lr=OTHER_LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def _learning_rate_factor(step: int, steps: int) -> float:
    """Return the learning rate of a step (from 0) as a share of the highest: linear warm-up, then a cosine."""
    cosine = (1 + math.cos(math.pi * min(1, step / steps))) / 2
    share = FINAL_LEARNING_RATE_SHARE + (1 - FINAL_LEARNING_RATE_SHARE) * cosine
    return min(1, (step + 1) / WARM_UP_STEPS) * share
