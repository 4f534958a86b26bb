"""The warm start: a LoRA adapter that teaches the form of an answer, and merging it into the model.

As it comes the model cannot be trained by reward: it hardly ever gives an answer in the form that the rewards read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress

Message = dict[str, str]


@dataclass(frozen=True)
class WarmStartOptions:
    """How the adapter is trained.

    Args:
        steps: updates.
        batch: demonstrations in an update.
        lr: learning rate of AdamW, which falls linearly to 0.
        rank: of the adapter's matrices.
        seed: of order, wording, mistakes and initial weights.
        bf16: compute in bfloat16, with float32 weights.
        threads: CPU threads.
    """

    steps: int = 160
    batch: int = 16
    lr: float = 1e-3
    rank: int = 8
    seed: int = 0
    bf16: bool = True
    threads: int = 2

    def __post_init__(self) -> None:
        raise_problems(
            [
                f"{name} is {getattr(self, name)}; give a positive number"
                for name in ("steps", "batch", "lr", "rank", "threads")
                if getattr(self, name) <= 0
            ]
        )


def train_adapter(
    base: Path,
    demonstrations: Sequence[tuple[list[Message], str]],
    out: Path,
    options: WarmStartOptions,
    progress: Progress = no_progress,
) -> list[float]:
    """Train a LoRA adapter on demonstrations and write it to `out` in bfloat16; return the losses of the updates.

    Args:
        base: directory of the model.
        demonstrations: chat messages, and the response to them.
        out: directory for the adapter, in peft's format.
        options: see there.
        progress: shows the updates.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, options.steps)
    examples = [encode(tokenizer, messages, response) for messages, response in demonstrations]
    losses = []
    for batch in progress(_batches(examples, options), options.steps, "warm start"):
        # Entered anew for each pass: its cache of cast weights outlives an optimizer step.
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = response_loss(model.get_base_model(), batch, tokenizer.pad_token_id)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    with staged_directory(out) as stage:
        model.to(torch.bfloat16).save_pretrained(stage)
    return losses


def encode(tokenizer: Any, messages: list[Message], response: str) -> tuple[list[int], list[int]]:
    """Return the token ids of the prompt and of the response, which ends with the end-of-sequence token."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return (
        tokenizer(text, add_special_tokens=False)["input_ids"],
        tokenizer(response, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id],
    )


def response_loss(model: Any, examples: Sequence[tuple[list[int], list[int]]], padding: int) -> torch.Tensor:
    """Return the mean cross-entropy of the response tokens; only their positions go through the large output layer."""
    longest = max(len(prompt) + len(response) for prompt, response in examples)
    ids = torch.full((len(examples), longest), padding)
    predicts = torch.zeros(ids.shape, dtype=torch.bool)
    seen = torch.zeros_like(ids)
    for row, (prompt, response) in enumerate(examples):
        end = len(prompt) + len(response)
        ids[row, :end] = torch.tensor(prompt + response)
        seen[row, :end] = 1
        predicts[row, len(prompt) - 1 : end - 1] = True
    hidden = model.model(ids, attention_mask=seen, use_cache=False).last_hidden_state[predicts]
    return cross_entropy(model.lm_head(hidden).float(), ids.roll(-1, 1)[predicts])


def _batches(examples: list[Any], options: WarmStartOptions) -> Iterator[list[Any]]:
    rng = random.Random(options.seed)
    order: list[int] = []
    for _ in range(options.steps):
        while len(order) < options.batch:
            order += rng.sample(range(len(examples)), len(examples))
        chosen, order = order[: options.batch], order[options.batch :]
        yield [examples[place] for place in chosen]


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write the model of `base` with `adapter` merged into its weights, and its tokenizer, to `out`."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged: Any = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    with staged_directory(out) as stage:
        merged.save_pretrained(stage)
        AutoTokenizer.from_pretrained(base).save_pretrained(stage)
