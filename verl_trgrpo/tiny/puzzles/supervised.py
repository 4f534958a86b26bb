"""Supervised training of a tiny model on tokens of which some have labels."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from verl_trgrpo.common.progress import Progress, no_progress

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2ForCausalLM

NO_LABEL = -100

WARM_UP_STEPS = 50
# With 0.02 names are still not copied reliably after 2000 steps.
MATRIX_LEARNING_RATE = 0.005
OTHER_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE_SHARE = 0.02
MAX_GRADIENT_NORM = 1.0
TYPICAL_RESPONSE = 64


@dataclass(frozen=True)
class Example:
    """Token ids and labels of equal length; `NO_LABEL` where nothing is learned, else the token itself."""

    input_ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class ScheduleOptions:
    """How long to train, and how often demonstrations are careful; each model's own options add to it.

    seed: any integer from 0; decides the data, the weights at the start and the order.
    steps: optimizer steps, at least 1.
    batch_size: demonstrations per step, at least 1.
    skill_share: share of the steps, from 0 to 1, in the first part of the training.
    skill_careful: share of careful demonstrations in the first part, from 0 to 1.
    final_careful: the same in the last part; the trained model is careful about as often.
    threads: threads of torch, at least 1.

    Raises ValueError that lists everything that is out of range.
    """

    seed: int = 0
    steps: int = 2000
    batch_size: int = 16
    skill_share: float = 0.8
    skill_careful: float = 0.9
    final_careful: float = 0.3
    threads: int = 1

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        shares = {name: values.pop(name) for name in ("skill_share", "skill_careful", "final_careful")}
        # What is left are whole numbers; all but the seed count something.
        problems = [
            f"{name} is {value}; it must be at least {name != 'seed':d}"
            for name, value in values.items()
            if value < (name != "seed")
        ]
        problems += [
            f"{name} is {value}; it must be from 0 to 1" for name, value in shares.items() if not 0 <= value <= 1
        ]
        if problems:
            raise ValueError("; ".join(problems))


def fit(
    model: Qwen2ForCausalLM,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    steps: int,
    progress: Progress = no_progress,
) -> None:
    """Train `model` for `steps` batches of input_ids and labels, both (batch_size, length) int64; leave it in eval mode."""
    import torch
    from torch.optim.lr_scheduler import LambdaLR

    model.train()
    optimizers = _optimizers(model)
    schedules = [LambdaLR(optimizer, partial(_learning_rate_factor, steps=steps)) for optimizer in optimizers]
    for input_ids, labels in progress(batches, steps, "warm start"):
        _loss(model, input_ids, labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad(set_to_none=True)
    model.eval()


def shuffled_batches(
    examples: Sequence[Example], batch_size: int, pad: int, rng: random.Random
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield input_ids and labels of batches of examples of like length, padded on the right, in random order."""
    examples = sorted(examples, key=lambda example: len(example.input_ids))
    starts = list(range(0, len(examples), batch_size))
    rng.shuffle(starts)
    for start in starts:
        yield _padded(examples[start : start + batch_size], pad)


def _padded(examples: Sequence[Example], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    length = max(len(example.input_ids) for example in examples)
    input_ids = torch.full((len(examples), length), pad)
    labels = torch.full((len(examples), length), NO_LABEL)
    for row, example in enumerate(examples):
        input_ids[row, : len(example.input_ids)] = torch.tensor(example.input_ids)
        labels[row, : len(example.labels)] = torch.tensor(example.labels)
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
    labelled = targets != NO_LABEL
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
