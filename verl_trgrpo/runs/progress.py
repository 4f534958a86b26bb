"""One line of progress in place of veRL's thousand lines of output."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TextIO

from tqdm import tqdm

from verl_trgrpo.runs.metrics import EQUAL_GROUPS, GRAD_NORM, NO_ANSWER, WEIGHT, Step

# Nearly all groups, in so many steps one after the other, call for a warning.
_NEARLY_ALL, _PATIENCE = 0.9, 3


class Progress:
    """A tqdm bar over training steps with the figures that tell whether it learns, and a warning where it cannot.

    Args:
        total: training steps, or None when unknown.
        start: step of the checkpoint that the run goes on from.
        stream: where to draw; not a terminal means one plain line per validation instead of a moving bar.
    """

    def __init__(self, total: int | None, stream: TextIO, start: int = 0) -> None:
        self._stream, self._reported = stream, -1
        self._accuracy: float | None = None
        self._warned = False
        self._bar = tqdm(
            total=total, initial=start, unit="step", file=stream, disable=not stream.isatty(), dynamic_ncols=True
        )
        print("starting Ray, FSDP2 and vLLM (a minute or two) ...", file=stream, flush=True)

    def update(self, steps: Sequence[Step]) -> None:
        """Show where the run is, given its steps so far."""
        for step in steps:
            if step.accuracy is not None:
                self._accuracy = step.accuracy
                if step.number > self._reported:
                    self._reported = step.number
                    if self._bar.disable:
                        print(f"step {step.number}: {self._figures(step)}", file=self._stream, flush=True)
        if not self._warned and (warning := nothing_to_learn(steps)):
            self._warned = True
            self._bar.write(f"warning: {warning}", file=self._stream)
        if steps:
            self._bar.n = steps[-1].number
            self._bar.set_postfix_str(self._figures(steps[-1]))

    def close(self) -> None:
        self._bar.close()

    def _figures(self, step: Step) -> str:
        figures = [
            ("reward", step.reward, "{:.2f}"),
            ("val acc", self._accuracy, "{:.3f}"),
            ("grad norm", step.metrics.get(GRAD_NORM), "{:.3f}"),
            ("mean weight", step.metrics.get(WEIGHT), "{:.3f}"),
            ("equal groups", step.metrics.get(EQUAL_GROUPS), "{:.0%}"),
            ("no answer", step.metrics.get(NO_ANSWER), "{:.0%}"),
        ]
        return ", ".join(f"{name} {form.format(value)}" for name, value, form in figures if value is not None)


def nothing_to_learn(steps: Sequence[Step]) -> str:
    """What is wrong, in plain words, where the rewards of nearly all groups were equal in the last steps; else nothing."""
    last = [step for step in steps if EQUAL_GROUPS in step.metrics][-_PATIENCE:]
    if len(last) < _PATIENCE or min(step.metrics[EQUAL_GROUPS] for step in last) < _NEARLY_ALL:
        return ""
    equal = fmean(step.metrics[EQUAL_GROUPS] for step in last)
    reward = fmean(step.reward for step in last if step.reward is not None)
    text = (
        f"in steps {last[0].number} to {last[-1].number} the responses of nearly all groups ({equal:.0%}) had equal rewards "
        f"(mean {reward:.2f}), from which GRPO learns nothing. "
    )
    without = [step.metrics[NO_ANSWER] for step in last if NO_ANSWER in step.metrics]
    if without and fmean(without) > 0.5:
        return text + (
            f"{fmean(without):.0%} of the responses had no answer that the reward could read: compare a few with what it "
            "wants (verl-trgrpo preview), give longer responses (data.max_response_length), or warm-start the model"
        )
    return text + (
        "Look at a few responses and their rewards (verl-trgrpo preview): prompts may be far too easy or too hard for the "
        "model, or the reward may not read its answers"
    )
