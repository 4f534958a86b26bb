"""What is compared: the figures of one run, from its metrics, and its outcome on each test prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from verl_trgrpo.runs.metrics import GRAD_NORM, Step
from verl_trgrpo.runs.responses import DIRECTORY, dump_files, read_responses

# Name and meaning.
FIGURES = {
    "final_accuracy": "validation accuracy after the last step",
    "best_accuracy": "highest validation accuracy (picked on the same prompts, so it flatters noisy arms)",
    "area": "mean height of the validation curve over the steps",
    "gap": "accuracy on train prompts minus validation accuracy, after the last step",
    "grad_norm": "mean gradient norm before clipping",
    "grad_roughness": "root mean square of the steps of log(gradient norm)",
    "entropy": "mean entropy of the sampled tokens over the last five steps, nats",
    "response_length": "mean tokens of a response over the last five steps",
}

# By seed; the tests of an arm pair what has the same seed.
RunFigures = Mapping[int, Mapping[str, float]]


def series(steps: Sequence[Step], metric: str | None) -> list[tuple[float, float]]:
    """Return (step, value) of a metric where it was logged; None stands for the mean accuracy over data sources."""
    values = [(step.number, step.accuracy if metric is None else step.metrics.get(metric)) for step in steps]
    return [(float(number), value) for number, value in values if value is not None]


def run_figures(steps: Sequence[Step], metric: str | None) -> dict[str, float]:
    """Return the `FIGURES` that a run's steps have.

    `metric` is a validation metric, such as ``val-core/kk_3ppl/acc/mean@1``; None for the mean over data sources.
    """
    found: dict[str, float] = {}
    if points := series(steps, metric):
        heights = [height for _, height in points]
        width = points[-1][0] - points[0][0]
        found["final_accuracy"] = heights[-1]
        if width:  # of a single validation these would be the same again, and tested again
            trapezoids = [(right - left) * (a + b) / 2 for (left, a), (right, b) in pairwise(points)]
            found["best_accuracy"], found["area"] = max(heights), math.fsum(trapezoids) / width
        probe = "val-train/" + (metric.removeprefix("val-core/") if metric else "")
        if train := [value for name, value in steps[-1].metrics.items() if name.startswith(probe)]:
            found["gap"] = fmean(train) - heights[-1]
    if norms := [value for _, value in series(steps, GRAD_NORM)]:
        found["grad_norm"] = fmean(norms)
        # Of the logarithm: a common factor changes nothing, so that arms whose weights make all gradients larger can be
        # compared. 0.1 means that neighbours differ by about 10 %.
        logs = [math.log(norm) for norm in norms if norm > 0]
        if len(logs) > 1:
            found["grad_roughness"] = math.sqrt(fmean((after - before) ** 2 for before, after in pairwise(logs)))
    for figure, name in (("entropy", "actor/entropy"), ("response_length", "response_length/mean")):
        if values := [value for _, value in series(steps, name)]:
            found[figure] = fmean(values[-5:])
    return {name: found[name] for name in FIGURES if name in found}


def prompt_outcomes(
    run_dir: Path, metric: str | None, final: float, upto: float = math.inf
) -> dict[tuple[str, str], float]:
    """Return the share of right responses by prompt and ground truth in a run's last validation, ``validation/STEP.jsonl``.

    The last is that of step `upto` or before. The data source of `metric` is taken. {} without dumps, or where their mean is
    not `final`, the accuracy that was logged: veRL's dumps do not name data sources, so that a test set of several cannot be
    taken apart.
    """
    files = {step: path for step, path in dump_files(run_dir / DIRECTORY).items() if step <= upto}
    if not files:
        return {}
    source = metric.split("/")[1] if metric and "/" in metric else ""
    rights: dict[tuple[str, str], list[float]] = {}
    for response in read_responses(files[max(files)]):
        if response.right is not None and (not source or response.source in ("", source)):
            rights.setdefault((response.prompt, response.truth), []).append(float(response.right))
    outcomes = {key: fmean(values) for key, values in rights.items()}
    return outcomes if outcomes and math.isclose(fmean(list(outcomes.values())), final, abs_tol=1e-6) else {}
