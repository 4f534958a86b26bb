"""The history of a run's metrics: columns, levels, their noise, and what excuses a change."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from verl_trgrpo.runs.metrics import REWARD, WEIGHT, Step

Values = np.ndarray[Any, np.dtype[Any]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

ACCURACY = "validation accuracy"
"""Stands for the mean accuracy over data sources, which is no metric of veRL's."""

# Metrics by what they show, as regular expressions.
VALIDATION = rf"val-core/.+/(acc|reward)/mean@\d+|{ACCURACY}"
REWARDS = r"critic/(score|rewards)/mean"
TIMES = r"timing_s/(step|gen)|perf/time_per_step"
_TRAINED = "critic/acc/mean"
_TOKENS = r"perf/total_num_tokens|response_length/mean"

_LATEST = 5  # values of which the median is a level; fewer of a metric that is seldom logged
_PROBLEMS = 2048  # most answers of a validation that are read from its values


def levels(y: Values, window: int) -> Values:
    """Return the median of the last `window` values, of fewer at the beginning."""
    head = [float(np.median(y[: min(end, 9)])) for end in range(1, window)]
    return np.concatenate([head, np.median(sliding_window_view(y, window), axis=1)])


def sums(flags: Flags, window: int) -> Values:
    """Return how many of the last `window` flags are set."""
    return np.convolve(flags, np.ones(window))[: len(flags)]


def noise_of(y: Values, sick: Flags, lag: int = 1, binomial: float = 0.0) -> float:
    """Return the standard deviation of a value, from differences at a distance, before the first sick one if there are enough.

    A `binomial` one is at most doubled by them.
    """
    differences, sound = np.abs(y[lag:] - y[:-lag]), int(np.argmax(sick)) if sick.any() else len(y)
    if sound > max(9, len(y) / 8) + lag:
        differences = differences[: sound - lag]
    noise = 1.4826 / math.sqrt(2) * float(np.median(differences)) if len(differences) else 0.0
    return max(binomial, min(noise, 2 * binomial)) if binomial else noise


