"""Judge a run by its metrics: the rows of signals.py, each judged by the one pass of alarms.py.

tests/runs/made_runs.py and growing_runs.py make the runs by which this is judged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from verl_trgrpo.common.text import count_of
from verl_trgrpo.runs.alarms import START, Column
from verl_trgrpo.runs.history import History
from verl_trgrpo.runs.metrics import MEAN_REWARD, Step
from verl_trgrpo.runs.signals import SIGNALS, Signal

_LOST, _LOST_STEPS = 0.1, 3  # what came and went counts if it took this share of the steps, and this many
_SHOWN = 9  # last sick values, whose median is shown
_SOURCE, _REWARD = r"val-\w+/(.+)/[^/]+/mean@\d+", r"critic/(rewards|acc)/mean"  # whose numbers are another metric's


@dataclass(frozen=True)
class Observation:
    """A signal that stood in a run, from step `first` to `last` of a metric, of which `facts` say level, start and count.

    `cause` says what came before that explains it. The signal `stands` at the last step that logs the metric; `lost` is one that
    took a share of the run that counts. `sound` is the last step before it whose weights are sound.
    """

    signal: Signal
    metric: str
    first: int
    last: int
    facts: str
    cause: str
    stands: bool
    lost: bool
    remedy: str
    sound: int

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Return an order of the findings of a signal, the largest of which is reported; a part of a step's time says more."""
        return self.stands, self.lost, "step" not in self.metric, -self.first

    def repeats(self, other: Observation) -> bool:
        """Return whether the other one shows the same fault: from the same step in the same numbers, or in one validation."""
        source, its = (re.sub(_REWARD, MEAN_REWARD, re.sub(_SOURCE, r"\1", each.metric)) for each in (self, other))
        at_once = self.first <= other.last + 1 if self.metric.startswith("val-") else self.first <= other.first + 1
        return source == its and at_once and self.is_sick <= other.is_sick

    @property
    def state(self) -> str:
        """Return the word of the `health` command for it."""
        if self.signal.note:
            return "note"
        if self.signal.machine and self.stands:
            return "machine"
        return "active" if self.stands else "lasted" if self.lost else "ended"

    @property
    def is_sick(self) -> bool:
        """Return whether somebody should look at it now."""
        return self.counts and not self.signal.machine

    @property
    def counts(self) -> bool:
        """Return whether it is more than a note: a fault of the run or of its machine."""
        return (self.stands or self.lost) and not self.signal.note

    @property
    def steps(self) -> str:
        """Return first and last step in words."""
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"

    @property
    def message(self) -> str:
        """Return state, steps, values and meaning in one sentence."""
        when = f"since step {self.first}" if self.stands else f"in {self.steps}"
        return f"{self.signal.name} {when} ({self.facts}): {self.signal.means}{self.cause}"


def judge(steps: Sequence[Step], signals: Sequence[Signal] = SIGNALS) -> list[Observation]:
    """Return the signals that stand or stood in a run so far, of which `steps` are in order; the first to begin is the first."""
    history, most = History(steps), dict[str, Observation]()
    for signal in signals:
        for metric in history.metrics(signal.metrics, broken=signal.unit == "finite"):
            found = _find(signal, metric, history)
            known = most.get(signal.name)
            if found and (not known or found.rank > known.rank):
                most[signal.name] = found
    faults: list[Observation] = []
    for found in sorted(most.values(), key=lambda found: found.first):
        if not any(found.repeats(other) for other in faults):
            faults.append(found)
    resuming = [found.sound for found in faults if found.is_sick and "{resume}" in found.remedy]

    def filled(found: Observation) -> Observation:
        # What began later is resumed from before the first, too: a checkpoint in between has its fault.
        sound = min([found.sound, *resuming]) if found.is_sick else found.sound
        return replace(found, remedy=history.fill(found.remedy, found.metric, sound))

    return [filled(found) for found in faults]


def is_known(steps: Sequence[Step]) -> bool:
    """Return whether a run logs any metric that a row of the table names."""
    history = History(steps)
    known = (name for signal in SIGNALS if signal.unit != "finite" for name in history.metrics(signal.metrics))
    return any(len(history.column(name)[0]) for name in known)


def unjudged(steps: Sequence[Step]) -> list[str]:
    """Return what cannot be judged in a run, and why."""
    history, reasons = History(steps), defaultdict[str, list[str]](list)
    for row in SIGNALS:
        if row.quantity:
            reasons[row.quantity].append(_why_unjudged(row, history))
    # A row that can judge it is enough; that it is always at its lowest says more than that it is not logged.
    missing = [
        next((each for each in found if each != quantity), quantity)
        for quantity, found in reasons.items()
        if all(found)
    ]
    few = [f"small changes (only {count_of(len(steps), 'step')})"] * (len(steps) < 3 * START)
    return missing + few


def _why_unjudged(row: Signal, history: History) -> str:
    """Return a quantity with the reason why a row cannot judge it, "" if it can: what is always at its lowest cannot fall."""
    columns = [Column.of(row, name, history) for name in history.metrics(row.metrics)]
    if not any(len(history.column(each.metric)[0]) for each in columns):
        return row.quantity
    lowest = [each.lowest for each in columns]
    return f"{row.quantity.partition(' (')[0]} (always {lowest[0]:.3g})" if None not in lowest else ""


@np.errstate(all="ignore")  # of values near the largest number
def _find(signal: Signal, metric: str, history: History) -> Observation | None:
    """Return what one metric shows of a signal, or None."""
    column = Column.of(signal, metric, history)
    update, size = signal.unit == "finite", len(column.values)  # an update is lost at once, a state in more steps
    alarms = [
        each for each in column.alarms() if each.ended is None or not (each.excused or (each.at_start and not update))
    ]
    if not alarms:
        return None
    sick = sum(len(each.sick) for each in alarms)
    lost = sum(each.away for each in alarms) >= max(_LOST_STEPS, (_LOST / 2 if update else _LOST) * size)
    stands = alarms[-1].ended is None and not (update and sick < 2)
    shown = alarms[-1] if stands else max(alarms, key=lambda each: len(each.sick))
    began, ended = (int(column.numbers[shown.sick[place]]) for place in (0, -1))
    level = float(np.median(column.values[shown.sick[-_SHOWN:]]))
    cause, sound, remedy = "", began - signal.back - (signal.back > 1) * history.staleness(), signal.remedy
    if signal.unit == "part":
        cause, sound, remedy = history.cause(shown.left, began, sound, remedy)
    return Observation(
        signal, metric, began, ended, f"{metric} {level:.3g}{shown.against}, {sick} of {count_of(size, 'value')}", cause,
        stands, lost, remedy, sound,
    )  # fmt: skip
