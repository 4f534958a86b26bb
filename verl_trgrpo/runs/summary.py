"""Summarize a run in a few lines: its last step, accuracy, reward, and what its weights did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from verl_trgrpo.runs.keys import LOSS, selected
from verl_trgrpo.runs.metrics import UNWEIGHTED_SHARE, WEIGHT, WEIGHT_STD, WEIGHTED_SHARE, Step
from verl_trgrpo.runs.run_directory import read_config


def weight_range(run_dir: Path) -> tuple[float, float] | None:
    """Return the smallest and largest weight of a run's shaping; None where probabilities do not decide them, or without any."""
    config = read_config(run_dir)
    shaping = config and selected(config, f"{LOSS}.shaping")
    if not shaping:
        return None
    from verl_trgrpo.core import make_shaping

    try:
        lower, upper = make_shaping(**{name: value for name, value in shaping.items() if name != "_target_"}).bounds
    except ValueError:  # registered by a module that the training alone imports
        return None
    return (lower, upper) if lower < upper < math.inf else None


def summary_lines(steps: Sequence[Step]) -> list[str]:
    """Return the last step, validation accuracy and training reward of a run, whose steps are in order, in one line each."""
    accuracies = {step.number: step.accuracy for step in steps if step.accuracy is not None}
    rewards = [step.reward for step in steps if step.reward is not None]
    lines = [f"steps                {steps[-1].number if steps else 0}"]
    if accuracies:
        values = list(accuracies.values())
        lines.append(f"validation accuracy  {values[0]:.3f} -> {values[-1]:.3f} (best {max(values):.3f})")
    if rewards:
        count = max(1, min(5, len(rewards) // 2))  # the first and the last steps do not overlap
        mean = f"means of {count} steps" if count > 1 else "single steps"
        lines.append(f"training reward      {fmean(rewards[:count]):.3f} -> {fmean(rewards[-count:]):.3f} ({mean})")
    return lines + weight_lines(steps)


# A standard deviation of the weights relative to their mean, below which a run is GRPO with a constant factor for practical
# purposes.
_EQUAL_WEIGHTS = 0.01


def weight_lines(steps: Sequence[Step]) -> list[str]:
    """Return what the weights of a run did, in at most one line: figures are means over its steps."""
    names = (WEIGHT, WEIGHT_STD, UNWEIGHTED_SHARE, WEIGHTED_SHARE)
    logged = [[step.metrics[name] for name in names] for step in steps if all(name in step.metrics for name in names)]
    logged = [values for values in logged if all(map(math.isfinite, values))]
    if not logged:
        return []
    mean, deviation, plain, weighted = map(fmean, zip(*logged, strict=True))
    head = f"token weights        {mean:.2f} +- {deviation:.2f}: "
    if deviation < _EQUAL_WEIGHTS * mean:
        return [f"{head}nearly equal, so this run cannot tell TR-GRPO from GRPO with a constant factor"]
    return [f"{head}tokens with p < 0.25 have {plain:.0%} of the gradient proxy, {weighted:.0%} with the weights"]
