"""Train policies over chains of tokens (chains.py) with every arm of study.yaml, or of another study; part of docs/results.md.

For each chain and arm: tune, if the study has horizons to tune for, that is train at all learning rates with seeds of their own,
and count, that is train other seeds at these rates, or at those that were best. Accuracy is exact, on prompts to train on and
on others. Where an arm says so, sharpness is measured when a policy first passes an accuracy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

from studies.chains.chains import (
    SPLITS,
    Chain,
    Parameters,
    Training,
    exact_accuracy,
    right_probs,
    start_policies,
    train_policies,
)
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.common.progress import interruptible
from verl_trgrpo.runs.environment import provenance

HERE = Path(__file__).parent
DESCRIPTION = f"""{__doc__}
examples, from a checkout:
  OMP_NUM_THREADS=1 python -m studies.chains.run --out runs/chains    all of it: some two hours of one core
  OMP_NUM_THREADS=1 python -m studies.chains.run --out runs/chains --fillers 0    half of the chains
  OMP_NUM_THREADS=1 python -m studies.chains.run --out runs/pairs --study studies/chains/pairs.yaml

OUT receives records.jsonl, one line for each chain and arm (part "tuning") and for each of its rates that counts (part
"counting"), with accuracies of every seed, in ten-thousandths (-1 for what a policy did not reach), commit, machine and
versions; and the start policies, which can be deleted. The same command goes on after the last line. For the tables:
  xz --stdout runs/pairs/records.jsonl > studies/chains/records/pairs.jsonl.xz && make results

