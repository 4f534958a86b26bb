"""Pictures of the training: curves of the arms, token weights, gradient shares of rare tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from verl_trgrpo.common.problems import count_of
from verl_trgrpo.runs.charts import Chart, as_png, from_to, legend, new_figure, number, plain, style, whole_steps
from verl_trgrpo.runs.compare.figures import accuracies, series
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT, Step
from verl_trgrpo.runs.report.runs import Arm
from verl_trgrpo.runs.statistics import Estimate, mean_interval

Points = list[tuple[float, float]]  # (step, value), steps rising

LOWER, UPPER, SPREAD = "actor/tr_weight_at_lower", "actor/tr_weight_at_upper", "actor/tr_weight_std"
RARE, RARE_UNIFORM = "actor/tr_grad_share_low_prob", "actor/tr_grad_share_low_prob_uniform"

# More points than this on a curve are averaged: they would not be told apart, and each needs its interval.
MOST_POINTS = 120

# Name of the picture, metric, title, y axis.
_CURVES = (
    ("reward", REWARD, "training reward", "mean score of a response"),
    ("grad-norm", GRAD_NORM, "gradient norm before clipping", "norm"),
    ("entropy", "actor/entropy", "entropy of the sampled tokens", "nats"),
    ("response-length", "response_length/mean", "response length", "mean tokens"),
    ("kl", "actor/kl_loss", "KL divergence from the reference model", "nats"),
)


class Curve(NamedTuple):
    """One metric of one arm.

    Args:
        arm: whose.
        seeds: the points of each run that has the metric.
        counted: number of runs that the mean is over.
        steps: those that all counted runs have: where a shorter run ends, a mean of the rest would jump.
        means: over the counted runs at these steps, with intervals; NaN where a value is not finite.
        width: how many neighbouring steps a point is the mean of.
    """

    arm: Arm
    seeds: list[Points]
    counted: int
    steps: list[float]
    means: list[Estimate]
    width: int

    @property
    def mean(self) -> list[float]:
        return [estimate.mean for estimate in self.means]


def curves(arms: Sequence[Arm], extract: Callable[[Sequence[Step]], Points], upto: int) -> list[Curve]:
    """Return the curves of the arms that have a metric.

    Args:
        arms: in order.
        extract: gets the points of one run from its steps. Infinite values become NaN, which leaves a gap.
        upto: the mean is over runs that reached this step; over all, where none did.
    """
    found = [(arm, [(run.last_step, points) for run in arm.runs if (points := extract(run.steps))]) for arm in arms]
    longest = max((len(points) for _, seeds in found for _, points in seeds), default=0)
    width = max(1, math.ceil(longest / MOST_POINTS))
    drawn = []
    for arm, seeds in found:
        if not seeds:
            continue
        every = [_binned(points, width) for _, points in seeds]
        counted = [points for points, (last, _) in zip(every, seeds, strict=True) if last >= upto] or every
        tables = [dict(points) for points in counted]
        steps = [step for step in tables[0] if all(step in table for table in tables)]
        columns = [[table[step] for table in tables] for step in steps]
        means = [mean_interval(own) if all(map(math.isfinite, own)) else Estimate(math.nan) for own in columns]
        drawn.append(Curve(arm, every, len(counted), steps, means, width))
    return drawn


def _binned(points: Points, width: int) -> Points:
    """Means of `width` neighbouring steps, at the last of them; the same steps make a bin in every run."""
    bins: dict[float, list[float]] = {}
    for step, value in points:
        bins.setdefault(math.ceil(step / width) * width, []).append(value if math.isfinite(value) else math.nan)
    return [(step, math.fsum(values) / len(values)) for step, values in bins.items()]


def _logged(name: str) -> Callable[[Sequence[Step]], Points]:
    return lambda steps: series(steps, name)


def curve_charts(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Chart]:
    """Return a picture for each curve that any arm has: validation accuracy, reward, gradient norm, ..."""
    title, label = (f"validation: {metric}", "value") if metric else ("validation accuracy", "share of right answers")
    found = [_lines("accuracy", curves(arms, lambda steps: accuracies(steps, metric), upto), title, label)]
    found += [_lines(name, curves(arms, _logged(source), upto), title, label) for name, source, title, label in _CURVES]
    return [chart for chart in found if chart]


def _lines(name: str, drawn: Sequence[Curve], title: str, y_label: str) -> Chart | None:
    if not drawn:
        return None
    figure, axis = new_figure(plain(title), "step", y_label)
    for curve in drawn:
        color = style(curve.arm.number)["color"]
        for points in curve.seeds if len(curve.seeds) > 1 else []:
            axis.plot(*zip(*points, strict=True), color=color, linewidth=0.7, alpha=0.55)
        low, high = ([getattr(one, end) for one in curve.means] for end in ("low", "high"))
        bounded = [end is not None for end in low]
        ends = ([math.nan if end is None else end for end in side] for side in (low, high))
        axis.fill_between(curve.steps, *ends, where=bounded, color=color, alpha=0.13, linewidth=0)
        _draw_mean(axis, curve, f"{curve.arm.label} ({count_of(curve.counted, 'seed')})", linewidth=2.2)
    values = [y for curve in drawn for points in curve.seeds for _, y in points if math.isfinite(y)]
    caption = ""
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
        caption = "Logarithmic axis."
    whole_steps(axis)
    legend(figure)
    alt = f"Line chart, {title}, over steps. First to last value of the mean: {'; '.join(map(_words, drawn))}."
    return Chart(name, as_png(figure), alt, (caption + _averaged(drawn)).strip())


def _draw_mean(axis: Any, curve: Curve, label: str, **look: Any) -> None:
    every = max(1, len(curve.steps) // 12)  # markers
    axis.plot(curve.steps, curve.mean, **style(curve.arm.number) | look, markevery=every, label=plain(label))


def _words(curve: Curve) -> str:
    seeds = count_of(curve.counted, "seed")
    if not curve.steps:
        return f"{curve.arm.label}: no step that all of {seeds} have"
    ends = [(one.low, one.high) for one in curve.means if one.low is not None and one.high is not None]
    interval = ", 95 % interval at the end {} to {}".format(*map(number, ends[-1])) if ends else ""
    span = f"steps {curve.steps[0]:g} to {curve.steps[-1]:g}"
    return f"{curve.arm.label}, {seeds}, {span}: {from_to(curve.mean)}{interval}"


def _averaged(drawn: Sequence[Curve]) -> str:
    width = drawn[0].width
    return f" Each point is the mean of {width} steps." if width > 1 else ""


def gradient_share_chart(arms: Sequence[Arm], upto: int) -> Chart | None:
    """Return the share of rare tokens in the gradient with the weights, and what it would be without; None if not logged."""
    weighted, uniform = (curves(arms, _logged(name), upto) for name in (RARE, RARE_UNIFORM))
    if not weighted:
        return None
    same = {curve.arm.label: curve.mean for curve in weighted}
    title = "gradient share of tokens with p < 0.25"
    figure, axis = new_figure(title, "step", "share of sum |A| w (1 - p)")
    words = []
    for curve in weighted:
        _draw_mean(axis, curve, curve.arm.label, linewidth=1.8)
        words.append(f"{curve.arm.label}: {from_to(curve.mean)}")
    for curve in uniform:
        if curve.mean != same.get(curve.arm.label):
            label = f"{curve.arm.label}, weights 1"
            _draw_mean(axis, curve, label, linewidth=1.2, linestyle=":", markerfacecolor="white")
            words.append(f"{label}: {from_to(curve.mean)}")
    whole_steps(axis)
    legend(figure)
    caption = (
        "Means over seeds. The gradient of a token at the logits has a norm of |A| w (1 - p) up to a factor of sqrt(2). "
        "Dotted, with open markers: the same tokens with all weights 1, where that makes a difference."
    )
    alt = f"Line chart, {title}, over steps. First to last value of the mean: {'; '.join(words)}."
    return Chart("gradient-share", as_png(figure), alt, caption + _averaged(weighted))


def weight_charts(arms: Sequence[Arm], upto: int) -> tuple[list[Chart], list[str]]:
    """Return a picture of the distribution of token weights for each arm, and a sentence for each arm without one."""
    charts, notes = [], []
    found = {name: {one.arm.label: one for one in curves(arms, _logged(name), upto)}
             for name in (WEIGHT, LOWER, UPPER, SPREAD)}  # fmt: skip
    known = [mean for curve in found[WEIGHT].values() for mean in curve.mean if math.isfinite(mean)] or [1.0]
    margin = max(0.05, 0.25 * (max(known) - min(known)))
    for arm in arms:
        parts = [own[arm.label] for own in found.values() if arm.label in own]
        if len(parts) < 4 or not parts[0].steps:
            notes.append(f"{arm.label}: token weights were not logged, as with a loss other than this package's.")
        elif all(value < 1e-9 for value in parts[3].mean):
            notes.append(f"{arm.label}: all tokens have the same weight, {from_to(parts[0].mean[-1:])}.")
        else:
            charts.append(_weights(parts[0], parts[1], parts[2], (min(known) - margin, max(known) + margin)))
    return charts, notes


def _weights(weight: Curve, at_lower: Curve, at_upper: Curve, limits: tuple[float, float]) -> Chart:
    """Areas: shares of tokens at the lower limit, between, and at the upper limit; a line: the mean weight."""
    steps, arm = weight.steps, weight.arm
    shares = {
        "at the lower limit": at_lower.mean,
        "between": [1 - low - high for low, high in zip(at_lower.mean, at_upper.mean, strict=True)],
        "at the upper limit": at_upper.mean,
    }
    figure, axis = new_figure(plain(f"token weights of {arm.label}"), "step", "share of tokens")
    fills = ("#fdd0a2", "#f7f7f7", "#9ecae1")
    areas = axis.stackplot(steps, *shares.values(), colors=fills, labels=[*shares], edgecolor="#555555")
    for area, hatch in zip(areas, ("///", "", "..."), strict=True):
        area.set(hatch=hatch, linewidth=0.4)
    axis.set(ylim=(0, 1), xlim=(steps[0], max(steps[-1], steps[0] + 1)))
    whole_steps(axis)
    right = axis.twinx()
    every = max(1, len(steps) // 12)
    right.plot(steps, weight.mean, color="black", linewidth=2.2, marker="o", markersize=4, markevery=every,
               label="mean weight (right axis)")  # fmt: skip
    right.set_ylim(*limits)
    right.set_ylabel("mean weight", fontsize=11)
    legend(figure)
    words = "; ".join(f"{name} {from_to(values)}" for name, values in shares.items())
    alt = (
        f"Stacked areas over steps {steps[0]:g} to {steps[-1]:g}, first to last share of tokens: {words}. "
        f"Mean weight {from_to(weight.mean)}."
    )
    return Chart(f"weights-{arm.number}", as_png(figure), alt, f"Mean over {count_of(weight.counted, 'seed')}.")
