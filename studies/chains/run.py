"""Map where probability shaping gains, is neutral and costs, on chains of tokens (chains.py); part of docs/results.md.

For every chain of study.yaml and every arm: choose the learning rate with seeds of its own, train all other seeds with it, and
compute their exact accuracy on held-out prompts. Measure on the start policies alone the efficiencies
that studies/gradients measures.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

from studies.chains.chains import (
    Chain,
    Parameters,
    Training,
    arm_weighting,
    context_inputs,
    exact_accuracy,
    sample_batch,
    seeds_loss,
    split_prompts,
    start_policies,
    train_policies,
)
from studies.gradients.directions import directions, inner_products
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.core import make_shaping
from verl_trgrpo.core.metrics import LOW_PROB
from verl_trgrpo.runs.run_directory import provenance

HERE = Path(__file__).parent
DESCRIPTION = f"""{__doc__}
examples, from a checkout:
  python -m studies.chains.run --out runs/chains             all of it: some thirty minutes of one core
  python -m studies.chains.run --out runs/try --seeds 4      a first look, in a few minutes
  OMP_NUM_THREADS=1 nice python -m studies.chains.run --out runs/chains --parts 0 1

OUT receives records.jsonl, one line for each arm of each chain (learning rates tried and chosen, accuracy of every seed) or
measurement, with commit, machine and versions; and the start policies, which can be deleted. The same command goes on after the
last line. To make the tables: copy records.jsonl to studies/chains/records/chains.jsonl, then make results.

