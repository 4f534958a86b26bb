"""Measure what token weights change in one update of Adam, while a model is trained: its direction, its length, and which
tokens become likelier.

At the first update of a step, the update of a second arm is computed from the same model and batch: from the optimizer state of
the arm that trains, and from a state of its own, which sees the second arm's gradients from the first step on. The first shares
the past, the second is Adam's answer to these weights. Then each update is applied in turn, and the probabilities of the sampled
tokens are compared with those before it: of the half of the batch that the update is made from, and of the other half.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from train import (
    Batch,
    Options,
    Row,
    batch_rows,
    compute_policy_loss,
    end_tokens,
    group_relative_advantages,
    half_precision,
    load_model,
    read_rows,
    response_log_probs,
    sample,
    scores,
)
from transformers import AutoTokenizer

from verl_trgrpo.common.progress import Progress, interruptible
from verl_trgrpo.core.metrics import LOW_PROB
from verl_trgrpo.runs.compare.runner import Inputs, make_inputs
from verl_trgrpo.runs.compare.study import Study, read_study
from verl_trgrpo.runs.run_directory import provenance

HERE = Path(__file__).parent
DESCRIPTION = f"""{__doc__}
examples, from a checkout:
  python recipes/minimal/update_effects.py --out runs/update_effects
  python recipes/minimal/update_effects.py --out runs/update_effects --runs tiny_puzzles --seeds 0 1