Exit code: 0 fine, 2 wrong input, 130 interrupted."""
# Steps between looks at whether a policy has passed an accuracy, and between points of the curve.
LOOK, CURVE = 2, 10
# Settings of the study that its lines have in common.
SETTINGS = ("steps", "calls", "thresholds", "split", "seeds")


class Unit(NamedTuple):
    """One line of the records; `rates` are those to tune, or the one that counts."""

    part: str
    chain: Chain
    arm: str
    rates: tuple[float, ...]

    @property
    def key(self) -> dict[str, Any]:
        """Return what identifies the line."""
        return {"part": self.part, "fillers": self.chain.fillers, "right": self.chain.right, "arm": self.arm,
                "rates": list(self.rates)}  # fmt: skip


class Watch:
    """Keep accuracies of all seeds while they are trained.

    Args:
        prompts: parts of (seeds, n) prompts each; those of the first are trained on.
        steps: at which the accuracies of all seeds are kept.
        thresholds: train accuracies; the first time a seed passes one its figures are kept, and its parameters.
    """

    def __init__(self, prompts: Sequence[torch.Tensor], steps: Sequence[int], thresholds: Sequence[float]) -> None:
        self.prompts, self.steps, self.thresholds = prompts, steps, thresholds
        self.accuracies: list[torch.Tensor] = []
        self.curve: list[list[float]] = []
        # Step and all accuracies, -1 before a threshold is passed.
        self.passed = torch.full((len(thresholds), 1 + len(prompts), len(prompts[0])), -1.0)
        self.policies: list[Parameters] = [[] for _ in thresholds]

    @torch.no_grad()
    def __call__(self, step: int, parameters: Parameters) -> None:
        """Look at the parameters after a step."""
        if step % LOOK and step not in self.steps:
            return
        probs = right_probs(parameters)
        found = torch.stack([probs.gather(-1, prompts).mean(-1) for prompts in self.prompts])
        if step in self.steps:
            self.accuracies.append(found)
        if step and step % CURVE == 0:
            self.curve.append(found.mean(-1).tolist())
        for place, threshold in enumerate(self.thresholds):
            now = (self.passed[place, 0] < 0) & (found[0] >= threshold)
            if now.any():
                figures = torch.cat([torch.full((1, len(now)), float(step)), found])
                self.passed[place] = torch.where(now, figures, self.passed[place])
                kept = self.policies[place] or [torch.zeros_like(parameter) for parameter in parameters]
                chosen = now[:, None, None]
                self.policies[place] = [torch.where(chosen, p, old) for p, old in zip(parameters, kept, strict=True)]


class Runner:
    """Run the units of a study; start policies are kept in files of `directory`."""

    def __init__(self, study: Mapping[str, Any], directory: Path, done: list[dict[str, Any]]) -> None:
        self.study, self.directory, self.done = study, directory, done

    def units(self, fillers: Sequence[int]) -> Iterator[Unit]:
        """Yield all units stage by stage; tuning must have its line before the next unit is asked for.

        The arms of a stage count at the same rates: all, or those that are best for one of them at one of the horizons.
        """
        chains = [Chain(n, right) for right, n in itertools.product(self.study["right"], fillers)]
        for stage, chain in itertools.product(self.study["stages"], chains):
            tunings = [Unit("tuning", chain, arm, self.rates(chain, arm)) for arm in stage["arms"]]
            if self.study["horizons"]:
                yield from tunings
            best = {rate for tuning in tunings for rate in self.best_rates(tuning)}
            for rates in zip(*(unit.rates for unit in tunings), strict=True):  # so that one rate has all arms early
                for unit, rate in zip(tunings, rates, strict=True):
                    if stage["rates"] == "all" or rate in best:
                        yield unit._replace(part="counting", rates=(rate,))

    def rates(self, chain: Chain, arm: str) -> tuple[float, ...]:
        """Return the rates of an arm."""
        factor = self.study["arms"][arm].get("factor", 1)
        return tuple(float(f"{factor * rate:.3g}") for rate in self.study["rates"][chain.right])

    def best_rates(self, tuning: Unit) -> list[float]:
        """Return the rate with the highest held-out accuracy at each of the horizons."""
        line, found = self.line(tuning), []
        for step in self.study["horizons"]:
            assert line is not None
            sums = [sum(values) for values in line["held_out"][self.study["steps"].index(step)]]
            found.append(tuning.rates[sums.index(max(sums))])
        return found

    def line(self, unit: Unit) -> dict[str, Any] | None:
        """Return the line of a unit if there is one."""
        return next((one for one in self.done if unit.key.items() <= one.items()), None)

    def start(self, chain: Chain, part: str, call: int) -> Parameters:
        """Return the start policies of one call."""
        seeds, seed = self.study["calls"][part][1], self.study["seeds"][part] + call
        path = self.directory / f"start-{chain.fillers}-{chain.right}-{seeds}-{seed}.pt"
        if not path.is_file():
            torch.save(start_policies(chain, seeds, seed), temporary := path.with_suffix(".part"))
            temporary.replace(path)
        return torch.load(path)

    def run(self, unit: Unit) -> dict[str, Any]:
        """Return the figures of one line."""
        study, arm, n = self.study, self.study["arms"][unit.arm], len(unit.rates)
        calls, seeds = study["calls"][unit.part]
        seed, (split, names) = study["seeds"][unit.part], SPLITS[study["split"]]
        starts = [self.start(unit.chain, unit.part, call) for call in range(calls)]
        start = [torch.cat(parts).repeat(n, 1, 1) for parts in zip(*starts, strict=True)]
        splits = [split(seeds, seed + 100 + call) for call in range(calls)]
        prompts = [torch.cat(parts).repeat(n, 1) for parts in zip(*splits, strict=True)]
        counts = unit.part == "counting"
        watch = Watch(prompts, study["steps"], study["thresholds"] if counts else ())
        training = Training("adam", arm.get("passes", 1), steps=study["steps"][-1], samples=arm.get("samples", 8),
                            decay=arm.get("decay", False))  # fmt: skip
        rates = torch.tensor(unit.rates).repeat_interleave(calls * seeds)
        if 0 in study["steps"]:
            watch(0, start)
        train_policies(start, prompts[0], training, arm["weights"], rates, seed + 200, watch)
        accuracies = torch.stack(watch.accuracies, 1)  # (parts of prompts, steps, seeds)
        if not counts:  # (parts of prompts, steps, rates, seeds)
            accuracies = accuracies.unflatten(-1, (n, -1))
        found: dict[str, Any] = {name: scaled(own) for name, own in zip(names, accuracies, strict=True)}
        if not counts:
            return found
        found |= {"curve": rounded(torch.tensor(watch.curve)), "passed": {}}
        for threshold, passed, policies in zip(study["thresholds"], watch.passed, watch.policies, strict=True):
            figures: dict[str, Any] = {"step": passed[0].int().tolist()}
            figures |= {name: scaled(own) for name, own in zip(names, passed[1:], strict=True)}
            if arm.get("sharpness") and policies:
                figures |= sharpness(policies, prompts[0], passed[0] > 0, seed + 300)
            found["passed"][str(threshold)] = figures
        return found


def sharpness(policies: Parameters, train: torch.Tensor, passed: torch.Tensor, seed: int) -> dict[str, Any]:
    """Return how sharp the accuracy on `train` is around each policy that `passed`; -1 for others."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.where(passed, noise_loss(policies, train, generator), -1)
    curvature = torch.where(passed, largest_curvature(policies, train, generator), -1)
    return {"noise_loss": [round(value, 5) for value in noise.tolist()],
            "curvature": [round(value, 3) for value in curvature.tolist()]}  # fmt: skip