Exit code: 0 fine, 2 wrong input, 130 interrupted."""
# Seeds of generators: start policies, prompts and sampling of the seeds that tune and of those that count.
TUNING, COUNTING = 1000, 2000


# Settings of the study that its lines have in common.
SETTINGS = ("seeds", "tuning_seeds", "measured_batches", "measured_seeds")


class Work(NamedTuple):
    """One line of the records: an arm, or "measurement", of one chain, and the learning rates to try."""

    optimizer: str
    passes: int
    chain: Chain
    arm: str
    rates: tuple[float, ...]

    @property
    def key(self) -> dict[str, Any]:
        """Return what identifies the line."""
        return {"optimizer": self.optimizer, "passes": self.passes, "fillers": self.chain.fillers, "right": self.chain.right,
                "arm": self.arm}  # fmt: skip


def work_of(study: dict[str, Any], parts: Sequence[int]) -> Iterator[Work]:
    """Yield all lines of some parts of a study in their order.

    The chains of the first part are measured, too, and those of a part with `grpo_scaled_lr`, which needs their mean weight.
    """
    for number in parts:
        part = study["parts"][number]
        for right, fillers in itertools.product(part["right"], part["fillers"]):
            measured = number == 0 or "grpo_scaled_lr" in part["arms"]
            arms = (["measurement"] if measured else []) + part["arms"]
            chain = Chain(fillers, right)
            yield from (Work(part["optimizer"], part["passes"], chain, arm, tuple(part["rates"])) for arm in arms)


def best_rate(rates: Sequence[float], accuracies: Sequence[float]) -> float:
    """Return the vertex of the parabola through the highest accuracy and its neighbours, by the logarithm of the rate."""
    best = max(range(len(rates)), key=accuracies.__getitem__)
    if best in (0, len(rates) - 1):
        return rates[best]
    (x0, y0), (x1, y1), (x2, y2) = ((math.log(rates[i]), accuracies[i]) for i in (best - 1, best, best + 1))
    upper = (x1 - x0) ** 2 * (y1 - y2) - (x1 - x2) ** 2 * (y1 - y0)
    lower = (x1 - x0) * (y1 - y2) - (x1 - x2) * (y1 - y0)
    return math.exp(x1 - upper / (2 * lower)) if lower else rates[best]


class Runner:
    """Run the lines of a study; start policies are kept in files of `directory`."""

    def __init__(self, study: dict[str, Any], directory: Path, done: list[dict[str, Any]]) -> None:
        self.study, self.directory, self.done = study, directory, done

    def start(self, chain: Chain, seeds: int, seed: int) -> Parameters:
        """Return the start policies of a chain."""
        path = self.directory / f"start-{chain.fillers}-{chain.right}-{seeds}-{seed}.pt"
        if not path.is_file():
            torch.save(start_policies(chain, seeds, seed), temporary := path.with_suffix(".part"))
            temporary.replace(path)
        return torch.load(path)

    def run(self, work: Work) -> dict[str, Any]:
        """Return the figures of one line."""
        if work.arm == "measurement":
            return self.measure(work.chain)
        arm = "grpo" if work.arm == "grpo_scaled_lr" else work.arm
        training = Training(work.optimizer, work.passes)
        if work.arm == "grpo_scaled_lr":
            tuned: dict[str, Any] = {
                "rate": self.line(work, "grpo")["rate"] * self.line(work, "measurement")["mean_weight"]
            }
        else:
            tuned = self.tune(work, training)
        seeds = self.study["seeds"]
        start, (train, held_out) = self.start(work.chain, seeds, COUNTING), split_prompts(seeds, COUNTING)
        found = train_policies(start, train, training, arm, torch.full((seeds,), tuned["rate"]), COUNTING)
        before = rounded(exact_accuracy(start, held_out))
        return tuned | {"start_accuracy": sum(before) / seeds, "accuracy": rounded(exact_accuracy(found, held_out))}

    def line(self, work: Work, arm: str) -> dict[str, Any]:
        """Return the finished line of another arm of the same chain."""
        key = work._replace(arm=arm).key
        [found] = [one for one in self.done if key.items() <= one.items()]
        return found

    def tune(self, work: Work, training: Training) -> dict[str, Any]:
        """Return the rates that were tried, their mean accuracies, and the best; all rates are trained in one batch."""
        rates, seeds = work.rates, self.study["tuning_seeds"]
        start, (train, held_out) = self.start(work.chain, seeds, TUNING), split_prompts(seeds, TUNING)
        many = [parameter.repeat(len(rates), 1, 1) for parameter in start]
        each = torch.tensor(rates).repeat_interleave(seeds)
        found = train_policies(many, train.repeat(len(rates), 1), training, work.arm, each, TUNING)
        accuracies = exact_accuracy(found, held_out.repeat(len(rates), 1)).view(len(rates), seeds).mean(-1)
        means = rounded(accuracies)
        return {"rates": rates, "tuning": means, "rate": best_rate(rates, means)}

    def measure(self, chain: Chain) -> dict[str, Any]:
        """Return the efficiency of each arm of the first part at the start, over all seeds together.

        The seeds' policies count as one policy with the parameters of all: mini-batches are what varies.
        """
        arms = self.study["parts"][0]["arms"]
        batches, seeds = self.study["measured_batches"], self.study["measured_seeds"]
        start, (train, _) = (
            self.start(chain, self.study["seeds"], COUNTING),
            split_prompts(self.study["seeds"], COUNTING),
        )
        parameters, train = [parameter[:seeds].clone().requires_grad_() for parameter in start], train[:seeds]
        training, inputs = Training("adam", 1, prompts=4), context_inputs()
        generator = torch.Generator().manual_seed(COUNTING + 1)
        gradients = torch.zeros(batches, len(arms), sum(parameter.numel() for parameter in parameters))
        seen, sizes = [], []
        for row in gradients:
            batch = sample_batch(parameters, train, training, inputs, generator)
            counted = batch.advantages != 0
            seen.append(batch.log_probs[counted].exp())
            sizes.append(batch.advantages[counted].abs())
            for place, arm in zip(row, arms, strict=True):
                parts = torch.autograd.grad(seeds_loss(parameters, batch, arm_weighting(arm)), parameters)
                torch.cat([part.flatten() for part in parts], out=place)
        found = directions(inner_products(gradients.split(2**15, dim=-1)), gradients.double().square().sum(-1))
        probs = torch.cat(seen)
        rare, proxy = probs < LOW_PROB, torch.cat(sizes) * (1 - probs)
        figures = {
            "mean_weight": make_shaping()(probs).mean().item(),
            "rare_tokens": rare.float().mean().item(),
            "rare_share": (proxy[rare].sum() / proxy.sum()).item(),
        }
        return figures | {"directions": {arm: direction.figures() for arm, direction in zip(arms, found, strict=True)}}


def rounded(values: torch.Tensor) -> list[float]:
    """Return values to four places, which is far below their spread."""
    return [round(value, 4) for value in values.tolist()]


def main() -> int:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory for records and start policies"
    )
    parser.add_argument("--study", type=Path, default=HERE / "study.yaml", help="default: %(default)s")
    parser.add_argument("--parts", type=int, nargs="*", help="numbers of the parts to run, from 0; all if left out")
    parser.add_argument("--seeds", type=int, help="instead of the study's, of tuning and measuring as well")
    options = parser.parse_args()
    study = yaml.safe_load(options.study.read_text())
    if options.seeds is not None:
        study |= dict.fromkeys(("seeds", "tuning_seeds", "measured_seeds"), options.seeds)
    numbers = range(len(study["parts"])) if options.parts is None else options.parts
    if not set(numbers) <= set(range(len(study["parts"]))) or (options.seeds or 2) < 2:
        parser.error(f"--parts are 0 to {len(study['parts']) - 1}, and --seeds at least 2")
    options.out.mkdir(parents=True, exist_ok=True)
    records = options.out / "records.jsonl"
    done = [json.loads(line) for line in records.read_text().splitlines()] if records.is_file() else []
    for name in SETTINGS:
        if others := {one[name] for one in done if one.get(name, study[name]) != study[name]}:
            parser.error(f"{records} has {name}={others.pop()}, the study {study[name]}; use another --out")
    runner = Runner(study, options.out, done)
    origin = provenance(HERE) | {name: study[name] for name in SETTINGS}
    todo: list[Work] = []
    for work in work_of(study, numbers):
        known = [one for one in done if work.key.items() <= one.items()]
        if known and tuple(known[0].get("rates", work.rates)) != work.rates:
            parser.error(f"{records} has other rates for {work.key}; use another --out")
        if not known and work.key not in [other.key for other in todo]:
            todo.append(work)
    with interruptible() as progress:
        for work in progress(todo, len(todo), "arms and measurements"):
            began = time.process_time()
            found = runner.run(work)
            line = work.key | found | {"cpu_seconds": round(time.process_time() - began, 1)} | origin
            done.append(line)
            write_text(records, "".join(json.dumps(one) + "\n" for one in done))
    sys.stdout.write(f"{records}: {len(done)} lines\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
