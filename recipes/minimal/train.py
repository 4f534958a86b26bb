"""TR-GRPO in one file: plain torch and transformers around this project's loss, advantages and rewards; no veRL, no Ray.

Read it from the bottom: `train` repeats sample, score, compare, update. Start it from a checkout, with data of the quickstart:

  python -c "from pathlib import Path; from verl_trgrpo.demos.puzzles import build_dataset; build_dataset(Path('data'))"
  python recipes/minimal/train.py --train data/train.parquet --test data/test.parquet --out runs/minimal
  python recipes/minimal/train.py --train data/train.parquet --out runs/grpo --shaping uniform
  python recipes/minimal/train.py --train kk.parquet --out runs/qwen --model Qwen/Qwen2.5-0.5B-Instruct --device cuda --lr 1e-6

What it leaves out, and where that is:
- processes, accelerators in numbers and vLLM: a training with veRL, `verl-trgrpo train`;
- going on after an interruption: there, and in `studies/trainer.py`;
- mini-batches split for memory, bfloat16, sharing a prompt's pass among its group: `studies/trainer.py`;
- the KL loss, other optimizers, controls, placements of the weights, several arms and seeds: `studies/`;
- inputs of a shaping other than probabilities: veRL's path computes entropy, success rate and reference for them.

OUT receives metrics-1.jsonl (one line a step, with veRL's names, so that `verl-trgrpo report OUT` draws it) and model, a
Hugging Face directory.
"""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.options import exit_code, parse_options
from verl_trgrpo.demos.puzzles import CHECKPOINT


@dataclass(frozen=True)
class Options:
    """A run.

    Args:
        train: Parquet file with training prompts, veRL's columns.
        out: directory of the run, new or empty.
        test: Parquet file for validation.
        model: directory or hub name; by default the tiny model of this package.
        shaping: weights of the tokens: sigmoid is TR-GRPO's, uniform is GRPO.
        steps: batches to train on.
        prompts: prompts in a batch.
        samples: responses to each prompt: a group.
        mini_prompts: prompts in an update.
        lr: learning rate of AdamW.
        clip: ratios of probabilities are clipped to 1 - this and 1 + this.
        max_tokens: longest response.
        test_every: steps between validations; one follows the last step in any case.
        seed: of data order and sampling.
        device: such as cpu or cuda.
    """

    train: Path
    out: Path
    test: Path | None = None
    model: str = str(CHECKPOINT)
    shaping: str = "sigmoid"
    steps: int = 20
    prompts: int = 16
    samples: int = 8
    mini_prompts: int = 8
    lr: float = 1e-4
    clip: float = 0.2
    max_tokens: int = 176
    test_every: int = 5
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        positive = ("steps", "prompts", "mini_prompts", "lr", "max_tokens", "test_every")
        ranges = dict.fromkeys(positive, "(0, inf)") | {"samples": "[2, inf)", "clip": "(0, 1)"}
        problems = range_errors(vars(self), ranges)
        problems += [f"{path} does not exist" for path in (self.train, self.test) if path and not path.is_file()]
        if self.out.is_dir() and any(self.out.iterdir()):
            problems.append(f"out={self.out} is not empty; choose another directory")
        if not problems and self.prompts % self.mini_prompts:
            problems.append(f"prompts={self.prompts} is not a multiple of mini_prompts={self.mini_prompts}")
        raise_invalid(problems)


def start() -> int:
    options = parse_options(Options, "recipes/minimal/train.py", __doc__ or "")
    from train import train  # this file once more, as a module: with what follows, whose imports take seconds

    return train(options)


if __name__ == "__main__":
    sys.exit(exit_code(start))

import pyarrow.parquet
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from verl_trgrpo.core import ClipRange, TokenStatistic, TokenWeighting, compute_policy_loss, make_shaping
from verl_trgrpo.core.advantages import group_relative_advantages
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import find_reward
from verl_trgrpo.tasks.reward_input import reward_input


class Row(NamedTuple):
    """A prompt as text, and what its reward compares a response with."""

    source: str
    prompt: str
    truth: Any
    extra: dict[str, Any]  # the prompt's text, which says in which form to answer


class Batch(NamedTuple):
    """B prompts with their responses, padded on the left to P and on the right to R."""

    ids: torch.Tensor  # (B, P + R) token ids
    seen: torch.Tensor  # (B, P + R) 1 at tokens
    mask: torch.Tensor  # (B, R) True at sampled tokens, the end token included


def read_rows(path: Path, tokenizer: Any) -> list[Row]:
    """Return all rows of a file, their prompts through the chat template."""
    rows = []
    for row in pyarrow.parquet.read_table(path, columns=["data_source", "prompt", "reward_model"]).to_pylist():
        text = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        extra = reward_input({}, row["prompt"], thinking_opened=text.rstrip().endswith("<think>"))
        find_reward(row["data_source"])  # a row without a reward is an error before the first step
        rows.append(Row(row["data_source"], text, row["reward_model"]["ground_truth"], extra))
    return rows


@torch.no_grad()
def sample(model: Any, tokenizer: Any, rows: list[Row], n: int, max_tokens: int) -> Batch:
    """Draw n responses to each prompt from the policy itself: temperature 1, no top-k, no top-p."""
    texts = [row.prompt for row in rows]
    given = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False)
    given = given.to(model.device)
    ends = model.generation_config.eos_token_id
    config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=max_tokens, num_return_sequences=n,
        eos_token_id=ends, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    ids = model.generate(given.input_ids, attention_mask=given.attention_mask, generation_config=config)
    responses = ids[:, given.input_ids.shape[1] :]
    ended = torch.isin(responses, torch.tensor(ends, device=ids.device)).int()
    mask = ended.cumsum(-1) - ended == 0  # up to the first end token
    seen = torch.cat([given.attention_mask.repeat_interleave(n, 0), mask.long()], -1)
    return Batch(ids, seen, mask)


