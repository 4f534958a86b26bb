"""Compare arms with a baseline, paired by seed: figures of each run, differences, tests and their correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, linear_regression

from verl_trgrpo.compare.arms import Run
from verl_trgrpo.compare.statistics import Estimate, equivalence_p_value, holm, mean_interval, paired_p_value
from verl_trgrpo.runs.metrics import GRAD_NORM, TRAIN_ACCURACY, Step, series

# Figures of a run: name and meaning.
FIGURES = {
    "final_accuracy": "validation accuracy, or the metric of --metric, after the last step",
    "best_accuracy": "highest validation accuracy (chosen on the same prompts, so it is too high for noisy arms)",
    "area": "mean height of the validation curve over the steps",
    "train_accuracy": "mean accuracy of the training responses over all steps",
    "train_slope": "slope of a straight line through the training accuracy, per ten steps",
    "gap": "accuracy on train prompts minus validation accuracy, after the last step",
    "grad_norm": "mean gradient norm before clipping",
    "grad_roughness": "root mean square of the change of log(gradient norm) between steps",
    "entropy": "mean entropy of the sampled tokens over the last five steps, in nats",
    "response_length": "mean tokens of a response over the last five steps",
}
# The primary outcome of a study's primary arm.
OUTCOME = "final_accuracy"
# Figures that are tested against the baseline.
TESTED = (OUTCOME, "area", "gap", "grad_roughness")

# Figures of every run by arm and seed.
Figures = Mapping[str, Mapping[int, Mapping[str, float]]]


@dataclass(frozen=True)
class PValue:
    """Hold a p-value and its Holm-corrected value, which is None for the primary outcome: it is not corrected."""

    p: float
    corrected: float | None


@dataclass(frozen=True)
class Difference:
    """An arm minus the baseline over the seeds that both have.

    Args:
        estimate: mean difference.
        pairs: number of seeds that both have.
        test: sign-flip test of the difference; None below two pairs, and for figures that are not `TESTED`.
        equivalence: test that the difference is within the study's margin; `OUTCOME` only, None without a margin.
    """

    estimate: Estimate
    pairs: int
    test: PValue | None = None
    equivalence: PValue | None = None


@dataclass(frozen=True)
class Entry:
    """One figure of one arm: number of runs that have it, their mean, and the difference from the baseline.

    `difference` is None for the baseline itself and for an arm without a seed in common with it.
    """

    runs: int
    estimate: Estimate
    difference: Difference | None


# By arm, then by name of figure.
Comparison = Mapping[str, Mapping[str, Entry]]


def run_figures(steps: Sequence[Step], metric: str | None) -> dict[str, float]:
    """Return the `FIGURES` that the steps of a run have.

    Args:
        steps: in order.
        metric: validation metric, such as ``val-core/kk_3ppl/acc/mean@1``; None for the mean over data sources.
    """
    found: dict[str, float] = {}
    if points := series(steps, metric):
        heights = [height for _, height in points]
        width = points[-1][0] - points[0][0]
        found["final_accuracy"] = heights[-1]
        if width:  # a single validation has neither a best one nor an area
            trapezoids = [(right - left) * (a + b) / 2 for (left, a), (right, b) in pairwise(points)]
            found["best_accuracy"], found["area"] = max(heights), math.fsum(trapezoids) / width
        probe = "val-train/" + (metric.removeprefix("val-core/") if metric else "")
        if train := [value for name, value in steps[-1].metrics.items() if name.startswith(probe)]:
            found["gap"] = fmean(train) - heights[-1]
    if trained := series(steps, TRAIN_ACCURACY):
        found["train_accuracy"] = fmean(accuracy for _, accuracy in trained)
        if len(trained) > 1:
            found["train_slope"] = 10 * linear_regression(*zip(*trained, strict=True)).slope
    if norms := [value for _, value in series(steps, GRAD_NORM)]:
        found["grad_norm"] = fmean(norms)
        # The logarithm makes it independent of a common factor of all gradients. 0.1: neighbours differ by about 10 %.
        logs = [math.log(norm) for norm in norms if norm > 0]
        if len(logs) > 1:
            found["grad_roughness"] = math.sqrt(fmean((after - before) ** 2 for before, after in pairwise(logs)))
    for figure, name in (("entropy", "actor/entropy"), ("response_length", "response_length/mean")):
        if values := [value for _, value in series(steps, name)]:
            found[figure] = fmean(values[-5:])
    return {name: found[name] for name in FIGURES if name in found}


def compare_runs(
    arms: Mapping[str, Sequence[Run]],
    baseline: str,
    metric: str | None = None,
    primary: str = "",
    margin: float | None = None,
    upto: int | None = None,
) -> tuple[dict[str, dict[int, dict[str, float]]], Comparison]:
    """Return the figures of all runs, by arm and seed, and their comparison.

    Figures that are not finite are left out: a gradient norm that was NaN once has no mean. Runs without a seed are not paired.

    Args:
        arms: runs by arm; a run without steps has no figures.
        baseline, primary, margin: see `compare_figures`.
        metric: see `run_figures`.
        upto: compare the finite values of the steps up to this one, and leave out runs that ended before; None for all.
    """
    figures: dict[str, dict[int, dict[str, float]]] = {arm: {} for arm in arms}
    unknown = itertools.count(-1, -1)
    for arm, runs in arms.items():
        for run in runs:
            seed = next(unknown) if run.seed is None else run.seed
            found = run_figures((run if upto is None else run.until(upto)).steps, metric)
            figures[arm][seed] = {name: value for name, value in found.items() if math.isfinite(value)}
    return figures, compare_figures(figures, baseline, primary, margin)


def compare_figures(figures: Figures, baseline: str, primary: str = "", margin: float | None = None) -> Comparison:
    """Return means, differences from the baseline and tests of all arms and figures.

    Args:
        figures: figures of every run.
        baseline: an arm.
        primary: the arm whose `OUTCOME` was chosen beforehand as the primary outcome. Its tests are not corrected; all others
            are corrected together. "" for none.
        margin: largest mean difference of `OUTCOME` that does not matter, chosen beforehand; None for no equivalence tests.
    """
    differences: dict[tuple[str, str], list[float]] = {}
    for arm, runs in figures.items():
        for name in FIGURES if arm != baseline else ():
            pairs = [
                run[name] - figures[baseline][seed][name]
                for seed, run in runs.items()
                if name in run and name in figures[baseline].get(seed, {})
            ]
            if pairs:
                differences[arm, name] = pairs
    tests = _tests(differences, primary, margin)
    found: dict[str, dict[str, Entry]] = {arm: {} for arm in figures}
    for arm, runs in figures.items():
        for name in FIGURES:
            if not (values := [run[name] for run in runs.values() if name in run]):
                continue
            difference = None
            if pairs := differences.get((arm, name), []):
                test, equivalence = (tests.get((arm, name, what)) for what in ("difference", "equivalence"))
                difference = Difference(mean_interval(pairs), len(pairs), test, equivalence)
            found[arm][name] = Entry(len(values), mean_interval(values), difference)
    return found


def _tests(
    differences: Mapping[tuple[str, str], Sequence[float]], primary: str, margin: float | None
) -> dict[tuple[str, str, str], PValue]:
    """Return the tests by arm, figure and kind; all but those of the primary outcome are corrected together."""
    p_values: dict[tuple[str, str, str], float] = {}
    for (arm, name), pairs in differences.items():
        if name in TESTED and (p := paired_p_value(pairs)) is not None:
            p_values[arm, name, "difference"] = p
        if name == OUTCOME and margin and (p := equivalence_p_value(pairs, margin)) is not None:
            p_values[arm, name, "equivalence"] = p
    corrected = holm({key: p for key, p in p_values.items() if key[:2] != (primary, OUTCOME)})
    return {key: PValue(p, corrected.get(key)) for key, p in p_values.items()}
