"""One line of progress in place of veRL's thousand lines of output."""

from __future__ import annotations

import time
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
        self._started = time.monotonic()
        self._live = stream.isatty()
        self._stream = stream
        self._accuracy: float | None = None
        self._reported = -1
        self._bar = tqdm(
            total=total,
            initial=start,
            desc="starting Ray, FSDP2 and vLLM",
            unit="step",
            file=stream,
            disable=not self._live,
            dynamic_ncols=True,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}",
        )
        if not self._live:
            print("starting Ray, FSDP2 and vLLM (a minute or two) ...", file=stream, flush=True)

    def update(self, steps: Sequence[Step]) -> None:
        """Show where the run is, given its steps so far."""
        if not steps:
            if self._live:
                self._bar.set_description_str(
                    f"starting Ray, FSDP2 and vLLM ({time.monotonic() - self._started:.0f} s)"
                )
            return
        for step in steps:
            if step.accuracy is not None:
                self._accuracy = step.accuracy
            if step.accuracy is not None and step.number > self._reported:
                self._reported = step.number
                if not self._live:
                    print(f"step {step.number}: {self._figures(step)}", file=self._stream, flush=True)
        last = steps[-1]
        self._bar.set_description_str(f"step {last.number}", refresh=False)
        self._bar.n = last.number
        self._bar.set_postfix_str(self._figures(last))

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