@torch.no_grad()
def noise_loss(
    parameters: Parameters, prompts: torch.Tensor, generator: torch.Generator, size: float = 0.02, draws: int = 16
) -> torch.Tensor:
    """Return the mean loss of exact accuracy on prompts (seeds, n) under Gaussian noise on the weights, (seeds,).

    `size` is the expected norm of the noise of a tensor of parameters, relative to that of the tensor. Each of the `draws` is
    taken with both signs, which cancel the gradient.
    """
    found = torch.zeros_like(exact_accuracy(parameters, prompts))
    norms = [parameter.flatten(1).norm(dim=-1)[:, None, None] / parameter[0].numel() ** 0.5 for parameter in parameters]
    for _ in range(draws):
        noise = [
            size * norm * torch.randn(p.shape, generator=generator) for p, norm in zip(parameters, norms, strict=True)
        ]
        for sign in (1, -1):
            moved = [parameter + sign * own for parameter, own in zip(parameters, noise, strict=True)]
            found += exact_accuracy(moved, prompts)
    return exact_accuracy(parameters, prompts) - found / (2 * draws)


def largest_curvature(
    parameters: Parameters, prompts: torch.Tensor, generator: torch.Generator, iterations: int = 12
) -> torch.Tensor:
    """Return the largest eigenvalue of the Hessian of 1 - exact accuracy by all parameters, (seeds,).

    Lanczos' method with full orthogonalization, for all seeds at once, from random vectors. The kinks of relu have no second
    derivative; under noise they count.
    """
    parameters = [parameter.detach().requires_grad_() for parameter in parameters]
    sizes = [parameter[0].numel() for parameter in parameters]
    loss = -exact_accuracy(parameters, prompts).sum()  # of independent seeds
    gradient = torch.autograd.grad(loss, parameters, create_graph=True)

    def product(vectors: torch.Tensor) -> torch.Tensor:
        parts = zip(vectors.split(sizes, -1), parameters, strict=True)
        directions = [part.view_as(parameter) for part, parameter in parts]
        found = torch.autograd.grad(gradient, parameters, directions, retain_graph=True)
        return torch.cat([part.flatten(1) for part in found], -1)

    basis = torch.nn.functional.normalize(torch.randn(len(prompts), 1, sum(sizes), generator=generator), dim=-1)
    small = torch.zeros(len(prompts), iterations, iterations)
    for place in range(iterations):
        vectors = product(basis[:, -1])
        for _ in range(2):  # once more for what rounding left
            along = torch.einsum("skn,sn->sk", basis, vectors)
            small[:, place, : place + 1] += along
            vectors = vectors - torch.einsum("skn,sk->sn", basis, along)
        length = vectors.norm(dim=-1, keepdim=True)
        if place + 1 < iterations:
            small[:, place, place + 1] = length[:, 0]
        basis = torch.cat([basis, (vectors / length.clamp(min=1e-12))[:, None]], 1)
    return torch.linalg.eigvalsh((small + small.transpose(-1, -2)) / 2)[:, -1]


def rounded(values: torch.Tensor) -> Any:
    """Return means to five places."""
    return (values.double() * 1e5).round().div(1e5).tolist()


def scaled(values: torch.Tensor) -> Any:
    """Return accuracies in ten-thousandths."""
    return (values * 1e4).round().int().tolist()


def main() -> int:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="directory for records and start policies"
    )
    parser.add_argument("--study", type=Path, default=HERE / "study.yaml", help="default: %(default)s")
    parser.add_argument(
        "--fillers", type=int, nargs="*", help="only chains with so many fillers; the study's if left out"
    )
    options = parser.parse_args()
    study = yaml.safe_load(options.study.read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    records = options.out / "records.jsonl"
    done = read_lines(records) if records.is_file() else []
    for name in SETTINGS:
        if any(one[name] != study[name] for one in done):
            parser.error(f"{records} has other {name} than the study; use another --out")
    runner = Runner(study, options.out, done)
    origin = {name: study[name] for name in SETTINGS} | provenance(HERE)
    append_lines(runner, runner.units(options.fillers or study["fillers"]), records, done, origin)
    sys.stdout.write(f"{records}: {len(done)} lines\n")
    return 0


def append_lines(
    runner: Any, units: Iterable[Any], records: Path, done: list[dict[str, Any]], origin: Mapping[str, Any]
) -> None:
    """Run the units that have no line yet, and append the line of each to `done` and to the file.

    Args:
        runner: whose ``line(unit)`` tells if a unit has a line, and whose ``run(unit)`` returns what is recorded.
        units: with their ``key``, in order.
        records: file of one JSON object a line.
        done: lines so far, which the runner reads; it grows.
        origin: what each line says of its program and machine.
    """
    with interruptible() as progress, records.open("a") as log:
        for unit in progress(units, None, "lines"):
            if runner.line(unit):
                continue
            began = time.process_time()
            found = runner.run(unit)
            line = unit.key | found | {"cpu_seconds": round(time.process_time() - began, 1)} | origin
            done.append(line)
            log.write(json.dumps(line, separators=(",", ":")) + "\n")
            log.flush()


def read_lines(records: Path) -> list[dict[str, Any]]:
    """Return the lines of records; a last line that was cut off is taken away."""
    text = records.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_text(records, whole)
    return [json.loads(line) for line in whole.splitlines()]


if __name__ == "__main__":
    sys.exit(exit_code(main))
