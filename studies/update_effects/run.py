"""Measure what token weights change in one update of Adam, while a policy is trained: its direction, its length, and which
tokens become likelier.

At the first update of a step, the update of a second arm is computed from the same policy and batch: from the optimizer state of
the arm that trains, and from a state of its own, which sees the second arm's gradients from the first step on. The first shares
the past, the second is Adam's answer to these weights. Then each update is applied in turn, and the probabilities of the sampled
tokens are compared with those before it: of the half of the batch that the update is made from, and of the other half.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml

from studies.update_effects.policies import ChainPolicies, Half, LanguageModel, Tensors, build_policy
from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.options import exit_code
from verl_trgrpo.common.progress import Progress, interruptible
from verl_trgrpo.core.metrics import LOW_PROB
from verl_trgrpo.runs.environment import provenance

HERE = Path(__file__).parent
DESCRIPTION = f"""{__doc__}
examples, from a checkout:
  python -m studies.update_effects.run --out runs/update_effects
  python -m studies.update_effects.run --out runs/update_effects --runs tiny_puzzles --seeds 0 1

OUT receives a file for each run, NAME-ARM-SEED.jsonl, with one line for each measured update; finished runs are not repeated.
Data and models are in OUT/NAME. With --pack the finished runs are written to a file, one line each; to make the tables:
--pack studies/update_effects/records/update_effects.jsonl, then make results.

Exit code: 0 fine, 2 wrong input, 130 interrupted."""

# Elements that are summed in float32.
_AT_ONCE = 2**16


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


def inner(one: Tensors, other: Tensors) -> float:
    """Return the inner product of vectors given in parts."""
    parts = ((a.flatten().split(_AT_ONCE), b.flatten().split(_AT_ONCE)) for a, b in zip(one, other, strict=True))
    return math.fsum(torch.dot(x, y).item() for a, b in parts for x, y in zip(a, b, strict=True))


def clipped(gradients: Tensors, largest: float) -> list[torch.Tensor]:
    """Return gradients scaled to a norm of at most `largest`."""
    factor = min(1.0, largest / (inner(gradients, gradients) ** 0.5 + 1e-6))
    return [gradient * factor for gradient in gradients]


def relation(weighted: Tensors, plain: Tensors) -> dict[str, float]:
    """Return the cosine of two vectors, and the length of the first over that of the second."""
    square, other = inner(weighted, weighted), inner(plain, plain)
    return {"cosine": inner(weighted, plain) / (square * other) ** 0.5, "length": (square / other) ** 0.5}


def kinds_of_tokens(half: Half, probs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return which tokens with an advantage are rare or likely and in right or wrong responses, of all and of each role."""
    rare = {"rare": probs < LOW_PROB, "likely": probs >= LOW_PROB}
    right = {"right": half.advantages > 0, "wrong": half.advantages < 0}
    roles = {"": torch.ones_like(rare["rare"])} | {f"{role} ": of for role, of in half.roles.items()}
    return {f"{role}{p} {r}": roles[role] & rare[p] & right[r] for role, p, r in product(roles, rare, right)}


@torch.no_grad()
def probability_changes(
    policy: LanguageModel | ChainPolicies, halves: Sequence[Half], updates: Mapping[str, Tensors]
) -> dict[str, Any]:
    """Return mean changes of probabilities after each update by half and kind of token, and of accuracy if it is known.

    The parameters are as before afterwards.
    """

    def measured() -> tuple[list[torch.Tensor], float]:
        accuracy = policy.accuracy() if isinstance(policy, ChainPolicies) else 0.0
        return [policy.log_probs(half).exp() for half in halves], accuracy

    kept = [parameter.detach().clone() for parameter in policy.parameters]
    before, start = measured()
    after = {}
    for name, update in updates.items():
        for parameter, value, change in zip(policy.parameters, kept, update, strict=True):
            parameter.copy_(value + change)
        after[name] = measured()
    for parameter, value in zip(policy.parameters, kept, strict=True):
        parameter.copy_(value)
    found: dict[str, Any] = {}
    for place, (label, half) in enumerate(zip(("own", "other"), halves, strict=False)):
        for kind, chosen in kinds_of_tokens(half, before[place]).items():
            if count := int(chosen.sum()):
                changes = {
                    name: (probs[place] - before[place])[chosen].mean().item() for name, (probs, _) in after.items()
                }
                found[f"{label} {kind}"] = {"tokens": count, **changes}
    if isinstance(policy, ChainPolicies):
        found["accuracy"] = {name: accuracy - start for name, (_, accuracy) in after.items()}
    return found