def log_probs(model: Any, batch: Batch) -> torch.Tensor:
    """Return (B, R) log-probabilities of the responses' tokens."""
    width = batch.mask.shape[1]
    positions = (batch.seen.cumsum(-1) - 1).clamp(min=0)
    # The token at t is predicted at t - 1.
    logits = model(batch.ids, attention_mask=batch.seen, position_ids=positions, logits_to_keep=width + 1).logits[
        :, :-1
    ]
    return torch.log_softmax(logits.float(), -1).gather(-1, batch.ids[:, -width:, None])[..., 0]


def scores(tokenizer: Any, batch: Batch, rows: list[Row]) -> list[dict[str, float]]:
    """Return reward ("score") and correctness ("acc") of each response; rows has one entry for each."""
    responses = batch.ids[:, -batch.mask.shape[1] :]
    said = [ids[keep] for ids, keep in zip(responses, batch.mask, strict=True)]
    texts = tokenizer.batch_decode(said, skip_special_tokens=True)
    return [compute_score(row.source, text, row.truth, row.extra) for row, text in zip(rows, texts, strict=True)]


def update(
    model: Any, optimizer: Any, batch: Batch, old: torch.Tensor, advantages: torch.Tensor, options: Options
) -> dict[str, Any]:
    """Take one optimizer step on one mini-batch, and return its metrics."""
    weighting, clip = TokenWeighting(make_shaping(options.shaping)), ClipRange(options.clip, options.clip)
    log_prob = log_probs(model, batch)
    given = {"old_log_prob": old, "advantages": advantages, "response_mask": batch.mask}
    result = compute_policy_loss(log_prob, **given, weighting=weighting, clip=clip)
    optimizer.zero_grad()
    result.loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
    if math.isfinite(norm):  # or all weights would be lost
        optimizer.step()
    metrics = {f"actor/{name}": value for name, value in result.metrics.items()}
    return metrics | {"actor/grad_norm": norm, "actor/loss": result.loss.item()}


def training_step(model: Any, optimizer: Any, tokenizer: Any, rows: list[Row], options: Options) -> dict[str, float]:
    """Sample, score, compare within groups and update; return the step's metrics."""
    batch = sample(model, tokenizer, rows, options.samples, options.max_tokens)
    found = scores(tokenizer, batch, [row for row in rows for _ in range(options.samples)])
    rewards = torch.tensor([one["score"] for one in found], device=batch.mask.device)
    at_end = torch.zeros(batch.mask.shape, device=batch.mask.device)
    at_end.scatter_(-1, batch.mask.sum(-1, keepdim=True) - 1, rewards[:, None])
    groups = [place // options.samples for place in range(len(found))]
    advantages = group_relative_advantages(at_end, batch.mask, groups)
    with torch.no_grad():
        old = log_probs(model, batch)
    size, updates = options.mini_prompts * options.samples, []
    for start in range(0, len(found), size):
        part = slice(start, start + size)
        mini = Batch(*(column[part] for column in batch))
        updates.append(update(model, optimizer, mini, old[part], advantages[part], options))
    metrics = {}
    for name in updates[0]:  # statistics of tokens are pooled, other figures averaged
        values = [one[name] for one in updates]
        pooled = isinstance(values[0], TokenStatistic)
        metrics[name] = float(TokenStatistic.merge(values)) if pooled else sum(values) / len(values)
    metrics["critic/score/mean"] = rewards.mean().item()
    return metrics | {"response_length/mean": batch.mask.sum(-1).float().mean().item()}


def accuracy(model: Any, tokenizer: Any, rows: list[Row], options: Options) -> dict[str, float]:
    """Return the mean correctness of one sampled response to each prompt, by data source."""
    found: dict[str, list[float]] = {}
    for start in range(0, len(rows), 64):
        part = rows[start : start + 64]
        batch = sample(model, tokenizer, part, 1, options.max_tokens)
        for row, one in zip(part, scores(tokenizer, batch, part), strict=True):
            found.setdefault(row.source, []).append(one["acc"])
    return {f"val-core/{source}/acc/mean@1": sum(values) / len(values) for source, values in found.items()}


def train(options: Options) -> int:
    """Train and return the exit code."""
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model: Any = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model.to(options.device).eval()  # without dropout, or the updates would see another policy than the sampler
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    rows = read_rows(options.train, tokenizer)
    tests = read_rows(options.test, tokenizer) if options.test else []
    if len(rows) < options.prompts:
        raise ValueError(f"{options.train} has {len(rows)} rows, but a batch takes prompts={options.prompts}")
    torch.manual_seed(options.seed)
    order = random.Random(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "metrics-1.jsonl").open("w") as log:
        for step in tqdm(range(1, options.steps + 1), desc=options.shaping, file=sys.stderr):
            batch = order.sample(rows, options.prompts)
            metrics = training_step(model, optimizer, tokenizer, batch, options)
            if tests and (step % options.test_every == 0 or step == options.steps):
                metrics |= accuracy(model, tokenizer, tests, options)
            log.write(json.dumps({"step": step, "data": metrics}) + "\n")
            log.flush()
    model.save_pretrained(options.out / "model")
    tokenizer.save_pretrained(options.out / "model")
    return 0
