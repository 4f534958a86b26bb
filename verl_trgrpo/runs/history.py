"""The history of a run's metrics: columns, levels, their noise, and what excuses a change."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from verl_trgrpo.runs.metrics import GRAD_NORM, MEAN_REWARD, TRAIN_ACCURACY, Step

Values = np.ndarray[Any, np.dtype[Any]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

ACCURACY = "validation accuracy, the mean over sources,"
"""Stands for what veRL does not log, in messages, too."""

# Metrics by what they show, as regular expressions.
VALIDATION = rf"val-core/.+/(acc|reward)/mean@\d+|{ACCURACY}"
REWARDS = r"critic/(score|rewards)/mean"
STEP_TIME = r"timing_s/step|perf/time_per_step"
TIMES = rf"{STEP_TIME}|timing_s/(?!testing|save_)[^/]+"
_TOKENS = r"perf/total_num_tokens|response_length/mean"

_CRITIC = ("critic/vf", "critic/vpred", "critic/grad")
_KL = r"actor/(kl_loss|reward_kl_penalty)"
_STALE = r"training/off_policy/trajectory_staleness\w*/max"
_SPIKE, _BEFORE = 10.0, 10  # a gradient so many times larger explains a fall so many steps later
_PART_OF_STEP = 0.6  # share of a step that its part counts as if it is less
_LATEST = 5  # values of which the median is a level; fewer of a metric that is seldom logged
_FEW = 100  # values that decide that number
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
        distinct = np.unique(values)
        if len(distinct) > _PROBLEMS:  # more than the multiples of one number
            return 0.0
        products = distinct[:: 1 + len(distinct) // _FEW][:, None] * np.arange(2, _PROBLEMS)
        fits = (np.abs(products - np.round(products)) < 1e-4).all(axis=0)
        answers = 2 + int(np.argmax(fits))
        mean = min(max(float(np.median(values)), 1 / answers), 1 - 1 / answers)
        return math.sqrt(mean * (1 - mean) / answers) if fits.any() else 0.0

    def worst_reward(self, metric: str) -> float:
        """Return the smallest reward of a response so far, NaN for metrics other than rewards."""
        rewards, least = self._finite(metric), self._finite("critic/score/min")
        if not re.fullmatch(REWARDS, metric) or not len(rewards):
            return math.nan
        return float(least.min() if len(least) else -np.abs(rewards).max() if rewards.min() < 0 else 0.0)

    def share_of_step(self) -> float:
        """Return the share of a step's time at the start below which a part of it does not matter."""
        return max((_PART_OF_STEP * self._before(name, 0.0) for name in self.metrics(STEP_TIME)), default=0.0)

    def staleness(self) -> int:
        """Return how many updates older the weights of rollouts usually are than in synchronous training."""
        logged = [self._finite(name) for name in self.metrics(_STALE)]
        return max((math.ceil(np.median(values)) for values in logged if len(values)), default=0)

    def cause(self, left: float, first: int, sound: int, remedy: str) -> tuple[str, int, str]:
        """Return what explains a fall, the last step with sound weights, and the remedy; as they are where nothing does."""
        for name in self.metrics(_KL):
            before, after = self._level(name, -math.inf, left), self._level(name, first - 1, first + _LATEST)
            if after < before / 5:
                why = f"; {name} fell from {before:.3g} to {after:.3g} with it: were base weights loaded?"
                return why, sound, "look in the log which weights the resume loaded; {resume}"
        numbers, values = self.column(GRAD_NORM)
        since = min(left, first - _BEFORE)
        usual = self._level(GRAD_NORM, -math.inf, since)
        spikes = (numbers > since) & (numbers <= sound + 1) & (values > _SPIKE * usual) & (usual > 0)
        if not spikes.any():
            return "", sound, remedy
        step = int(numbers[spikes][0])
        why = f"; {GRAD_NORM} of {values[spikes].max():.3g} from step {step} on, {usual:.3g} before, is the likelier cause"
        return why, min(sound, step - 1), remedy

    def fill(self, remedy: str, metric: str, sound: int) -> str:
        """Fill in where to resume from, at the latest at a step, and half of the learning rate of what has the metric."""
        numbers, values = self.column(ACCURACY)
        earlier, why = (numbers <= sound) & np.isfinite(values), "or the last checkpoint before it"
        if earlier.any():
            best = int(np.argmax(values[earlier]))
            mean = ", the mean over sources" if len(self.metrics(VALIDATION)) > 2 else ""
            sound, why = int(numbers[earlier][best]), f"the best validation, {values[earlier][best]:.3g}{mean}"
        resume = f"trainer.resume_mode=resume_path trainer.resume_from_path=RUN/global_step_{sound} ({why})"
        model, of = ("critic", "critic") if metric.startswith(_CRITIC) else ("actor_rollout_ref.actor", "actor")
        rates = self._finite(f"{of}/lr")
        rate = f"{rates[rates > 0][-1] / 2:.2g}" if (rates > 0).any() else "LOWER"
        return remedy.format(resume=resume if sound > 0 else "in a new run", slower=f"{model}.optim.lr={rate}")

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

    def improves(self, _: str, left: float, __: float, last: float) -> float:
        """Return 2 if the accuracy, or where none is logged the reward, has risen with it."""
        logged = [metric for metric in (ACCURACY, TRAIN_ACCURACY) if len(self.column(metric)[0]) >= 3] or [MEAN_REWARD]
        return 1.0 + any(self._rise(metric, left, last) > 2 for metric in logged)

    def harder_prompts(self, _: str, left: float, first: float, last: float) -> float:
        """Return more if the validation has not fallen, or the length of the prompts has changed with it."""
        holds = self._rise(ACCURACY, left, last) > -2 and self._level(ACCURACY, first, last) > 0
        return 3.4 if holds or abs(self._rise("prompt_length/mean", left, last)) > 5 else 1.0

    def training_stalls(self, _: str, left: float, __: float, last: float) -> float:
        """Excuse it unless the training reward has risen meanwhile."""
        return 1.0 if self._rise(MEAN_REWARD, left, last) > 2 else math.inf

    def rate_was_larger(self, metric: str, _: float, __: float, last: float) -> float:
        """Excuse it where the rate has been larger or rises: it decays to 0 at the end, or warms up."""
        numbers, values = self.column(metric)
        values = values[(numbers <= last) & np.isfinite(values)]
        return math.inf if len(values) and (values.max() > 2.0**-31 or values[-1] > 2 * values[0]) else 1.0

    def critic_learns(self, metric: str, _: float, __: float, last: float) -> float:
        """Excuse it where it rises since the start."""
        return math.inf if self._rise(metric, -math.inf, last) > 2 else 1.0

    def solved(self, _: str, __: float, first: float, last: float) -> float:
        """Excuse it where nearly all rewards are the largest one, of the training and of the validation if there is one."""
        least, rewards, high = (
            self.worst_reward(MEAN_REWARD),
            self._finite(MEAN_REWARD),
            self._finite("critic/score/max"),
        )
        size = (high.max() if len(high) else max(1.0, *rewards) if len(rewards) else math.nan) - least
        trained, validated = self._level(TRAIN_ACCURACY, first - 1, last), self._level(ACCURACY, -math.inf, last)
        if math.isnan(trained):
            trained = (self._level(MEAN_REWARD, first - 1, last) - least) / max(size, 1e-9)
        unsolved = max(validated, (validated - least) / max(size, 1e-9)) < 0.9  # of an accuracy, or a reward
        return math.inf if trained >= 0.9 and not unsolved else 1.0

    def unsolved(self, *where: Any) -> float:
        """Excuse it where something is left to learn."""
        return 1.0 if self.solved(*where) > 1.0 else math.inf

    def longer(self, metric: str, left: float, first: float, last: float) -> float:
        """Excuse it where steps have more tokens, for each of which attention takes more time; in part where none are logged."""
        times, *tokens = (
            self._level(name, first - 1, last) / max(self._before(name, left), least, 1e-9)
            for name, least in [(metric, self.share_of_step()), *((name, 0.0) for name in self.metrics(_TOKENS))]
        )
        return 1.8 if not tokens else math.inf if 1.5 * min(max(0.0, *tokens), 1e9) ** 1.5 >= times else 1.0
