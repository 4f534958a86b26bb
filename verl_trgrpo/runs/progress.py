"""One line of progress in place of veRL's thousand lines of output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from verl_trgrpo.runs.metrics import GRAD_NORM, WEIGHT, Step


class Progress:
    """A tqdm bar over training steps with reward, validation accuracy, gradient norm and mean token weight.

    Args:
        total: training steps, or None when unknown.
        start: step of the checkpoint that the run goes on from.
        stream: where to draw; not a terminal means one plain line per validation instead of a moving bar.
    """

    def __init__(self, total: int | None, stream: TextIO, start: int = 0) -> None:
        self._stream, self._reported = stream, -1
        self._accuracy: float | None = None
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
        ]
        return ", ".join(f"{name} {form.format(value)}" for name, value, form in figures if value is not None)
