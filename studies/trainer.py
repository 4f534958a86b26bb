"""The trainer of studies: one process, transformers in place of vLLM, and an arm for each question; no veRL, no Ray.

`recipes/minimal/train.py` is the method alone, for reading. Studies need more: controls, other optimizers, several responses in a
validation, runs that go on exactly, and sampling that computes equal beginnings once. What differs from a veRL run: float32
unless told otherwise, log pi_old comes from the sampler instead of a second pass, and `normalize=token_mean` takes the mean over
the mini-batch, since a mini-batch is never split before its loss.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import torch
import tyro
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script it has this directory alone on its path

from studies.decisions import RULES, decision_mask
from studies.passes import half_precision, trained_log_probs
from studies.rollouts import Batch, end_tokens, sample
from verl_trgrpo.common.files import write_json
from verl_trgrpo.common.findings import range_errors
from verl_trgrpo.core import (
    ClipRange,
    Tokens,
    TokenStatistic,
    TokenWeighting,
    aggregate_loss,
    compute_policy_loss,
    group_metrics,
    group_relative_advantages,
    make_shaping,
    token_weights,
    weighted_kl,
)
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import find_reward
from verl_trgrpo.tasks.reward_input import reward_input
from verl_trgrpo.verl_plugin.cpu.attention import GROUPED

# What an arm's weights are; what is left out is GRPO's.
ARMS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "tr_grpo": {"shaping": "sigmoid"},
    "tr_grpo_published": {"shaping": "sigmoid", "placement": "inside", "kl": "literal"},
    "tr_grpo_token_mean": {"shaping": "sigmoid", "normalize": "token_mean"},
    "tr_grpo_reverse": {"shaping": "sigmoid", "reverse": True},
    "advantage_reweighting": {"shaping": "linear"},
    "dapo_clip": {},
    # Controls: GRPO with the size of TR-GRPO's weights, by which its loss or its learning rate is multiplied.
    "grpo_scaled_loss": {},
    "grpo_scaled_lr": {},
    # Rules that know which tokens decide (studies/decisions.py).
    "oracle": {},
    "without_rare_wording": {},
    "without_rare_decisions": {},
}
OPTIMIZERS = ("adamw", "sgd")
DESCRIPTION = """Train with TR-GRPO or an arm of its comparison, in plain torch and transformers.

examples, from a checkout:
  python -c "from pathlib import Path; from verl_trgrpo.demos.puzzles import build_dataset; build_dataset(Path('data'))"
  python studies/trainer.py --train data/train.parquet --test data/test.parquet --out runs/trainer
  python studies/trainer.py --train data/train.parquet --out runs/grpo --arm grpo --epochs 4 --seed 1
  python studies/trainer.py --train kk.parquet --out runs/qwen --model Qwen/Qwen2.5-0.5B-Instruct --device cuda --lr 1e-6

arms: grpo, tr_grpo, tr_grpo_published (weights inside the clip and, with --kl-coef, in the KL, as typeset),
  tr_grpo_token_mean (weights divided by their mean), tr_grpo_reverse (weights of 1 - p),
  advantage_reweighting (0.2 p + 0.8, p of the current policy), dapo_clip (upper clip 0.28), grpo_scaled_loss and
  grpo_scaled_lr (GRPO whose loss or learning rate is multiplied, at each update, by the mean weight that TR-GRPO would have
  given it); oracle, without_rare_wording, without_rare_decisions (GRPO with a gradient at the word behind "Answer:" alone, at all
  tokens but rare ones outside it, or but rare ones in it).

