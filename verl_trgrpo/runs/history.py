"""The history of a run's metrics: columns, levels, their noise, and what excuses a change."""

from __future__ import annotations

import math
import re
from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
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
_OLDEST = "trainer.v1.sampler.max_off_policy_threshold"
_SPIKE, _BEFORE = 10.0, 10  # a gradient so many times larger explains a fall so many steps later
_PART_OF_STEP = 0.6  # share of a step that its part counts as if it is less
_RARE = 0.01  # share below which odds are not told from it
HEAD = 9  # values at the beginning of which the median is a level while there are fewer than a level has
_LATEST = 5  # values of which the median is a level; fewer of a metric that is seldom logged
_FEW = 100  # values that decide that number
_OF_DATA = 0.75  # part of what had been reached that a reward may lose by the order of the data
_DEEPER, _LONGER = 1.4, 1.5  # ratios of depth and length up to which a fall is like an earlier one
_PROBLEMS = 2048  # most answers of a validation that are read from its values


def levels(y: Values, window: int) -> Values:
    """Return the median of the last `window` values, of fewer, and of nine at most, at the beginning."""
    head, known = list[float](), list[float]()
    for value in y[: window - 1].tolist():
        if len(known) < HEAD:
            insort(known, value)
        head.append((known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2)
    ordered = np.sort(sliding_window_view(y, window), axis=1)
    return np.concatenate([head, (ordered[:, (window - 1) // 2] + ordered[:, window // 2]) / 2])


def median(values: Values) -> float:
    """Return what numpy's median does, in a fifth of its time for few values; NaN without any."""
    ordered, size = np.sort(values), len(values)
    if not size or math.isnan(ordered[-1]):
        return math.nan
    return float((ordered[(size - 1) // 2] + ordered[size // 2]) / 2)


def sums(flags: Flags, window: int) -> Values:
    """Return how many of the last `window` flags are set."""
    return np.convolve(flags, np.ones(window))[: len(flags)]


def noise_of(y: Values, lag: int = 1, binomial: float = 0.0) -> float:
    """Return the standard deviation of a value, from differences at a distance; a `binomial` one is at most doubled by them."""
    differences = np.abs(y[lag:] - y[:-lag])
    noise = 1.4826 / math.sqrt(2) * median(differences) if len(differences) else 0.0
    if not noise and len(differences):  # of few different values most follow their like
        noise = math.sqrt(math.pi) / 2 * float(np.mean(differences))
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
        self._named: dict[tuple[str, bool], list[str]] = {}
        self._binomials: dict[tuple[str, int], float] = {}
        self._shares: dict[float, float] = {}
        self._end = math.inf

    def upto(self, end: float) -> History:
        """Return the history that ended at a step."""
        earlier = copy(self)
        earlier._end = min(self._end, float(end))
        return earlier

    def metrics(self, pattern: str, broken: bool = False) -> list[str]:
        """Return the metrics of a name, or those of them with a value that is not finite."""
        if (pattern, broken) not in self._named:
            names = self._broken if broken else self._columns
            self._named[pattern, broken] = [name for name in names if re.fullmatch(pattern, name)]
        return self._named[pattern, broken]

    def column(self, metric: str) -> tuple[Values, Values]:
        """Return the numbers of the steps that log a metric, and its values."""
        numbers, values = self._columns.get(metric, (np.empty(0), np.empty(0)))
        size = int(np.searchsorted(numbers, self._end, side="right"))
        return numbers[:size], values[:size]

    def binomial(self, metric: str) -> float:
        """Return the standard deviation of a validation by its number of answers, the least of which all values are multiples."""
        if metric == ACCURACY:
            sources = [self.binomial(name) for name in self.metrics(VALIDATION) if name != ACCURACY]
            return math.hypot(*sources) / max(1, len(sources))
        values = self._finite(metric)
        if not metric.startswith("val-") or not len(values) or values.min() < 0 or values.max() > 1:
            return 0.0
        known = metric, len(values)
        if known not in self._binomials:
            self._binomials[known] = self._binomial(values)
        return self._binomials[known]

    def _binomial(self, values: Values) -> float:
        distinct = np.unique(values)
        if len(distinct) > _PROBLEMS:  # more than the multiples of one number
            return 0.0
        products = distinct[:: 1 + len(distinct) // _FEW][:, None] * np.arange(2, _PROBLEMS)
        fits = (np.abs(products - np.round(products)) < 1e-4).all(axis=0)
        answers = 2 + int(np.argmax(fits))
        mean = min(max(median(values), 1 / answers), 1 - 1 / answers)
        return math.sqrt(mean * (1 - mean) / answers) if fits.any() else 0.0

    def worst_reward(self, metric: str) -> float:
        """Return the smallest reward of a response so far, NaN for metrics other than rewards."""
        rewards, least = self._finite(metric), self._finite("critic/score/min")
        if not re.fullmatch(REWARDS, metric) or not len(rewards):
            return math.nan
        return float(least.min() if len(least) else -np.abs(rewards).max() if rewards.min() < 0 else 0.0)

    def share_of_step(self) -> float:
        """Return the share of a step's time at the start below which a part of it does not matter."""
        if self._end not in self._shares:
            times = self.metrics(STEP_TIME)
            self._shares[self._end] = max((_PART_OF_STEP * self._before(name, 0.0) for name in times), default=0.0)
        return self._shares[self._end]

    def staleness(self) -> int:
        """Return how many updates older the weights of rollouts usually are than in synchronous training."""
        logged = [self._finite(name) for name in self.metrics(_STALE)]
        return max((math.ceil(median(values)) for values in logged if len(values)), default=0)

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
        """Fill in where to resume from, at the latest at a step, and half of the learning rate of what has the metric.

        Where responses are older than one update, half of their age comes to the rate.
        """
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
        older = self.staleness()
        slower = f"{model}.optim.lr={rate}" + (f" {_OLDEST}={older // 2}" if older > 1 and model != "critic" else "")
        return remedy.format(resume=resume if sound > 0 else "in a new run", slower=slower)

    def _finite(self, metric: str) -> Values:
        values = self.column(metric)[1]
        return values[np.isfinite(values)]

    def _level(self, metric: str, after: float, upto: float) -> float:
        """Return the median of the latest values of some steps; NaN without any."""
        numbers, values = self.column(metric)
        chosen = values[(numbers > after) & (numbers <= upto) & np.isfinite(values)]
        return median(chosen[-max(2, min(_LATEST, len(values) // 5)) :])

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
        noise = noise_of(values, binomial=self.binomial(metric))
        noise *= math.sqrt(2 / min(_LATEST, len(values) // 2))
        return (self._level(metric, left, last) - before) / max(noise, 0.03 * abs(before), 1e-9)

    def improves(self, _: str, left: float, __: float, last: float) -> float:
        """Return from 1 to 2 by how much the odds of a right answer have risen with it; 2 if these have doubled.

        They are those of the accuracy, or of the reward within its range where no accuracy is logged.
        """
        logged = [metric for metric in (ACCURACY, TRAIN_ACCURACY) if len(self.column(metric)[0]) >= 3] or [MEAN_REWARD]
        return 1.0 + max(min(1.0, self._gain(metric, left, last) / math.log(2)) for metric in logged)

    def _gain(self, metric: str, left: float, last: float) -> float:
        """Return the change of the logarithm of the odds since a step, of what is beyond two standard deviations."""
        rise, before, after = (
            self._rise(metric, left, last),
            self._before(metric, left),
            self._level(metric, left, last),
        )
        if not rise > 2:
            return 0.0
        after -= (after - before) * 2 / rise
        odds = np.clip([self._share(metric, level) for level in (before, after)], _RARE, 1 - _RARE)
        return float(np.diff(np.log(odds / (1 - odds)))[0])

    def _share(self, metric: str, level: float) -> float:
        """Return where a level is between the smallest and the largest reward of a response."""
        rewards, high = self._finite(MEAN_REWARD), self._finite("critic/score/max")
        if metric != MEAN_REWARD or not len(rewards):
            return level
        least = self.worst_reward(MEAN_REWARD)
        size = (high.max() if len(high) else max(1.0, rewards.max())) - least
        return float((level - least) / max(size, 1e-9))

    def recovers(self, metric: str, _: float, __: float, last: float) -> float:
        """Excuse it where it has become less by a tenth since the start, beyond its noise."""
        before, after = self._before(metric, -math.inf), self._level(metric, -math.inf, last)
        return math.inf if after < 0.9 * before and self._rise(metric, -math.inf, last) < -2 else 1.0

    def later(self, metric: str, _: float, first: float, __: float) -> float:
        """Excuse it where the first step of the run was sound, or is not logged."""
        numbers = self.column(metric)[0]
        return 1.0 if len(numbers) and first <= numbers[0] <= 1 else math.inf

    def training_fails(self, metric: str, _: float, __: float, last: float) -> float:
        """Excuse it unless every validation was 0 and half of the training is right."""
        trained = self._share(MEAN_REWARD, self._level(MEAN_REWARD, -math.inf, last))
        if len(self.column(TRAIN_ACCURACY)[0]):
            trained = self._level(TRAIN_ACCURACY, -math.inf, last)
        return 1.0 if trained >= 0.5 and not self.column(metric)[1].any() else math.inf

    def harder_prompts(self, _: str, left: float, first: float, last: float) -> float:
        """Return more if the validation has not fallen or is to come, or the length of the prompts has changed with it."""
        validated = self.column(ACCURACY)[0]
        to_come = len(validated) > 2 and validated[-1] < first and last - validated[-1] <= validated[-1] - validated[-2]
        holds = self._rise(ACCURACY, left, last) > -2 and self._level(ACCURACY, first, last) > 0
        return 3.4 if to_come or holds or abs(self._rise("prompt_length/mean", left, last)) > 5 else 1.0

    def _swings(self, metric: str) -> list[tuple[float, int]]:
        """Return by how much a level had fallen each time before it was back, and in how many values.

        The order of the data makes a training reward rise and fall with the epoch or a part of it; it loses no more than
        `_OF_DATA` of what was reached.
        """
        values, found = self._finite(metric), list[tuple[float, int]]()
        worst_reward, best, worst, since = self.worst_reward(metric), -math.inf, math.inf, 0
        for place, level in enumerate(levels(values, _LATEST).tolist() if len(values) > _LATEST else ()):
            if level > best - (best - worst) / 4 and worst < best:
                found.append((best - worst, place - since))
                worst, since = level, place
            if level >= best:
                best, since = level, place
            worst = min(worst, level)
        most = _OF_DATA * (best - (0.0 if math.isnan(worst_reward) else worst_reward))
        return [] if any(depth > most for depth, _ in found) else found

    def waves(self, metric: str, left: float, _: float, last: float) -> float:
        """Excuse it where it had fallen about as much before, was back, and is away for not much longer than then."""
        swings, numbers, values = self._swings(metric), self.column(metric)[0], self._finite(metric)
        if not swings:
            return 1.0
        deepest = max(depth for depth, _ in swings)
        longest = max(length for depth, length in swings if 2 * depth >= deepest)
        reached = levels(values, _LATEST)[_LATEST:].max()
        fallen = reached - min(median(values[-_LATEST:]), values[-2:].max())  # which two values show first
        is_short = np.count_nonzero((numbers > left) & (numbers <= last)) <= _LONGER * longest
        return math.inf if is_short and fallen <= _DEEPER * deepest else 1.0

    def is_wave(self, metric: str) -> bool:
        """Return whether a metric has fallen and was back twice, about as deep."""
        depths = sorted((depth for depth, _ in self._swings(metric)), reverse=True)
        return len(depths) > 1 and _DEEPER * depths[1] >= depths[0]

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
        trained, validated = self._level(TRAIN_ACCURACY, first - 1, last), self._level(ACCURACY, -math.inf, last)
        if math.isnan(trained):
            trained = self._share(MEAN_REWARD, self._level(MEAN_REWARD, first - 1, last))
        unsolved = max(validated, self._share(MEAN_REWARD, validated)) < 0.9  # of an accuracy, or a reward
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
