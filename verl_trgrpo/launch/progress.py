"""Progress of a training in one line, in place of veRL's log, and a line for each signal that appears or ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from tqdm import tqdm

from verl_trgrpo.common.text import for_terminal, show
from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.metrics import CUT_OFF_SHARE, EQUAL_GROUPS, GRAD_NORM, MEAN_REWARD, NO_ANSWER, WEIGHT, Step

# Shown beside the bar, as many as fit: label, metric (None: validation accuracy), format.
_FIGURES = (
    ("reward", MEAN_REWARD, "{:.2f}"),
    ("val acc", None, "{:.3f}"),
    ("weight", WEIGHT, "{:.3f}"),
    ("grad norm", GRAD_NORM, "{:.3g}"),
    ("equal groups", EQUAL_GROUPS, "{:.0%}"),
    ("no answer", NO_ANSWER, "{:.0%}"),
    ("cut off", CUT_OFF_SHARE, "{:.0%}"),
)
# A step is late after this many times the longest so far, and never before this many seconds; so is the first one.
_LATE, _NEVER_LATE = 5.0, 1800.0
_STARTING = "starting Ray, FSDP2 and vLLM (a minute or two)"
_BAR = "{desc}{n_fmt}/{total_fmt} |{bar:6}| {elapsed}<{remaining}{postfix}"
# What the line takes without its figures, for runs of up to 10,000 steps and 100 hours.
_BAR_WIDTH = 38


class RunProgress:
    """Draw a tqdm bar over training steps with the main metrics, and say when a signal of a sick run appears and ends.

    Args:
        total: number of training steps, or None if unknown.
        stream: a terminal gets a bar, anything else lines.
        start: step of the checkpoint that the run resumes from.
        every: without a terminal, seconds after which a step gets a line whether or not it validated.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        total: int | None,
        stream: TextIO,
        start: int = 0,
        every: float = 180.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._every, self._clock, self._started = stream, every, clock, False
        self._shown, self._shown_at = -1, clock()  # last step that has a line, and when it got it
        # When the last step came, seconds of the longest, and whether the next is said to be late.
        self._stepped_at, self._longest, self._late = clock(), 0.0, False
        self._total, self._start, self._began = total, start, clock()
        self._first: tuple[int, float] | None = None  # the first step that was seen, and when
        self._accuracy: float | None = None
        self._standing: dict[str, str] = {}
        self._judged: Step | None = None  # last step when the signals were looked for
        terminal = stream.isatty()
        self._bar = tqdm(
            total=total, initial=start, unit="step", file=stream, disable=not terminal, dynamic_ncols=True,
            bar_format=_BAR, desc=_STARTING,
        )  # fmt: skip
        if not terminal:
            show(f"{_STARTING} ...", stream)

    def update(self, steps: Sequence[Step]) -> None:
        """Show the state of the run after all of its `steps` so far, with those of earlier attempts that led to its start."""
        for step in steps:
            if step.accuracy is not None:
                self._accuracy = step.accuracy
        history, steps = steps, [step for step in steps if step.number > self._start or not self._start]
        if steps and self._first is None:
            self._first = steps[-1].number, self._clock()
        for step in steps:
            late = step is steps[-1] and self._clock() - self._shown_at >= self._every
            if self._bar.disable and step.number > self._shown and (step.accuracy is not None or late):
                self._shown, self._shown_at = step.number, self._clock()
                show(f"step {step.number}{self._times(step)}: {', '.join(self._figures(step))}", self._stream)
        if steps and steps[-1] != self._judged:
            if self._judged:  # the start of the processes is not a step
                self._longest = max(self._longest, self._clock() - self._stepped_at)
            self._judged, self._stepped_at, self._late = steps[-1], self._clock(), False
            self._signal(history)
        waited = self._clock() - self._stepped_at
        if not self._late and waited > max(_LATE * self._longest, _NEVER_LATE):
            self._late, last = True, f"since step {steps[-1].number}" if steps else "yet"
            message = f"warning: no step {last} for {waited / 60:.0f} minutes: a process may wait for another; look at the log"
            self._say(message)
        if steps and not self._started:
            # The start of the processes is not a step: times per step count from here.
            self._started, self._bar.initial, self._bar.start_t = True, steps[-1].number, time.time()
            self._bar.set_description_str("", refresh=False)
        if steps:
            self._bar.n = steps[-1].number
            self._bar.set_postfix_str(for_terminal(self._fitting(self._figures(steps[-1]))), refresh=False)
        self._bar.refresh()

    def close(self) -> None:
        self._bar.close()

    def _signal(self, steps: Sequence[Step]) -> None:
        """Write a line for each signal that has appeared or ended since the last call, in a long run not at each step."""
        if len(steps) % (1 + len(steps) // 1000):
            return
        standing = {
            found.signal.name: f"{'machine' if found.signal.machine else 'warning'}: {found.message}; {found.remedy}"
            for found in judge(steps)
            if found.stands
        }
        for name in standing.keys() - self._standing.keys():
            self._say(standing[name])
        for name in self._standing.keys() - standing.keys():
            self._say(f"note: ended at step {steps[-1].number}: {name}")
        self._standing = standing

    def _times(self, step: Step) -> str:
        """Return what of the run is done, the minutes that it took, and those that are left at the pace after the first step."""
        number, at = self._first or (step.number, 0.0)
        now, left = self._clock(), ""
        if self._total and step.number > number:
            left = f", about {(now - at) / (step.number - number) * (self._total - step.number) / 60:.0f} min left"
        return f"{f' of {self._total}' if self._total else ''} ({(now - self._began) / 60:.0f} min{left})"

    def _say(self, line: str) -> None:
        self._bar.write(for_terminal(line), file=self._stream)

    def _figures(self, step: Step) -> list[str]:
        values = [
            (label, form, self._accuracy if metric is None else step.metrics.get(metric))
            for label, metric, form in _FIGURES
        ]
        return [f"{label} {form.format(value)}" for label, form, value in values if value is not None]

    def _fitting(self, figures: Sequence[str]) -> str:
        """Return as many figures as the terminal has room for beside the bar."""
        room = (self._bar.format_dict.get("ncols") or 120) - _BAR_WIDTH
        shown = list(figures)
        while len(shown) > 1 and len(", ".join(shown)) > room:
            shown.pop()
        return ", ".join(shown)