OUT receives metrics-1.jsonl (one line a step, with veRL's names), the responses of validations (validation/N.jsonl) and the
checkpoint global_step_N, a Hugging Face directory.

Exit code: 0 fine, 2 wrong input, 130 interrupted; --resume goes on from the latest checkpoint, exactly as if never stopped."""


@dataclass(frozen=True)
class Options:
    """Options of a run; every field is one of the command line. Raises ValueError with all problems."""

    train: str = ""  # parquet file with training prompts, veRL's columns (required)
    out: str = ""  # directory of the run (required)
    test: str = ""  # parquet file for validation
    test_samples: int = 1  # responses sampled to each prompt in a validation, over which accuracy is a mean
    train_probe: int = 0  # prompts trained on that the last validation samples, too, for the generalisation gap
    model: str = str(CHECKPOINT)  # model directory or hub name; by default the tiny model of this package
    arm: str = "tr_grpo"  # algorithm, see below
    steps: int = 20  # batches to train on
    prompts: int = 16  # prompts in a batch
    samples: int = 8  # responses to each prompt: a group
    mini_prompts: int = 8  # prompts in an update
    epochs: int = 1  # passes over a batch; more makes the later updates off-policy
    optimizer: str = "adamw"  # adamw, or sgd with momentum 0.9, which does not cancel a common factor of the gradients
    lr: float = 1e-4  # learning rate
    grad_clip: float = 1.0  # largest norm of a gradient
    clip_high: float = -1.0  # ratios are clipped above 1 + this; -1: 0.2, dapo_clip 0.28
    kl_coef: float = 0.0  # factor of the KL divergence from the initial model; 0: no reference model
    temperature: float = 1.0  # of sampling, and of the probabilities trained
    max_tokens: int = 176  # longest response
    rows: int = 32  # responses in one forward pass of an update, sorted by length
    test_every: int = 5  # steps between validations, one after the last in any case; 0: none
    skip_first_test: bool = False  # no validation before the first step, where all arms of a seed are equal
    save_every: int = 10  # steps between checkpoints, one after the last in any case; 0: that alone, not to go on from
    seed: int = 0  # of data order and sampling
    device: str = "cpu"  # such as cuda or cuda:1
    bf16: bool = False  # compute in bfloat16; weights and optimizer stay in float32
    threads: int = 1  # CPU threads
    resume: bool = False  # go on from the latest checkpoint in OUT, if there is one

    def __post_init__(self) -> None:
        problems = range_errors(vars(self), RANGES)
        if self.clip_high < 0 and self.clip_high != -1:
            problems.append(f"clip_high={self.clip_high!r} is negative; -1 is the arm's own")
        if not self.train or not self.out:
            problems.append("train and out are required")
        problems += [f"{path} does not exist" for path in (self.train, self.test) if path and not Path(path).is_file()]
        if self.optimizer not in OPTIMIZERS:
            problems.append(f"optimizer={self.optimizer!r} is unknown; choose one of {', '.join(OPTIMIZERS)}")
        if self.arm not in ARMS:
            problems.append(f"arm={self.arm!r} is unknown; choose one of {', '.join(ARMS)}")
        if self.samples == 1:
            problems.append("samples=1 leaves nothing to compare a response with; use at least 2")
        if self.mini_prompts > 0 and self.prompts % self.mini_prompts:
            problems.append(f"prompts={self.prompts} is not a multiple of mini_prompts={self.mini_prompts}")
        if problems:
            raise ValueError("; ".join(problems))

    def objective(self) -> tuple[TokenWeighting, ClipRange, str]:
        """Token weights, clip range, and what TR-GRPO's mean weight multiplies: "", "loss" or "lr"."""
        arm: dict[str, Any] = {"shaping": "uniform", "reverse": False} | ARMS[self.arm]
        high = self.clip_high if self.clip_high >= 0 else 0.28 if self.arm == "dapo_clip" else 0.2
        shaping = make_shaping(arm.pop("shaping"), arm.pop("reverse"))
        scaled = self.arm.rpartition("grpo_scaled_")[2] if self.arm.startswith("grpo_scaled_") else ""
        return TokenWeighting(shaping, **arm), ClipRange(0.2, high), scaled


POSITIVE = ("steps", "prompts", "samples", "mini_prompts", "epochs", "lr", "grad_clip", "temperature", "max_tokens", "rows",
            "threads", "test_samples")  # fmt: skip
NOT_NEGATIVE = ("kl_coef", "test_every", "save_every", "train_probe")
RANGES = dict.fromkeys(POSITIVE, "(0, inf]") | dict.fromkeys(NOT_NEGATIVE, "[0, inf]")


class Row(NamedTuple):
    """A prompt as token ids, and what its reward compares a response with."""

    source: str
    prompt: list[int]
    truth: Any
    extra: dict[str, Any]  # the prompt's text, which says in which form to answer


def read_rows(path: str, tokenizer: Any) -> list[Row]:
    """Return all rows of a parquet file, their prompts through the chat template."""
    rows = []
    for row in pyarrow.parquet.read_table(path, columns=["data_source", "prompt", "reward_model"]).to_pylist():
        text = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        extra = reward_input({}, row["prompt"], thinking_opened=text.rstrip().endswith("<think>"))
        rows.append(Row(row["data_source"], ids, row["reward_model"]["ground_truth"], extra))
    return rows


def batch_rows(rows: list[Row], size: int, seed: int, step: int) -> list[Row]:
    """Return the prompts of a step, from 1; every epoch has its own order, a function of the seed."""
    epoch, place = divmod(step - 1, len(rows) // size)
    order = random.Random(f"{seed}/{epoch}").sample(rows, len(rows))
    return order[place * size : (place + 1) * size]


def probe_rows(rows: list[Row], options: Options) -> list[Row]:
    """Prompts of the batches that the run trains on, for the generalisation gap."""
    if not options.train_probe:
        return []
    batches = [batch_rows(rows, options.prompts, options.seed, step) for step in range(1, options.steps + 1)]
    seen = list({id(row): row for batch in batches for row in batch}.values())
    return random.Random(f"probe/{options.seed}").sample(seen, min(options.train_probe, len(seen)))


def draw(model: Any, prompts: list[list[int]], n: int, options: Options, seed: str) -> Batch:
    """Draw n responses to each prompt with the settings of the run."""
    sizes: dict[str, Any] = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    return sample(model, prompts, n, ends=end_tokens(model), seed=seed, **sizes)


def scores(batch: Batch, rows: list[Row], tokenizer: Any) -> list[dict[str, float]]:
    """Reward ("score") and correctness ("acc") of each response; rows has one entry for each."""
    texts = tokenizer.batch_decode(
        [ids[keep] for ids, keep in zip(batch.responses, batch.mask, strict=True)], skip_special_tokens=True
    )
    return [compute_score(row.source, text, row.truth, row.extra) for row, text in zip(rows, texts, strict=True)]


def update(
    model: Any,
    optimizer: Any,
    batch: Batch,
    advantages: torch.Tensor,
    decides: torch.Tensor,
    ref: Any,
    options: Options,
) -> dict[str, Any]:
    """Take one optimizer step on one mini-batch; return its metrics."""
    weighting, clip, scaled = options.objective()
    # Where a group's rewards are all equal its advantages are 0, and only a KL loss gives its responses a gradient.
    trained = (advantages != 0).any(-1)
    trained |= (ref is not None) or not trained.any()
    with half_precision(options.device, options.bf16):
        log_prob = trained_log_probs(model, batch, options, trained)
    if rule := RULES.get(options.arm):  # as weights of 0 and 1: the loss stays a mean over all tokens
        advantages = advantages * rule(log_prob.detach().exp(), decides)
    given: dict[str, Any] = {"old_log_prob": batch.log_probs, "advantages": advantages, "response_mask": batch.mask}
    result = compute_policy_loss(log_prob, **given, weighting=weighting, clip=clip)
    loss, metrics = result.loss, {f"actor/{name}": value for name, value in result.metrics.items()}
    metrics["actor/pg_loss"] = loss.item()
    if ref is not None:
        with torch.no_grad(), half_precision(options.device, options.bf16):
            ref_log_prob = trained_log_probs(ref, batch, options, trained)
        plain = weighting.kl == "plain"
        weights = torch.ones_like(log_prob) if plain else token_weights(Tokens.of_batch(log_prob, **given), weighting)
        kind = "scaled" if plain else weighting.kl
        penalty = weighted_kl(log_prob, ref_log_prob=ref_log_prob, weights=weights, response_mask=batch.mask, kind=kind)
        kl_loss = aggregate_loss(penalty, response_mask=batch.mask)
        loss, metrics["actor/kl_loss"] = loss + options.kl_coef * kl_loss, kl_loss.item()
    mean_weight = make_shaping()(log_prob.detach()[batch.mask].exp()).mean().item() if scaled else 1.0
    optimizer.param_groups[0]["lr"] = options.lr * (mean_weight if scaled == "lr" else 1.0)
    optimizer.zero_grad()
    (loss * (mean_weight if scaled == "loss" else 1.0)).backward()
    metrics["actor/grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), options.grad_clip).item()
    if math.isfinite(metrics["actor/grad_norm"]):  # or all weights would be lost; veRL skips such an update as well
        optimizer.step()
    return metrics | {"actor/loss": loss.item(), "actor/lr": optimizer.param_groups[0]["lr"]}


def mean(values: list[float]) -> float:
    """Arithmetic mean of at least one value."""
    return sum(values) / len(values)


def pooled(updates: list[dict[str, Any]]) -> dict[str, float]:
    """Metrics of a step from those of its updates: sums are pooled, plain figures averaged."""
    columns = {name: [metrics[name] for metrics in updates] for name in updates[0]}
    return {
        name: float(TokenStatistic.merge(column)) if isinstance(column[0], TokenStatistic) else mean(column)
        for name, column in columns.items()
    }


def training_step(
    model: Any, optimizer: Any, ref: Any, rows: list[Row], tokenizer: Any, options: Options, step: int
) -> dict:
    """Sample, score, compare within groups, update; returns the step's metrics under veRL's names."""
    started = time.perf_counter()
    # Seeds are made from the step: there is no random state to save, and arms with one seed draw with the same noise.
    noise = f"train/{options.seed}/{step}"
    with half_precision(options.device, options.bf16):
        batch = draw(model, [row.prompt for row in rows], options.samples, options, noise)
    sampled = time.perf_counter()
    rows = [row for row in rows for _ in range(options.samples)]
    found = scores(batch, rows, tokenizer)
    rewards = [score["score"] for score in found]
    lengths = batch.mask.sum(-1)
    last = batch.responses[torch.arange(len(rows)), lengths - 1]
    cut_off = torch.isin(last, torch.tensor(end_tokens(model), device=last.device), invert=True)
    at_end = torch.zeros_like(batch.log_probs)
    at_end[torch.arange(len(rows)), lengths - 1] = torch.tensor(rewards, device=at_end.device)
    groups = [i // options.samples for i in range(len(rows))]
    advantages = group_relative_advantages(at_end, batch.mask, groups)
    decides = decision_mask(batch.responses, batch.mask, tokenizer) if options.arm in RULES else batch.mask
    size = options.mini_prompts * options.samples
    updates = []
    for start in list(range(0, len(rows), size)) * options.epochs:
        chosen = slice(start, start + size)
        part = Batch(*(column[chosen] for column in batch))
        updates.append(update(model, optimizer, part, advantages[chosen], decides[chosen], ref, options))
    return pooled(updates) | {
        **group_metrics(groups, rewards, found), "critic/cut_off_frac": cut_off.float().mean().item(),
        "critic/score/mean": mean(rewards), "critic/acc/mean": mean([score["acc"] for score in found]),
        "actor/entropy": batch.entropies[batch.mask].mean().item(),
        "response_length/mean": lengths.float().mean().item(), "response_length/max": lengths.max().item(),
        "response_length/clip_ratio": (lengths == options.max_tokens).float().mean().item(),
        "timing_s/gen": sampled - started, "timing_s/step": time.perf_counter() - started,
        "training/global_step": step,
    }  # fmt: skip


def validate(model: Any, rows: list[Row], tokenizer: Any, options: Options) -> tuple[dict[str, float], list[dict]]:
    """Accuracy of sampled responses to each prompt, by data source, and the responses as veRL dumps them.

    The noise is the same at every validation, and in all arms of a seed.
    """
    found: dict[str, list[float]] = {}
    dump = []
    rows, n = sorted(rows, key=lambda row: len(row.prompt)), options.test_samples
    size = max(256 // n, 1)
    for start in range(0, len(rows), size):
        prompts = [row.prompt for row in rows[start : start + size]]
        part = [row for row in rows[start : start + size] for _ in range(n)]
        with half_precision(options.device, options.bf16):
            batch = draw(model, prompts, n, options, f"test/{options.seed}/{start}")
        for row, score, ids, keep in zip(
            part, scores(batch, part, tokenizer), batch.responses, batch.mask, strict=True
        ):
            found.setdefault(row.source, []).append(score["acc"])
            texts = {"input": tokenizer.decode(row.prompt), "output": tokenizer.decode(ids[keep]), "gts": row.truth}
            dump.append(texts | {"score": score["score"], "acc": score["acc"], "data_source": row.source})
    return {f"{source}/acc/mean@{n}": mean(values) for source, values in found.items()}, dump


def validation_step(
    model: Any, tests: list[Row], probe: list[Row], tokenizer: Any, options: Options, step: int
) -> dict[str, float]:
    """Validate on test prompts and, if there are any, on train prompts; keep the responses to the former."""
    found, dump = validate(model, tests, tokenizer, options)
    path = Path(options.out, "validation", f"{step}.jsonl")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({**row, "step": step}) + "\n" for row in dump))
    metrics = {f"val-core/{name}": value for name, value in found.items()}
    if probe:
        metrics |= {f"val-train/{name}": value for name, value in validate(model, probe, tokenizer, options)[0].items()}
    return metrics


def save(out: Path, step: int, model: Any, optimizer: Any, tokenizer: Any) -> None:
    """Write OUT/global_step_N, which appears as a whole, and delete older ones."""
    building = out / "building"
    shutil.rmtree(building, ignore_errors=True)
    model.save_pretrained(building)
    tokenizer.save_pretrained(building)
    if optimizer is not None:
        torch.save(optimizer.state_dict(), building / "optimizer.pt")
    older = checkpoints(out)
    building.rename(out / f"global_step_{step}")
    for number in older:
        shutil.rmtree(out / f"global_step_{number}")


def checkpoints(out: Path) -> list[int]:
    """Steps of the checkpoints in OUT, ascending."""
    numbers = (path.name.removeprefix("global_step_") for path in out.glob("global_step_*"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def load_model(path: str | Path, device: str) -> Any:
    """Load the model of a Hugging Face directory, in float32 on a device."""
    attention = GROUPED if device == "cpu" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=attention)
    try:
        model.to(torch.device(device))  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device} cannot be used: {str(error).splitlines()[0]}") from error
    return model.eval()  # without dropout, or the updates would see another policy than the sampler


def kept_options(options: Options) -> dict[str, Any]:
    """Return the options that a resumed run must have in common with its beginning."""
    free = {"resume", "steps", "test_every", "save_every", "device", "threads", "out"}
    return {name: value for name, value in dataclasses.asdict(options).items() if name not in free}


def start_run(options: Options) -> tuple[Path, int]:
    """Check that OUT is free or can be resumed; returns the directory to load from and its step."""
    out, wanted = Path(options.out), kept_options(options)
    if (record := out / "options.json").exists():
        if not options.resume:
            raise ValueError(f"{out} has a run already; choose another directory, or go on with --resume")
        changed = sorted(name for name, value in json.loads(record.read_text()).items() if wanted.get(name) != value)
        if changed:
            raise ValueError(f"the run in {out} was started with other values of {', '.join(changed)}; see {record}")
    elif checkpoints(out):
        raise ValueError(f"{out} has checkpoints of another program; choose another directory")
    step = max(checkpoints(out), default=0)
    if 0 < step < options.steps and not (out / f"global_step_{step}" / "optimizer.pt").is_file():
        raise ValueError(f"the run in {out} was ended at step {step} with save_every=0; choose another directory")
    return (out / f"global_step_{step}" if step else Path(options.model)), step


def train(options: Options) -> None:
    """Run or resume a training; DESCRIPTION says what it writes."""
    torch.set_num_threads(options.threads)
    source, start = start_run(options)
    out = Path(options.out)
    tokenizer, model = AutoTokenizer.from_pretrained(source), load_model(source, options.device)
    ref = load_model(options.model, options.device).requires_grad_(False) if options.kl_coef else None
    optimizer: torch.optim.Optimizer
    if options.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0, fused=True)
    if start and (source / "optimizer.pt").is_file():
        optimizer.load_state_dict(torch.load(source / "optimizer.pt", options.device, weights_only=True))
    rows = read_rows(options.train, tokenizer)
    if len(rows) < options.prompts:
        raise ValueError(f"{options.train} has {len(rows)} rows, but a batch takes prompts={options.prompts}")
    tests = read_rows(options.test, tokenizer) if options.test and options.test_every else []
    probe = probe_rows(rows, options)
    end_tokens(model)
    for name in {row.source for row in [*rows, *tests]}:
        find_reward(name)
    # Not before: a wrong option leaves nothing behind.
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "options.json", kept_options(options))
    attempt, tests_first = len(list(out.glob("metrics-*.jsonl"))) + 1, not options.skip_first_test
    with (out / f"metrics-{attempt}.jsonl").open("w") as log:
        for step in tqdm(range(start and start + 1, options.steps + 1), desc=options.arm, file=sys.stderr):
            metrics = {}
            if step:
                part = batch_rows(rows, options.prompts, options.seed, step)
                metrics = training_step(model, optimizer, ref, part, tokenizer, options, step)
            if tests and (step == options.steps or (step % options.test_every == 0 and (step or tests_first))):
                metrics |= validation_step(
                    model, tests, probe if step == options.steps else [], tokenizer, options, step
                )
            log.write(json.dumps({"step": step, "data": metrics}) + "\n")
            log.flush()
            if step and (step == options.steps or (options.save_every and step % options.save_every == 0)):
                save(out, step, model, optimizer if options.save_every else None, tokenizer)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code that DESCRIPTION describes."""
    try:
        train(tyro.cli(Options, description=DESCRIPTION, args=argv, config=(tyro.conf.FlagCreatePairsOff,)))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; add --resume to go on from the latest checkpoint\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
