"""Progress of a training in one line, in place of veRL's log."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TextIO

from tqdm import tqdm

from verl_trgrpo.runs.metrics import CUT_OFF, EQUAL_GROUPS, GRAD_NORM, NO_ANSWER, REWARD, WEIGHT, Step

# Shown beside the bar: label, metric (None: validation accuracy), format.
_FIGURES = (
    ("reward", REWARD, "{:.2f}"),
    ("val acc", None, "{:.3f}"),
    ("grad norm", GRAD_NORM, "{:.3f}"),
    ("mean weight", WEIGHT, "{:.3f}"),
    ("equal groups", EQUAL_GROUPS, "{:.0%}"),
    ("no answer", NO_ANSWER, "{:.0%}"),
    ("cut off", CUT_OFF, "{:.0%}"),
)
# Warn if this share of groups had equal rewards in this many consecutive steps.
_NEARLY_ALL, _PATIENCE = 0.9, 3


class RunProgress:
    """Draw a tqdm bar over training steps with the main metrics, and warn once if the run cannot learn.

    Args:
        total: number of training steps, or None if unknown.
        stream: a terminal gets a bar, anything else one line per validation.
        start: step of the checkpoint that the run resumes from.
    """

    def __init__(self, total: int | None, stream: TextIO, start: int = 0) -> None:
        self._stream = stream
        self._validated = -1  # last step that was printed
        self._accuracy: float | None = None
        self._warned = False
        self._bar = tqdm(
            total=total, initial=start, unit="step", file=stream, disable=not stream.isatty(), dynamic_ncols=True
        )
        print("starting Ray, FSDP2 and vLLM (a minute or two) ...", file=stream, flush=True)

    def update(self, steps: Sequence[Step]) -> None:
        """Show the state of the run after all of its `steps` so far."""
        for step in steps:
            if step.accuracy is not None:
                self._accuracy = step.accuracy
                if step.number > self._validated:
                    self._validated = step.number
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
        values = [
            (label, form, self._accuracy if metric is None else step.metrics.get(metric))
            for label, metric, form in _FIGURES
        ]
        return ", ".join(f"{label} {form.format(value)}" for label, form, value in values if value is not None)


def nothing_to_learn(steps: Sequence[Step]) -> str:
    """Return a warning if nearly all groups had equal rewards in each of the last steps, else ""."""
    last = [step for step in steps if EQUAL_GROUPS in step.metrics][-_PATIENCE:]
    if len(last) < _PATIENCE or min(step.metrics[EQUAL_GROUPS] for step in last) < _NEARLY_ALL:
        return ""
    equal = fmean(step.metrics[EQUAL_GROUPS] for step in last)
    reward = fmean(step.reward for step in last if step.reward is not None)
    unread = fmean([step.metrics[NO_ANSWER] for step in last if NO_ANSWER in step.metrics] or [0.0])
    cut = [step.metrics[CUT_OFF] for step in last if CUT_OFF in step.metrics]
    also = f" and {fmean(cut):.0%} were cut off" if cut else ""
    fix = (
        f"{unread:.0%} of the responses had no answer that the reward could read{also}: compare a few with the expected form "
        "(verl-trgrpo preview), raise data.max_response_length, or warm-start the model"
        if unread > 0.5
        else "check a few responses and their rewards (verl-trgrpo preview): the prompts may be far too easy or too hard for "
        "the model, or the reward may not read its answers"
    )
    return (
        f"in steps {last[0].number} to {last[-1].number}, {equal:.0%} of the groups had equal rewards (mean {reward:.2f}), "
        f"from which GRPO learns nothing; {fix}"
    )
