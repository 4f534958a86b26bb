"""Train policies over chains of tokens with rules that say which tokens get the gradient (which_tokens.yaml).

For each network, chain and arm in the declared order: tune, that is train at all learning rates with seeds of their own, and
count, that is train other seeds at the rate that was best for a horizon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from studies.chains import transformer
from studies.chains.chains import (
    HIDDEN_LAYER,
    Chain,
    Parameters,
    Training,
    right_probs,
    split_prompts,
    start_policies,
    train_policies,
)
from studies.chains.rules import make_rule
from studies.chains.run import HERE, append_lines, read_lines, scaled
from verl_trgrpo.runs.environment import provenance

# Wordings of each prompt over which the accuracy of a transformer is a mean.
WORDINGS = 2


class Unit(NamedTuple):
    """One line of the records: `rates` are those to tune, or the one that counts; `steps` is how far it trains."""

    network: str
    part: str
    chain: Chain
    arm: str
    horizon: int
    rates: tuple[float, ...]
    steps: int

    @property
    def key(self) -> dict[str, Any]:
        """Return what identifies the line."""
        return {"network": self.network, "part": self.part, "fillers": self.chain.fillers, "right": self.chain.right,
                "arm": self.arm, "horizon": self.horizon, "rates": list(self.rates)}  # fmt: skip


class Runner:
    """Run the units of a study; start policies are kept in files of `directory`."""

    def __init__(self, study: Mapping[str, Any], directory: Path, done: list[dict[str, Any]]) -> None:
        self.study, self.directory, self.done = study, directory, done

    def units(self) -> Iterator[Unit]:
        """Yield all units in the declared order; tuning must have its line before the next unit is asked for."""
        for part in self.study["order"]:
            for fillers, right in part["chains"]:
                rates = tuple(self.study["networks"][part["network"]]["rates"][right])
                for arm in part["arms"]:
                    own = (part["network"], "tuning", Chain(fillers, right), arm, part["tuned"])
                    yield (tuning := Unit(*own, rates, part["tuned"]))
                    best = self.best_rate(tuning, part["counted"])
                    yield tuning._replace(
                        part="counting", horizon=part["counted"], rates=(best,), steps=part.get("to", part["counted"])
                    )

    def steps(self, unit: Unit) -> list[int]:
        """Return the steps at which accuracies are kept."""
        return [step for step in self.study["networks"][unit.network]["steps"] if step <= unit.steps]

    def best_rate(self, tuning: Unit, horizon: int) -> float:
        """Return the rate with the highest held-out accuracy of the tuning seeds at a horizon."""
        line = self.line(tuning)
        assert line is not None
        sums = [sum(values) for values in line["held_out"][line["steps"].index(horizon)]]
        return tuning.rates[sums.index(max(sums))]

    def line(self, unit: Unit) -> dict[str, Any] | None:
        """Return the line of a unit if there is one."""
        return next((one for one in self.done if unit.key.items() <= one.items()), None)

    def start(self, unit: Unit, call: int) -> Parameters:
        """Return the start policies of one call."""
        network = self.study["networks"][unit.network]
        seeds, seed = network["calls"][unit.part][1], network["seeds"][unit.part] + call
        chain = unit.chain
        path = self.directory / f"start-{unit.network}-{chain.fillers}-{chain.right}-{seeds}-{seed}.pt"
        if not path.is_file():
            make = transformer.fit if unit.network == "transformer" else start_policies
            torch.save(make(chain, seeds, seed), temporary := path.with_suffix(".part"))
            temporary.replace(path)
        return torch.load(path)

    def run(self, unit: Unit) -> dict[str, Any]:
        """Return the figures of one line: accuracies by step and seed, in tuning by step, rate and seed."""
        study, arm, n = self.study["networks"][unit.network], self.study["arms"][unit.arm], len(unit.rates)
        calls, seeds = study["calls"][unit.part]
        seed, steps = study["seeds"][unit.part], self.steps(unit)
        starts = [self.start(unit, call) for call in range(calls)]
        start = [torch.cat(parts).repeat(n, 1, 1) for parts in zip(*starts, strict=True)]
        splits = [split_prompts(seeds, seed + 100 + call) for call in range(calls)]
        prompts = [torch.cat(parts).repeat(n, 1) for parts in zip(*splits, strict=True)]
        kept: list[torch.Tensor] = []

        @torch.no_grad()
        def look(step: int, parameters: Parameters) -> None:
            if step in steps:
                if unit.network == "transformer":
                    probs = transformer.sampled_right_probs(parameters, WORDINGS, seed + 300)
                else:
                    probs = right_probs(parameters)
                kept.append(torch.stack([probs.gather(-1, own).mean(-1) for own in prompts]))

        options = {name: arm[name] for name in ("clip_high", "cispo") if name in arm}
        training = Training("adam", arm.get("passes", 1), steps=unit.steps, **options)
        rule = make_rule(arm["rule"], n * calls * seeds, seed) if "rule" in arm else None
        train_policies(
            start,
            prompts[0],
            training,
            arm.get("weights", "grpo"),
            torch.tensor(unit.rates).repeat_interleave(calls * seeds),
            seed + 200,
            look,
            rule,
            transformer.TRANSFORMER if unit.network == "transformer" else HIDDEN_LAYER,
        )
        found = torch.stack(kept, 1)
        if unit.part == "tuning":
            found = found.unflatten(-1, (n, -1))
        return {"steps": steps, "train": scaled(found[0]), "held_out": scaled(found[1])}


def run_study(study: Mapping[str, Any], out: Path) -> str:
    """Train what the records in `out` lack, and return what is there then."""
    out.mkdir(parents=True, exist_ok=True)
    records = out / "records.jsonl"
    done = read_lines(records) if records.is_file() else []
    runner, origin = Runner(study, out, done), provenance(HERE)
    append_lines(runner, runner.units(), records, done, origin)
    return f"{records}: {len(done)} lines"
