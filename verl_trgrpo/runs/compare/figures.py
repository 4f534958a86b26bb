"""What is compared: the figures of one run, from its metrics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from verl_trgrpo.runs.metrics import GRAD_NORM, Step


class Figure(NamedTuple):
    """A figure of a run: what it means, and how to get it from the steps and a validation metric (None: not there)."""

    about: str
    of: Callable[[Sequence[Step], str | None], float | None]


def accuracies(steps: Sequence[Step], metric: str | None) -> list[tuple[float, float]]:
    """Return (step, validation accuracy): that of `metric`, or (None) the mean over data sources."""
    values = ((step.number, step.accuracy if metric is None else step.metrics.get(metric)) for step in steps)
    return [(float(number), value) for number, value in values if value is not None]


def _final(steps: Sequence[Step], metric: str | None) -> float | None:
    points = accuracies(steps, metric)
    return points[-1][1] if points else None


def _best(steps: Sequence[Step], metric: str | None) -> float | None:
    return max((y for _, y in accuracies(steps, metric)), default=None)


def _area(steps: Sequence[Step], metric: str | None) -> float | None:
    points = accuracies(steps, metric)
    return area_under_curve(points) if points else None


def _gap(steps: Sequence[Step], metric: str | None) -> float | None:
    final = _final(steps, metric)
    suffix = metric.removeprefix("val-core/") if metric else ""
    last = [value for name, value in steps[-1].metrics.items() if name.startswith(f"val-train/{suffix}")]
    return sum(last) / len(last) - final if last and final is not None else None


def _mean_of(name: str, last: int = 0) -> Callable[[Sequence[Step], str | None], float | None]:
    """Mean of a metric over all steps that have it, or over the last ones."""

    def mean(steps: Sequence[Step], metric: str | None) -> float | None:
        values = [step.metrics[name] for step in steps if name in step.metrics][-last:]  # [-0:] is all
        return math.fsum(values) / len(values) if values else None

    return mean


def _roughness(steps: Sequence[Step], metric: str | None) -> float | None:
    return roughness([step.metrics[GRAD_NORM] for step in steps if GRAD_NORM in step.metrics])


def area_under_curve(points: Sequence[tuple[float, float]]) -> float:
    """Return the mean height of the line through `points`, (x, y) with x rising, by trapezoids; one point: its height."""
    if len(points) < 2:
        return points[0][1]
    pairs = list(itertools.pairwise(points))
    return math.fsum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs) / (points[-1][0] - points[0][0])


def roughness(values: Sequence[float]) -> float | None:
    """Return the root mean square of the steps of log(values): 0.1 means that neighbours differ by about 10 %.

    A common factor changes nothing, so that arms whose weights make all gradients larger can be compared. Values that are
    not positive are left out; None for fewer than two.
    """
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < 2:
        return None
    return math.sqrt(math.fsum((b - a) ** 2 for a, b in itertools.pairwise(logs)) / (len(logs) - 1))


FIGURES = {
    "final_accuracy": Figure("validation accuracy after the last step", _final),
    "best_accuracy": Figure(
        "highest validation accuracy (picked on the same prompts, so it flatters noisy arms)", _best
    ),
    "area": Figure("mean height of the validation curve over the steps", _area),
    "gap": Figure("accuracy on train prompts minus validation accuracy, after the last step", _gap),
    "grad_norm": Figure("mean gradient norm before clipping", _mean_of(GRAD_NORM)),
    "grad_roughness": Figure("root mean square of the steps of log(gradient norm)", _roughness),
    "entropy": Figure(
        "mean entropy of the sampled tokens over the last five steps, nats", _mean_of("actor/entropy", last=5)
    ),
    "response_length": Figure(
        "mean tokens of a response over the last five steps", _mean_of("response_length/mean", last=5)
    ),
}


def run_figures(steps: Sequence[Step], metric: str | None) -> dict[str, float]:
    """Return the `FIGURES` that a run's steps have.

    Args:
        steps: in order.
        metric: validation metric, such as ``val-core/kk_3ppl/acc/mean@1``; None for the mean over data sources.
    """
    found = {name: figure.of(steps, metric) for name, figure in FIGURES.items()} if steps else {}
    return {name: value for name, value in found.items() if value is not None}