class History:
    """The columns of a run, and what excuses a change: methods of the step before it, its first and its last, which return by how
    much larger it may be.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        cells: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
        for step in steps:
            for name, value in step.metrics.items():
                numbers, values = cells[name]
                numbers.append(step.number)
                values.append(value)
        core = [name for name in cells if re.fullmatch(VALIDATION, name)]
        validated = [step for step in steps if any(name in step.metrics for name in core)]
        self._columns = {name: (np.array(cell[0], float), np.array(cell[1], float)) for name, cell in cells.items()}
        self._broken = [name for name, (_, values) in self._columns.items() if not np.isfinite(values).all()]
        accuracies = np.array([(step.number, step.accuracy) for step in validated], float).reshape(-1, 2)
        self._columns[ACCURACY] = accuracies[:, 0], accuracies[:, 1]

    def metrics(self, pattern: str, broken: bool = False) -> list[str]:
        """Return the metrics of a name, or those of them with a value that is not finite."""
        return [name for name in (self._broken if broken else self._columns) if re.fullmatch(pattern, name)]

    def column(self, metric: str) -> tuple[Values, Values]:
        """Return the numbers of the steps that log a metric, and its values."""
        return self._columns.get(metric, (np.empty(0), np.empty(0)))

    def binomial(self, metric: str) -> float:
        """Return the standard deviation of a validation by its number of answers, the least of which all values are multiples."""
        if metric == ACCURACY:
            sources = [self.binomial(name) for name in self.metrics(VALIDATION) if name != ACCURACY]
            return math.hypot(*sources) / max(1, len(sources))
        values = self._finite(metric)
        if not metric.startswith("val-") or not len(values) or values.min() < 0 or values.max() > 1:
            return 0.0
        products = np.unique(values)[:, None] * np.arange(2, _PROBLEMS)
        fits = (np.abs(products - np.round(products)) < 1e-4).all(axis=0)
        answers = 2 + int(np.argmax(fits))
        mean = min(max(float(np.median(values)), 1 / answers), 1 - 1 / answers)
        return math.sqrt(mean * (1 - mean) / answers) if fits.any() else 0.0

    def worst_reward(self, metric: str) -> float:
        """Return the smallest reward of a response so far, NaN for metrics that are no reward."""
        rewards, least = self._finite(metric), self._finite("critic/score/min")
        if not re.fullmatch(REWARDS, metric) or not len(rewards):
            return math.nan
        return float(least.min() if len(least) else -np.abs(rewards).max() if rewards.min() < 0 else 0.0)

    def fill(self, remedy: str, first: int) -> str:
        """Fill in where to resume from and half of the learning rate."""
        numbers, values = self.column(ACCURACY)
        earlier = (numbers < first) & np.isfinite(values)
        step, why = first - 1, "or the last checkpoint before it"
        if earlier.any():
            best = int(np.argmax(values[earlier]))
            step, why = int(numbers[earlier][best]), f"the best validation, {values[earlier][best]:.3g}"
        resume = f"trainer.resume_mode=resume_path trainer.resume_from_path=RUN/global_step_{step} ({why})"
        rates = self._finite("actor/lr")
        rate = f"{rates[rates > 0][-1] / 2:.2g}" if (rates > 0).any() else "LOWER"
        return remedy.format(resume=resume if step > 0 else "in a new run", lr=rate)

    def _finite(self, metric: str) -> Values:
        values = self.column(metric)[1]
        return values[np.isfinite(values)]

    def _level(self, metric: str, after: float, upto: float) -> float:
        """Return the median of the latest values of some steps; NaN without any."""
        numbers, values = self.column(metric)
        chosen = values[(numbers > after) & (numbers <= upto) & np.isfinite(values)]
        return float(np.median(chosen[-max(2, min(_LATEST, len(values) // 5)) :])) if len(chosen) else math.nan

    def _before(self, metric: str, left: float) -> float:
        """Return the level at a step, or that of the start."""
        numbers = self.column(metric)[0]
        early = numbers[min(_LATEST, len(numbers) // 3)] if len(numbers) else left
        return self._level(metric, -math.inf, max(left, early))

    def _rise(self, metric: str, left: float, last: float) -> float:
        """Return the change of a level since a step in standard deviations of its noise, but at least of 3 % of it; or NaN."""
        values, before = self.column(metric)[1], self._before(metric, left)
        if len(values) < 3:
            return math.nan
        noise = noise_of(values, np.zeros(len(values), bool), binomial=self.binomial(metric))
        noise *= math.sqrt(2 / min(_LATEST, len(values) // 2))
        return (self._level(metric, left, last) - before) / max(noise, 0.03 * abs(before), 1e-9)

    def improves(self, left: float, _: float, last: float) -> float:
        """Return 2 if the accuracy, or where none is logged the reward, has risen with it."""
        logged = [metric for metric in (ACCURACY, _TRAINED) if len(self.column(metric)[0]) >= 3] or [REWARD]
        return 1.0 + any(self._rise(metric, left, last) > 2 for metric in logged)

    def harder_prompts(self, left: float, first: float, last: float) -> float:
        """Return more if the validation has not fallen, or the length of the prompts has changed with it."""
        holds = self._rise(ACCURACY, left, last) > -2 and self._level(ACCURACY, first, last) > 0
        return 3.4 if holds or abs(self._rise("prompt_length/mean", left, last)) > 5 else 1.0

    def training_stalls(self, left: float, _: float, last: float) -> float:
        """Excuse it unless the training reward has risen meanwhile."""
        return 1.0 if self._rise(REWARD, left, last) > 2 else math.inf

    def solved(self, _: float, first: float, last: float) -> float:
        """Excuse it where nearly all training rewards are the largest one."""
        accuracy, high = self._level(_TRAINED, first - 1, last), self._finite("critic/score/max")
        if math.isnan(accuracy) and len(rewards := self._finite(REWARD)):
            least, most = self.worst_reward(REWARD), high.max() if len(high) else max(rewards.max(), 1.0)
            accuracy = (self._level(REWARD, first - 1, last) - least) / max(most - least, 1e-9)
        return math.inf if accuracy >= 0.9 else 1.0

    def longer(self, left: float, first: float, last: float) -> float:
        """Excuse it where steps have more tokens, for each of which attention takes more time."""
        times, tokens = (
            [self._level(name, first - 1, last) / max(self._before(name, left), 1e-9) for name in self.metrics(kind)]
            for kind in (TIMES, _TOKENS)
        )
        grown = min(max([0.0, *tokens]), 1e9)
        return math.inf if 1.5 * grown**1.5 >= max(times) else 1.0

    def uniform(self, *_: float) -> float:
        """Excuse it where every weight is 1: the shaping ``uniform`` asks for GRPO."""
        return math.inf if (self.column(WEIGHT)[1] == 1.0).all() else 1.0