def measured_training(
    policy: LanguageModel | ChainPolicies, names: Sequence[str], weighted: int, every: int, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Train the first of two arms, and yield the figures of the first update of every `every`-th step.

    Relations are of the arm with weights, at the place `weighted`, to the other.
    """
    states = [Adam(policy.parameters, policy.rate) for _ in names]
    steps = range(1, policy.steps + 1)

    def related(first: Tensors, second: Tensors) -> dict[str, float]:
        return relation(second, first) if weighted else relation(first, second)

    for step in progress(steps, len(steps), names[0]):
        halves = policy.halves(step)
        for number, half in enumerate(halves):
            # Without any advantage gradients are 0, and Adam goes on with what it remembers.
            gradients = policy.gradients(half)
            measured = number == 0 and (step - 1) % every == 0 and bool(half.responses.any())
            relations = {"gradient": related(*gradients)} if measured else {}
            gradients = [clipped(one, policy.grad_clip) for one in gradients]
            same = states[0].update(gradients[1], keep=False) if measured else []
            own, others_own = (state.update(one) for state, one in zip(states, gradients, strict=True))
            if measured:
                relations |= {"same state": related(own, same), "own state": related(own, others_own)}
                updates = {names[0]: own, f"{names[1]}, same state": same, f"{names[1]}, own state": others_own}
                right = torch.cat([(each.advantages > 0).flatten() for each in halves]).float().mean().item()
                changes = probability_changes(policy, halves[:2], updates)
                yield {"step": step, "right": right, "relations": relations, "changes": changes}
            with torch.no_grad():
                for parameter, change in zip(policy.parameters, own, strict=True):
                    parameter += change


def rounded(figures: Any) -> Any:
    """Return figures to five digits."""
    if isinstance(figures, dict):
        return {name: rounded(value) for name, value in figures.items()}
    return float(f"{figures:.5g}") if isinstance(figures, float) else figures


def run_all(
    name: str, plan: Mapping[str, Any], arms: Sequence[str], seeds: Sequence[int], out: Path, progress: Progress
) -> None:
    """Measure the trainings of both arms with each seed that have no file yet."""
    origin = provenance(HERE)
    for seed, arm in product(seeds, arms):
        path = out / f"{name}-{arm}-{seed}.jsonl"
        if path.is_file():
            continue
        names = [arm, *({*arms} - {arm})]
        policy = build_policy(plan, names, seed, out / name)
        begun, head = path.with_suffix(".part"), {"run": name, "arm": arm, "seed": seed}
        with begun.open("w") as log:
            for figures in measured_training(policy, names, int(arm != arms[0]), plan["every"], progress):
                log.write(json.dumps(head | rounded(figures) | origin) + "\n")
                log.flush()
        begun.replace(path)


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the record of a run: relations and changes of accuracy by step, and means of changes over all tokens."""
    relations = {
        f"{name} {figure}": [line["relations"][name][figure] for line in lines]
        for name, figures in lines[0]["relations"].items()
        for figure in figures
    }
    changes: dict[str, dict[str, float]] = {}
    for line in lines:
        for kind, found in line["changes"].items():
            if kind != "accuracy":
                sums = changes.setdefault(kind, dict.fromkeys(found, 0))
                for name, value in found.items():
                    sums[name] += value if name == "tokens" else value * found["tokens"]
    means = {
        kind: {name: value if name == "tokens" else value / sums["tokens"] for name, value in sums.items()}
        for kind, sums in changes.items()
    }
    record = {name: value for name, value in lines[0].items() if name not in ("step", "right", "relations", "changes")}
    record |= {"steps": [line["step"] for line in lines], "right": [line["right"] for line in lines]}
    record |= {"relations": relations, "changes": means}
    if "accuracy" in lines[0]["changes"]:
        names = lines[0]["changes"]["accuracy"]
        record["accuracy"] = {name: [line["changes"]["accuracy"][name] for line in lines] for name in names}
    return rounded(record)


def pack(directory: Path, out: Path) -> int:
    """Write the records of the finished runs in a directory to a file, where those of other runs stay; return their number."""
    kept = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    runs = [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(directory.glob("*.jsonl"))]
    found = [summary(lines) for lines in runs if lines]
    records = {(one["run"], one["arm"], one["seed"]): one for one in [*kept, *found]}
    write_text(out, "".join(json.dumps(records[key]) + "\n" for key in sorted(records)))
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory for records, data and models")
    parser.add_argument("--study", type=Path, default=HERE / "study.yaml", help="default: %(default)s")
    parser.add_argument("--runs", nargs="*", help="names of the study's runs; all if left out")
    parser.add_argument(
        "--pack",
        type=Path,
        metavar="FILE",
        help="run nothing; write the records of --out to this file, which keeps others",
    )
    parser.add_argument("--seeds", type=int, nargs="*", help="instead of the study's")
    options = parser.parse_args()
    study = yaml.safe_load(options.study.read_text())
    names = study["runs"] if options.runs is None else options.runs
    if unknown := {*names} - {*study["runs"]}:
        parser.error(f"--runs {' '.join(sorted(unknown))}: unknown; choose from {', '.join(study['runs'])}")
    if options.pack:
        sys.stdout.write(f"{options.pack}: {pack(options.out, options.pack)} runs\n")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    with interruptible() as progress:
        for name in names:
            plan = study["runs"][name]
            seeds = plan["seeds"] if options.seeds is None else options.seeds
            run_all(name, plan, study["arms"], seeds, options.out, progress)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
