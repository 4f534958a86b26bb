"""Read records of studies of chains (run.py): accuracies of every seed, by chain, arm, learning rate and step."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.chains.effects import Effect, effect

SCALE = 1e4
Chain = tuple[int, float]
CHAIN_HEAD = ["right at the start", "fillers"]


def chain_text(chain: Chain) -> list[str]:
    """Return the first two cells of a row."""
    return [f"{chain[1]:g}", str(chain[0])]


class Records:
    """The records of a study, some of which may be missing; `study` is the content of its file."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], study: Mapping[str, Any]) -> None:
        self.study, self.steps, self.arms = study, study["steps"], (study["primary"], study["baseline"])
        self.lines = {
            (one["part"], (one["fillers"], one["right"]), one["arm"], tuple(one["rates"])): one for one in lines
        }

    @classmethod
    def read(cls, path: Path, study: Mapping[str, Any]) -> Records:
        """Read a file of records, packed with xz."""
        with lzma.open(path, "rt") as file:
            return cls([json.loads(line) for line in file], study)

    @property
    def planned(self) -> list[Chain]:
        """Return all chains of the study."""
        return [(fillers, right) for right in self.study["right"] for fillers in self.study["fillers"]]

    def chains(self, *arms: str) -> list[Chain]:
        """Return the chains on which these arms have been counted at their best rates, or at all rates if none is tuned."""
        return [chain for chain in self.planned if all(self.counted(chain, arm) for arm in arms)]

    def rates(self, chain: Chain, arm: str) -> list[float]:
        """Return the rates at which an arm was counted."""
        return sorted(key[3][0] for key in self.lines if key[:3] == ("counting", chain, arm))

    def tuning(self, chain: Chain, arm: str, horizon: int) -> tuple[list[float], list[float]]:
        """Return the rates that were tuned and the tuning seeds' mean held-out accuracies at a horizon; [] before tuning."""
        for (part, own, name, rates), line in self.lines.items():
            if (part, own, name) == ("tuning", chain, arm):
                # Older lines have means, others each seed's accuracy in ten-thousandths.
                means = [float(np.mean(one)) for one in line["held_out"][self.steps.index(horizon)]]
                return list(rates), means
        return [], []

    def best(self, chain: Chain, arm: str, horizon: int) -> float | None:
        """Return the rate with the highest accuracy of the tuning seeds at a horizon; None before tuning."""
        rates, means = self.tuning(chain, arm, horizon)
        return rates[means.index(max(means))] if rates else None

    def counted(self, chain: Chain, arm: str) -> bool:
        """Return whether an arm was counted at its best rate for each horizon, or at all rates if none is tuned."""
        horizons = self.study["horizons"]
        needed = [self.best(chain, arm, one) for one in horizons] if horizons else self.study["rates"][chain[1]]
        return all(rate in self.rates(chain, arm) for rate in needed)

    @property
    def batches(self) -> list[int]:
        """Return the batch of starts of each seed that counts; policies of one share the order of prompts of their fit."""
        batches, seeds = self.study["calls"]["counting"]
        return [batch for batch in range(batches) for _ in range(seeds)]

    def line(self, chain: Chain, arm: str, rate: float) -> Mapping[str, Any]:
        """Return what was counted at a rate."""
        return self.lines["counting", chain, arm, (rate,)]

    def accuracies(
        self, chain: Chain, arm: str, step: int, rate: float | None = None, of: str = "held_out"
    ) -> np.ndarray:
        """Return the accuracy of each seed at a step, at the best rate for that horizon unless one is given."""
        chosen = rate or self.best(chain, arm, step)
        assert chosen is not None
        return np.array(self.line(chain, arm, chosen)[of][self.steps.index(step)]) / SCALE

    def top(self, chain: Chain, arm: str, horizon: int) -> dict[float, float]:
        """Return the rates around the best one, and how an accuracy at the top of the parabola through them weighs theirs.

        The parabola goes through the tuning accuracies at the best rate and its neighbours, by the logarithm of the rate; its top
        is kept between the outer two. So the choice is that of a curve, not of the highest of five noisy means.
        """
        rates, means = self.tuning(chain, arm, horizon)
        middle = min(max(means.index(max(means)), 1), len(rates) - 2)
        near = rates[middle - 1 : middle + 2]
        x = np.log(near)
        x = x - x[1]
        bend, slope, _ = np.polyfit(x, means[middle - 1 : middle + 2], 2)
        at = float(np.clip(-slope / (2 * bend), x[0], x[2])) if bend < 0 else float(x[0] if slope < 0 else x[2])
        return {
            rate: float(np.prod([(at - other) / (own - other) for other in x if other != own]))
            for rate, own in zip(near, x, strict=True)
        }

    def tuned(self, chain: Chain, arm: str, step: int, of: str = "held_out") -> np.ndarray:
        """Return the accuracy of each seed at the top of the parabola, or at the best rate if its neighbours are not counted."""
        rates, found = self.rates(chain, arm), self.accuracies(chain, arm, step, of=of)
        if len(rates) == len(self.tuning(chain, arm, step)[0]) > 2:
            found = np.zeros_like(found)
            for rate, weight in self.top(chain, arm, step).items():
                found += weight * self.accuracies(chain, arm, step, rate, of)
        return found

    def over_rates(self, chain: Chain, step: int, of: str = "held_out") -> dict[str, np.ndarray]:
        """Return the mean accuracy of each seed over the study's rates, of both arms."""
        rates = self.study["rates"][chain[1]]
        return {arm: np.mean([self.accuracies(chain, arm, step, rate, of) for rate in rates], 0) for arm in self.arms}

    def rates_effect(self, chain: Chain, step: int, of: str = "held_out") -> Effect:
        """Return the primary arm minus the baseline, the mean over the study's rates of each seed."""
        found = self.over_rates(chain, step, of)
        return effect(found[self.arms[0]] - found[self.arms[1]])

    def difference(
        self, chain: Chain, arms: tuple[str, str], step: int, rate: float | None = None, of: str = "held_out"
    ) -> Effect:
        """Return the first of two arms minus the second, paired by seed, each at its best rate unless one is given."""
        own, other = (self.accuracies(chain, arm, step, rate, of) for arm in arms)
        return effect(own - other)

    def passing(self, chain: Chain, arm: str, rate: float, threshold: float, name: str) -> np.ndarray:
        """Return the step at which each seed first passes a train accuracy, or an accuracy there; nan for what never does."""
        found = self.line(chain, arm, rate)["passed"][str(threshold)]
        values = np.array(found[name], dtype=float) / (1 if name == "step" else SCALE)
        return np.where(np.array(found["step"]) < 0, np.nan, values)

    def passed(
        self, chain: Chain, threshold: float
    ) -> Iterator[tuple[Mapping[str, list[float]], Mapping[str, list[float]]]]:
        """Yield figures of the primary arm and the baseline at the baseline's best rate, of the seeds that both passed."""
        rate = self.best(chain, self.arms[1], self.steps[-1])
        if rate is None or not all(rate in self.rates(chain, arm) for arm in self.arms):
            return
        found = [self.line(chain, arm, rate)["passed"][str(threshold)] for arm in self.arms]
        both = [i for i, steps in enumerate(zip(*(one["step"] for one in found), strict=True)) if min(steps) > 0]
        if len(both) > 2:
            own, other = ({name: [one[name][i] for i in both] for name in one} for one in found)
            yield own, other
