"""Supervised warm start of a tiny model on demonstrations of its world.

Most of the training shows careful demonstrations. The last part mixes in so many careless ones that the model is rarely
careful of its own accord although it can be: reinforcement learning then has a behaviour to select, as it has in large
models.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.tiny.model import MAX_LENGTH, new_model
from verl_trgrpo.tiny.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

Batch = tuple["torch.Tensor", "torch.Tensor"]

NO_LABEL = -100

WARM_UP_STEPS = 50
# With 0.02 names are still not copied reliably after 2000 steps.
MATRIX_LEARNING_RATE = 0.005
OTHER_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE_SHARE = 0.02
MAX_GRADIENT_NORM = 1.0
# The loss is the sum over labelled tokens per so many tokens of each response. A mean over the batch would weigh each token
# of a batch of short responses more; as batches are sorted by length and careless responses are short, the model would learn
# to guess far more often than it was shown to.
TYPICAL_RESPONSE = 64

# The first part of the training teaches the skill: its share of the steps, and of careful demonstrations in it.
SKILL_SHARE = 0.8
SKILL_CAREFUL = 0.9

# Batches that are drawn together and sorted by length, so that little is spent on padding.
BATCHES_PER_DRAW = 40


@dataclass(frozen=True)
class Segment:
    """A piece of a response and whether the model wrote it; what it reads, such as found passages, is not learned."""

    text: str
    by_model: bool


@dataclass(frozen=True)
class Demonstration:
    """Chat messages and the response to them, in one or more segments."""

    messages: list[dict[str, str]]
    segments: Sequence[Segment]


@dataclass(frozen=True, kw_only=True)
class WarmStart(ABC):
    """A world to learn from and the options of the training; equal options give an equal checkpoint.

    Args:
        out: directory for the checkpoint.
        seed: decides data, first weights and order, from 0.
        steps: optimizer steps.
        batch_size: demonstrations per step.
        final_careful: share of careful demonstrations in the last part; the model's own is about as high.
    """

    out: Path
    seed: int = 0
    steps: int = 2000
    batch_size: int = 16
    final_careful: float = 0.3

    world: ClassVar[str]
    vocabulary: ClassVar[int]
    added_tokens: ClassVar[tuple[str, ...]]
    # Demonstrations that the tokenizer learns from, and the share of careful ones among them.
    tokenizer_examples: ClassVar[int]
    tokenizer_careful: ClassVar[float]
    # Packages that the checkpoint depends on.
    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")

    def __post_init__(self) -> None:
        at_least_one = dict.fromkeys(("steps", "batch_size"), "[1, inf)")
        ranges = {"seed": "[0, inf)", "final_careful": "[0, 1]", **at_least_one}
        raise_invalid(range_errors(vars(self), ranges))

    @abstractmethod
    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """Yield demonstrations without end; each is careful with a probability that is the next of `shares`."""


def train(options: WarmStart, progress: Progress = no_progress) -> tuple[PreTrainedTokenizerBase, Qwen2ForCausalLM]:
    """Return tokenizer and trained model (fp32). Sets torch's global seed and number of threads."""
    import torch

    torch.set_num_threads(1)  # another number gives other bits
    torch.manual_seed(options.seed)
    rng = random.Random(f"warm start/{options.seed}")
    texts = _tokenizer_texts(options, rng)
    tokenizer = train_tokenizer(texts, options.vocabulary, MAX_LENGTH, options.added_tokens)
    model = new_model(tokenizer)
    model.train()
    optimizers = _optimizers(model)
    factor = partial(_learning_rate_factor, steps=options.steps)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    for input_ids, labels in progress(_batches(tokenizer, options, rng), options.steps, "warm start"):
        (summed_loss(model, input_ids, labels) / (len(labels) * TYPICAL_RESPONSE)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad(set_to_none=True)
    return tokenizer, model.eval()


def _tokenizer_texts(options: WarmStart, rng: random.Random) -> Iterator[str]:
    examples = options.demonstrations(rng, repeat(options.tokenizer_careful))
    for example in islice(examples, options.tokenizer_examples):
        yield from (message["content"] for message in example.messages)
        yield from (segment.text for segment in example.segments)
    # The roles of the chat template, each often enough to become one token.
    yield from ["user\n", "assistant\n", "system\n"] * options.tokenizer_examples


def _batches(tokenizer: PreTrainedTokenizerBase, options: WarmStart, rng: random.Random) -> Iterator[Batch]:
    """Yield ``options.steps`` pairs of input_ids and labels, both (batch_size, length) int64, padded on the right.

    Only tokens that the model is to write have labels; elsewhere they are `NO_LABEL`.
    """
    in_first_part = round(SKILL_SHARE * options.steps) * options.batch_size
    shares = chain(repeat(SKILL_CAREFUL, in_first_part), repeat(options.final_careful))
    demonstrations = options.demonstrations(rng, shares)
    for first in range(0, options.steps, BATCHES_PER_DRAW):
        count = min(BATCHES_PER_DRAW, options.steps - first) * options.batch_size
        examples = [encode(tokenizer, demonstration) for demonstration in islice(demonstrations, count)]
        examples.sort(key=lambda example: len(example[0]))
        starts = list(range(0, len(examples), options.batch_size))
        rng.shuffle(starts)
        for start in starts:
            yield padded(examples[start : start + options.batch_size], tokenizer.pad_token_id)


def encode(tokenizer: PreTrainedTokenizerBase, demonstration: Demonstration) -> tuple[list[int], list[int]]:
    """Return token ids and labels, each segment encoded for itself as in a rollout."""
    prompt = tokenizer.apply_chat_template(demonstration.messages, tokenize=False, add_generation_prompt=True)
    input_ids = tokenizer.encode(prompt, add_special_tokens=False)
    labels = [NO_LABEL] * len(input_ids)
    last = demonstration.segments[-1]
    for segment in demonstration.segments:
        text = segment.text + (tokenizer.eos_token if segment is last else "")
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        input_ids += token_ids
        labels += token_ids if segment.by_model else [NO_LABEL] * len(token_ids)
    return input_ids, labels


def padded(examples: Sequence[tuple[list[int], list[int]]], pad: int) -> Batch:
    """Return token ids and labels of `encode` as tensors (batch, length), padded on the right."""
    import torch

    length = max(len(ids) for ids, _ in examples)
    input_ids = torch.full((len(examples), length), pad)
    labels = torch.full((len(examples), length), NO_LABEL)
    for row, (ids, targets) in enumerate(examples):
        input_ids[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(targets)] = torch.tensor(targets)
    return input_ids, labels


def summed_loss(model: PreTrainedModel, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood of the labelled tokens; only their positions go through the output layer."""
    from torch.nn.functional import cross_entropy

    # Padding stands on the right, where causal attention keeps it out of every labelled token.
    hidden = model.model(input_ids=input_ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    labelled = targets != NO_LABEL
    return cross_entropy(model.lm_head(hidden[labelled]).float(), targets[labelled], reduction="sum")


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
