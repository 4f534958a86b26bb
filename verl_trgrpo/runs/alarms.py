"""Find the alarms of one metric in one pass over its values: an alarm at a value depends only on the values up to it.

A level, the median of the last values, is compared with the quantity's own start or with the best level it had reached. An alarm
is raised where the level is worse by more than the change that the row names and by more than its noise; two values are enough
if they are worse by far more, and single ones if they keep coming. It lasts until the values have been back for as many as a
level has, or until what excuses the change has held for as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from verl_trgrpo.runs.history import HEAD, TIMES, Flags, History, Values, levels, median, noise_of, sums
from verl_trgrpo.runs.signals import Signal

START = 5
"""Values that make a start; fewer in a short run."""

_SURE, _SURE_ALONE, _SURE_TWO = 5.0, 8.0, 10.0  # standard deviations by which a level, a value alone, and two are worse
_UNSURE = 6.0  # values by which the noise is known as well as not
_LONGEST = 9  # values that make a level at least; fewer in a short run
_FEWEST = {"finite": 1, "bound": 3, "repeat": 6}  # values that make a level, of units that are compared with no history
_RECENT, _FAR, _BEYOND = 20, 3, 15  # of so many values that many far outside the noise, or beyond a bound, keep coming
_WARM = 10  # values after which a state of the start is named: the rate warms up, a base model learns to answer
_BACK = 0.75  # part of the change below which a level is back
_BY_CHANCE = 0.005  # chance of so many values in a row that are back while an alarm goes on
_SILENT = 60  # values after which an alarm ends, however often it has come back
_REST = 10  # values that have to be back, at least; fewer in a short run
_RENEWED = 6  # start, noise and length of a level are taken anew when a run is longer by this part
_ASKED = 50  # an excuse is asked for again when a run is longer by this part


@dataclass
class Alarm:
    """A state of a metric that was found at place `raised` of its values.

    Args:
        sick: places of the sick values so far, the first of which may be long before it was found.
        away: how many values had a level that was not back.
        left: step of the last value that was like what it is compared with.
        against: what it is compared with, in words.
        scale: factor of the change that an excuse allowed.
        at_start: whether the metric had no sound value before.
        ended: place at which the level had been back, or the change excused, for long enough; None while it stands.
        excused: whether it ended by an excuse.
    """

    raised: int
    sick: list[int]
    away: int
    left: float
    against: str
    scale: float
    at_start: bool
    ended: int | None = None
    excused: bool = False
    _away: int = 0  # last place that was not back
    _unexcused: int = 0  # last place at which no excuse held
    _asked: int = 0

    since: int = 0  # place from which it is counted how often values are away
    _before: int = 0  # of these, those before the first sick one

    @property
    def silence(self) -> float:
        """Return how many values in a row are hardly back by chance, where they are away as often as so far; 0 if all were away.

        What came k times in m values, as often at any place, is absent from the next s with a chance of (m / (m + s))^k.
        """
        seen, times = self._away + 1 - self.since, max(1, self._before + self.away)
        return min(_SILENT, seen * (_BY_CHANCE ** (-1 / times) - 1)) if times < seen else 0.0

    def follow(self, earlier: Alarm) -> None:
        """Count from the beginning of an alarm that has come back."""
        self.since, self._before = earlier.since, earlier._before + earlier.away


@dataclass(frozen=True)
class Column:
    """Values of a metric with the numbers of their steps, and the row by which they are judged."""

    signal: Signal
    metric: str
    history: History
    numbers: Values
    values: Values

    @classmethod
    def of(cls, signal: Signal, metric: str, history: History) -> Column:
        """Return the values of a metric that a row can judge."""
        numbers, values = history.column(metric)
        if signal.unit == "finite":
            return cls(signal, metric, history, numbers, values)
        # What is 0 for a while, such as a gradient, does not explode when it begins.
        usable = np.isfinite(values) & ((values != 0) | (signal.unit != "factor") | signal.falls)
        return cls(signal, metric, history, numbers[usable], values[usable])

    @property
    def lowest(self) -> float | None:
        """Return the value that it always has and that cannot become worse, None if there is another."""
        if not len(self.values):
            return 0.0
        worst = self.history.worst_reward(self.metric)
        least = 0.0 if math.isnan(worst) else worst
        return least if self.signal.unit == "part" and self.values.max() <= least else None

    @np.errstate(all="ignore")  # of values near the largest number
    def alarms(self) -> list[Alarm]:
        """Return the alarms so far in order; all but the last one have ended."""
        badness, found = _badness(self.signal, self.values), list[Alarm]()
        alarm, look, granted = None, 0, 1.0
        for size, end in _parts(len(self.values)):
            part = _Part.of(self, badness[:end], size)
            if part is None or (alarm is None and not part.may_raise(granted)):
                continue
            for i in range(size - 1, end):
                if alarm:
                    granted = max(granted, self._continue(part, alarm, i))
                    alarm = alarm if alarm.ended is None else None
                elif i >= look and part.flags(granted).raised[i]:
                    alarm, look = self._raise(part, i, granted), i + 1 + i // _ASKED
                    if alarm and found and not found[-1].excused:
                        alarm.follow(found[-1])
                    found += [alarm] if alarm else []
        if found and "waves" in self.signal.excuses and self.history.is_wave(self.metric):
            for each in found:
                each.excused |= each.ended is not None
        return found

    def _raise(self, part: _Part, i: int, granted: float) -> Alarm | None:
        """Return the alarm that value `i` raises, None if it is excused; an excuse that ended an earlier one holds."""
        first = part.begin(granted, i)
        scale = max(granted, self._excuse(part, first, i))
        if scale > granted:
            if not (math.isfinite(scale) and part.flags(scale).raised[i]):
                return None
            first = part.begin(scale, i)
        flags = part.flags(scale)
        sick = first + np.flatnonzero((flags.near | flags.alone)[first : i + 1])
        at_start = bool((flags.near | np.isnan(part.reference))[:first].all())
        if at_start and i + 1 < _WARM and part.window > 1:
            return None
        far = np.flatnonzero(flags.alone[:i])
        far = far[(far > i - _RECENT) & (far < first)]
        return Alarm(
            i,
            sick.tolist(),
            len(sick),
            self._left(part, first),
            self._against(part, first, i),
            scale,
            at_start,
            _away=i,
            _unexcused=i,
            since=int(far[0]) if len(far) else first,
            _before=len(far),
        )

    def _continue(self, part: _Part, alarm: Alarm, i: int) -> float:
        """Add a value to an alarm that stands, and end it if that is due; return the larger change that an excuse then allows."""
        flags = part.flags(alarm.scale)
        if flags.near[i] or flags.alone[i]:
            alarm.sick.append(i)
        rest = _REST if part.window == 1 else max(part.window, min(_REST, i // 4))
        if away := bool(flags.alone[i] or part.reaches(alarm.scale * _BACK, i)):
            alarm.away, alarm._away = alarm.away + 1, i
        if i >= alarm._asked:
            alarm._asked = i + 1 + i // _ASKED
            scale = self._excuse(part, alarm.sick[0], i)
            if not away or scale <= alarm.scale or (math.isfinite(scale) and part.reaches(scale, i)):
                alarm._unexcused = i
            alarm.excused = i - alarm._unexcused >= rest
        else:
            scale = 1.0
        if alarm.excused or i - alarm._away >= max(rest, alarm.silence):
            alarm.ended = i
        return scale if alarm.excused and math.isfinite(scale) else 1.0

    def _excuse(self, part: _Part, first: int, i: int) -> float:
        """Return by how much larger a change is allowed, by what is known at value `i`."""
        history, left = self.history.upto(self.numbers[i]), self._left(part, first)
        where = self.metric, left, self.numbers[first], self.numbers[i]
        return max((getattr(history, each)(*where) for each in self.signal.excuses), default=1.0)

    def _left(self, part: _Part, first: int) -> float:
        part_of = -0.5 if self.signal.unit in _FEWEST else 0.25  # of a bound it is half of it on the sound side
        calm = np.flatnonzero(~(part.level - part.reference >= part_of * part.change)[:first])
        last = int(calm[-1]) - (part.window - 1) // 2 if len(calm) else 0  # a level is that of the middle of its values
        return float(self.numbers[max(0, last)])

    def _against(self, part: _Part, first: int, i: int) -> str:
        """Say what the quantity had been before place `first`, of an alarm that value `i` raises."""
        signal = self.signal
        if signal.unit in _FEWEST:
            return ""
        if signal.unit == "part":
            best = int(np.argmin(np.abs(part.level[:first] - part.reference[i])))
            return f", was {-part.level[best]:.3g} at step {self.numbers[best]:.0f}"
        start, far = median(self.values[: part.count]), float(signal.unit == "distance")
        bound = min(max(abs(start - far), part.normal[0]), part.normal[1])
        clipped = "" if signal.falls or math.isclose(bound, abs(start - far)) else f", sound to {abs(far - bound):.3g}"
        return f", at the start {start:.3g}{clipped}"


class _Flags(NamedTuple):
    """By value: more than half of the change away, far away on its own, and whether the last ones raise an alarm."""

    near: Flags
    alone: Flags
    raised: Flags


class _Part:
    """Values up to an end on the scale of a row, with start, noise and length of a level of the first `size` of them.

    Most parts are of sound values that `may_raise` tells from their start alone: what takes longer is computed when it is asked
    for.
    """

    @classmethod
    def of(cls, column: Column, y: Values, size: int) -> _Part | None:
        """Return None for fewer values than can be judged."""
        signal = column.signal
        bounded, window = signal.unit in _FEWEST, max(signal.lasts, _FEWEST.get(signal.unit, 2))
        if size < window + (not bounded):
            return None
        if window > 1:
            window = max(window, min(_LONGEST if bounded else _LONGEST + size // 50, size // 5))
        return cls(column, y, size, window)

    def __init__(self, column: Column, y: Values, size: int, window: int) -> None:
        self.signal, self.metric, self.y, self.size, self.window = column.signal, column.metric, y, size, window
        self._column = column
        self._is_bounded, self._flags = self.signal.unit in _FEWEST, dict[float, _Flags]()
        self.count = min(START, max(2, size // 3))
        self.start = median(y[: self.count])

    @cached_property
    def _history(self) -> History:
        return self._column.history.upto(self._column.numbers[self.size - 1])

    @cached_property
    def normal(self) -> tuple[float, float]:
        """Return the range to which the start is clipped."""
        return (self._history.share_of_step(), math.inf) if self.signal.metrics == TIMES else self.signal.normal

    @cached_property
    def level(self) -> Values:
        """Return the level at each value."""
        return levels(self.y, self.window)

    @cached_property
    def _compared_with(self) -> tuple[Values, Values]:
        if self._is_bounded:
            bound = np.full(len(self.y), self._bound)
            return bound, np.abs(bound)
        if self.signal.unit == "part":
            reference = _best(self.level, self.window, self.noise)
            return reference, _change(self.signal, reference, self.start, self._worst)
        return _start(self.signal, len(self.y), self.count, self.start, self.normal)

    @property
    def reference(self) -> Values:
        """Return what each value is compared with."""
        return self._compared_with[0]

    @property
    def change(self) -> Values:
        """Return the change that matters at each value."""
        return self._compared_with[1]

    @cached_property
    def _worst(self) -> float:
        return self._history.worst_reward(self.metric)

    @property
    def _bound(self) -> float:
        return -self.signal.change if self.signal.falls else self.signal.change

    @cached_property
    def noise(self) -> float:
        """Return the standard deviation of a value."""
        return noise_of(self.y[: self.size], binomial=self._history.binomial(self.metric)) * (1 + _UNSURE / self.size)

    @cached_property
    def wander(self) -> float:
        """Return the standard deviation of a level."""
        return noise_of(self.level[: self.size], self.window) if self.size > 8 * self.window else 0.0

    def may_raise(self, scale: float) -> bool:
        """Return False where no value from `size` on can raise an alarm, since the worst one of a level is within the change."""
        worst = self.y[self.size - (1 if self._is_bounded else self.window) :].max()
        if self._is_bounded:
            return bool(worst >= self._bound + (scale - 1) * abs(self._bound))
        if self.signal.unit == "part":  # the better the best level, the larger is the change from it
            reference = self.y.min(keepdims=True)
            change = _change(self.signal, reference, self.start, self._worst)
        else:
            reference, change = _start(self.signal, 1, 0, self.start, self.normal)
        return bool(worst - reference[0] >= scale * change[0])

    def reaches(self, scale: float, i: int) -> bool:
        """Return whether the level of a value is worse by more than the change times a scale."""
        value, excess = (self.y[i], max(scale, 1) - 1) if self.signal.unit in _FEWEST else (self.level[i], scale)
        return bool(value - self.reference[i] >= excess * self.change[i])

    def flags(self, scale: float) -> _Flags:
        """Return what the values show if a change may be larger by a scale."""
        if scale not in self._flags:
            self._flags[scale] = self._bounded(scale) if self.signal.unit in _FEWEST else self._compared(scale)
        return self._flags[scale]

    def _bounded(self, scale: float) -> _Flags:
        near = self.y >= self.reference + (scale - 1) * self.change
        raised = sums(near, self.window) == self.window
        if self.window > 1:
            raised |= near & (sums(near, _RECENT) >= max(_BEYOND, self.window))
        return _Flags(near, np.zeros(len(near), bool), raised)

    def _compared(self, scale: float) -> _Flags:
        change, window = scale * self.change, self.window
        worse, full = self.y - self.reference, self.reference + change
        half = full - change / 2
        if self.signal.unit != "part":
            half = np.minimum(full, (np.maximum(self.start, self.reference) + full) / 2)  # not from below its own start
        else:  # nothing is compared with the first values, but they can be sick as those behind
            half[: self.window] = half[self.window : self.window + 1] if len(half) > self.window else math.nan
        near = self.y >= half
        steady = self.signal.metrics != TIMES  # of which single ones are those of a validation or a checkpoint
        alone = (worse >= np.maximum(1.5 * change, _SURE_ALONE * self.noise)) & steady
        sure = _SURE * np.maximum(
            self.noise * np.sqrt(2 / np.minimum(np.arange(1, len(near) + 1), window)), self.wander
        )
        raised = self.level - self.reference >= np.maximum(change, sure)
        if self.signal.unit == "part":
            raised |= self._slow(change)
        raised &= sums(near, window) > window / 2
        raised |= (sums(worse >= np.maximum(2 * change, _SURE_TWO * self.noise), 2) == 2) & steady
        return _Flags(near, alone, raised | (alone & (sums(alone, _RECENT) >= _FAR)))

    def _slow(self, change: Values) -> Flags:
        """Return where the mean of a third of the run is below the best one before, of which less is noise than of a level."""
        longer = max(self.window, self.size // 3)
        best, summed = np.full(len(self.y), np.nan), np.cumsum(self.y)
        means = (summed - np.concatenate([np.zeros(longer), summed])[: len(summed)]) / longer
        means[: longer - 1] = np.inf
        best[longer:] = np.minimum.accumulate(means)[:-longer]
        sure = _SURE * max(self.noise * math.sqrt(2 / longer), self.wander * math.sqrt(self.window / longer))
        return means - best >= np.maximum(change, sure)

    def begin(self, scale: float, i: int) -> int:
        """Return where the values that raise an alarm at value `i` begin to be sick."""
        near, alone, raised = self.flags(scale)
        lasts = near[: i + 1][-self.window :]
        if lasts.sum() > self.window / 2:
            first = i + 1 - len(lasts) + int(np.argmax(lasts))
        else:
            first = i + 1 - len(alone[: i + 1][-_RECENT:]) + int(np.argmax(alone[: i + 1][-_RECENT:]))
        while first and near[first - 1]:
            first -= 1
        if i < first + 2 * self.window:  # noise before a jump is near at times: begin where most are
            found = first + int(np.argmax(raised[first : i + 1]))
            ahead = np.cumsum(np.where(near[first:found], 1, -1))
            first += int(np.argmin(ahead) + 1) if (ahead < 0).any() else 0
        return first


def _parts(size: int) -> Iterator[tuple[int, int]]:
    """Return lengths of a run from one to the next of which start, noise and length of a level are kept."""
    begin = 1
    while begin <= size:
        end = min(size, begin + begin // _RENEWED)
        yield begin, end
        begin = end + 1


def _badness(signal: Signal, values: Values) -> Values:
    """Return values on a scale on which more is worse and differences are changes."""
    if signal.unit == "finite":
        return np.where(np.isfinite(values), -1.0, 1.0)
    if signal.unit == "repeat":
        varied = np.maximum.accumulate(values) > np.minimum.accumulate(values) if len(values) else values > 0
        return -np.abs(np.diff(values, prepend=np.inf)) - ((values == 0) | ~varied)
    if signal.unit in ("factor", "distance"):
        values = np.log(np.maximum(np.abs(values - (signal.unit == "distance")), 1e-9))
    return -values if signal.falls else values


def _best(level: Values, window: int, noise: float) -> Values:
    """Return the best level before each value; NaN where there is none yet.

    What less than half of the values of a level had reached counts less, by the noise that it has more.
    """
    size, reference = len(level), np.full(len(level), np.nan)
    known = np.minimum(np.arange(1, min(window, size + 1)), HEAD)
    more = np.sqrt(1 / known + 1 / window) - math.sqrt(2 / window)
    less = np.zeros(size)
    less[: len(known)] = _SURE * noise * np.where((2 * known < window) | (known <= 2), more, 0)
    reference[window:] = np.minimum.accumulate(level + less)[: size - window]
    return reference


def _change(signal: Signal, reference: Values, start: float, worst: float) -> Values:
    """Return the part of what had been reached that matters.

    `worst` is the smallest reward of a response: rewards are parts of what is between it and the best level.
    """
    return signal.change * np.fmax(np.maximum(np.abs(reference), start - reference), -worst - reference) + 1e-9


def _start(signal: Signal, size: int, count: int, start: float, normal: tuple[float, float]) -> tuple[Values, Values]:
    """Return the start within its normal range, and the change that matters; what is beyond the range is so at once."""
    logarithm, reference = signal.unit != "share", np.full(size, np.nan)
    low, high = (math.log(max(end, 1e-9)) if logarithm else end for end in normal)
    reference[0 if start > high and not signal.falls else count :] = (
        start if signal.falls else min(max(start, low), high)
    )
    return reference, np.full(size, math.log(signal.change) if logarithm else signal.change)