OUT receives a file for each run, NAME-ARM-SEED.jsonl, with one line for each measured update; finished runs are not repeated.
Data and models are in OUT/NAME. To make the table: cat OUT/*.jsonl > docs/results/update_effects.jsonl, then make results.

Exit code: 0 fine, 2 wrong input, 130 interrupted."""

Tensors = Sequence[torch.Tensor]


class Adam:
    """Adam without weight decay, as torch computes it, which returns updates instead of applying them."""

    def __init__(self, parameters: Tensors, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def update(self, gradients: Tensors, keep: bool = True) -> list[torch.Tensor]:
        """Return the update of each parameter; without `keep` the state stays as it was."""
        count, found = self.count + 1, []
        for gradient, state in zip(gradients, self.moments, strict=True):
            mean, square = state if keep else (part.clone() for part in state)
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            scale = (square / (1 - 0.999**count)).sqrt_().add_(1e-8)
            found.append(scale.reciprocal_().mul_(mean).mul_(-self.rate / (1 - 0.9**count)))
        self.count = count if keep else self.count
        return found


class Half(NamedTuple):
    """Responses of a mini-batch, (B, R), and their tokens' advantages."""

    batch: Batch
    advantages: torch.Tensor

    @property
    def trained(self) -> torch.Tensor:
        """Return which responses have an advantage, (B,)."""
        return (self.advantages != 0).any(-1)


def draw_halves(model: Any, rows: list[Row], tokenizer: Any, options: Options, step: int) -> list[Half]:
    """Sample and score the responses of a step as the trainer does, and return its mini-batches."""
    with half_precision(options):
        noise = f"train/{options.seed}/{step}"
        batch = sample(model, [row.prompt for row in rows], options.samples, end_tokens(model), options, noise)
    found = scores(batch, [row for row in rows for _ in range(options.samples)], tokenizer)
    last = batch.mask.sum(-1, keepdim=True) - 1
    at_end = torch.zeros_like(batch.log_probs).scatter_(-1, last, torch.tensor([[one["score"]] for one in found]))
    groups = [place // options.samples for place in range(len(found))]
    advantages = group_relative_advantages(at_end, batch.mask, groups)
    size = options.mini_prompts * options.samples
    return [
        Half(Batch(*(part[begin : begin + size] for part in batch)), advantages[begin : begin + size])
        for begin in range(0, len(found), size)
    ]


def arm_gradients(model: Any, half: Half, arms: Sequence[Options]) -> list[list[torch.Tensor]]:
    """Return each arm's gradients by all parameters, before clipping."""
    parameters, batch = list(model.parameters()), half.batch
    with half_precision(arms[0]):
        log_prob = response_log_probs(model, batch, arms[0], half.trained | ~half.trained.any())
    given = {"old_log_prob": batch.log_probs, "advantages": half.advantages, "response_mask": batch.mask}
    found = []
    for arm in arms:
        weighting, clip, _ = arm.objective()
        loss = compute_policy_loss(log_prob, **given, weighting=weighting, clip=clip).loss
        found.append([*torch.autograd.grad(loss, parameters, retain_graph=arm is not arms[-1])])
    return found


def clipped(gradients: Tensors, largest: float) -> Tensors:
    """Scale gradients in place to a norm of at most `largest`."""
    factor = min(1.0, largest / (length(gradients) + 1e-6))
    for gradient in gradients:
        gradient.mul_(factor)
    return gradients


def inner(one: Tensors, other: Tensors) -> float:
    """Return the inner product of vectors given in parts."""
    return sum((a.double() * b).sum().item() for a, b in zip(one, other, strict=True))


def length(parts: Tensors) -> float:
    """Return the norm of a vector given in parts."""
    return inner(parts, parts) ** 0.5


def relation(weighted: Tensors, plain: Tensors) -> dict[str, float]:
    """Return the cosine of two vectors, and the length of the first over that of the second."""
    lengths = length(weighted), length(plain)
    return {"cosine": inner(weighted, plain) / (lengths[0] * lengths[1]), "length": lengths[0] / lengths[1]}


@torch.no_grad()
def log_probs_of(model: Any, halves: Sequence[Half], options: Options) -> list[torch.Tensor]:
    """Return log-probabilities of responses with an advantage, in float32: bfloat16 would round small updates away."""
    return [response_log_probs(model, half.batch, options, half.trained)[half.trained] for half in halves]


def probability_changes(
    model: Any, halves: Sequence[Half], updates: Mapping[str, Tensors], options: Options
) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean changes of probabilities and log-probabilities after each update, by half and kind of token.

    The parameters are as before afterwards. Tokens of responses without an advantage do not count.
    """
    parameters = list(model.parameters())
    kept = [parameter.detach().clone() for parameter in parameters]
    before = log_probs_of(model, halves, options)
    after = {}
    for name, update in updates.items():
        with torch.no_grad():
            for parameter, value, change in zip(parameters, kept, update, strict=True):
                parameter.copy_(value + change)
        after[name] = log_probs_of(model, halves, options)
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    found = {}
    for place, (label, half) in enumerate(zip(("own", "other"), halves, strict=True)):
        mask, advantages = half.batch.mask[half.trained], half.advantages[half.trained]
        rare = before[place].exp() < LOW_PROB
        kinds = {
            "rare right": rare & (advantages > 0), "rare wrong": rare & (advantages < 0),
            "likely right": ~rare & (advantages > 0), "likely wrong": ~rare & (advantages < 0),
        }  # fmt: skip
        for kind, chosen in kinds.items():
            chosen &= mask
            found[f"{label} {kind}"] = {"tokens": int(chosen.sum())} | {
                name: {
                    "p": (log_probs[place].exp() - before[place].exp())[chosen].mean().item(),
                    "log_p": (log_probs[place] - before[place])[chosen].mean().item(),
                }
                for name, log_probs in after.items()
                if chosen.any()
            }
    return found


def measured_training(
    model: Any, tokenizer: Any, arms: Sequence[Options], weighted: int, every: int, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Train the first of two arms, and yield the figures of the first update of every `every`-th step.

    Relations are of the arm with weights, at the place `weighted`, to the other.
    """
    options, parameters = arms[0], list(model.parameters())
    rows = read_rows(options.train, tokenizer)
    states = [Adam(parameters, arm.lr) for arm in arms]
    steps = range(1, options.steps + 1)

    def related(first: Tensors, second: Tensors) -> dict[str, float]:
        return relation(second, first) if weighted else relation(first, second)

    for step in progress(steps, len(steps), f"{options.arm}, seed {options.seed}"):
        halves = draw_halves(model, batch_rows(rows, options.prompts, options.seed, step), tokenizer, options, step)
        for number, half in enumerate(halves):
            # Without any advantage, gradients are 0, and Adam goes on with what it remembers.
            gradients = arm_gradients(model, half, arms)
            measured = number == 0 and (step - 1) % every == 0 and bool(half.trained.any())
            relations = {"gradient": related(*gradients)} if measured else {}
            gradients = [clipped(one, options.grad_clip) for one in gradients]
            same = states[0].update(gradients[1], keep=False) if measured else []
            own, others_own = (state.update(one) for state, one in zip(states, gradients, strict=True))
            if measured:
                relations |= {"same state": related(own, same), "own state": related(own, others_own)}
                other = arms[1].arm
                updates = {options.arm: own, f"{other}, same state": same, f"{other}, own state": others_own}
                right = (torch.cat([each.advantages for each in halves])[:, 0] > 0).float().mean().item()
                changes = probability_changes(model, halves[:2], updates, options)
                yield {"step": step, "right": right, "relations": relations, "changes": changes}
            with torch.no_grad():
                for parameter, change in zip(parameters, own, strict=True):
                    parameter += change


def run_options(study: Study, inputs: Inputs, arm: str, seed: int) -> Options:
    """Return the trainer's options of one arm of a study."""
    files = {"train": str(inputs.train), "model": inputs.model, "out": "unused", "seed": seed}
    return Options(**files, **study.settings, **study.arms[arm])


def rounded(figures: Any) -> Any:
    """Return figures to five digits."""
    if isinstance(figures, dict):
        return {name: rounded(value) for name, value in figures.items()}
    return float(f"{figures:.5g}") if isinstance(figures, float) else figures


def run_all(
    name: str, about: Mapping[str, Any], arms: Sequence[str], seeds: Sequence[int], out: Path, progress: Progress
) -> None:
    """Measure the trainings of both arms with each seed that have no file yet."""
    study = read_study((HERE / about["study"]).resolve(), about["overrides"], arms)
    inputs, origin = make_inputs(study, out / name), provenance(HERE)
    for seed, arm in product(seeds, arms):
        path = out / f"{name}-{arm}-{seed}.jsonl"
        if path.is_file():
            continue
        [other] = {*arms} - {arm}
        both = [run_options(study, inputs, one, seed) for one in (arm, other)]
        torch.set_num_threads(both[0].threads)
        tokenizer, model = AutoTokenizer.from_pretrained(inputs.model), load_model(inputs.model, both[0].device)
        begun, line = path.with_suffix(".part"), {"run": name, "arm": arm, "seed": seed}
        with begun.open("w") as log:
            weighted = int(arm != arms[0])
            for figures in measured_training(model, tokenizer, both, weighted, about["every"], progress):
                log.write(json.dumps(line | rounded(figures) | origin) + "\n")
                log.flush()
        begun.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for records, data and models")
    parser.add_argument("--plan", type=Path, default=HERE / "update_effects.yaml", help="default: %(default)s")
    parser.add_argument("--runs", nargs="*", help="names of the plan's runs; all if left out")
    parser.add_argument("--seeds", type=int, nargs="*", help="instead of the plan's")
    options = parser.parse_args()
    plan = yaml.safe_load(options.plan.read_text())
    names = plan["runs"] if options.runs is None else options.runs
    if unknown := {*names} - {*plan["runs"]}:
        parser.error(f"--runs {' '.join(sorted(unknown))}: unknown; choose from {', '.join(plan['runs'])}")
    options.out.mkdir(parents=True, exist_ok=True)
    with interruptible() as progress:
        for name in names:
            about = plan["runs"][name]
            seeds = about["seeds"] if options.seeds is None else options.seeds
            run_all(name, about, plan["arms"], seeds, options.out, progress)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
