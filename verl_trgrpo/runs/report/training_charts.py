"""Pictures of the training: curves of the arms, token weights, gradient shares of rare tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT
from verl_trgrpo.runs.report.arms import Arm, Curves, Extract, accuracy, curves, metric
from verl_trgrpo.runs.report.charts import Chart, as_png, from_to, legend, mark_every, new_figure, number, plain, style

LOWER, UPPER, SPREAD = "actor/tr_weight_at_lower", "actor/tr_weight_at_upper", "actor/tr_weight_std"
RARE, RARE_UNIFORM = "actor/tr_grad_share_low_prob", "actor/tr_grad_share_low_prob_uniform"

# Name of the picture, metric, title, y axis.
_CURVES = (
    ("reward", REWARD, "training reward", "mean score of a response"),
    ("grad-norm", GRAD_NORM, "gradient norm before clipping", "norm"),
    ("entropy", "actor/entropy", "entropy of the sampled tokens", "nats"),
    ("response-length", "response_length/mean", "response length", "mean tokens"),
    ("kl", "actor/kl_loss", "KL divergence from the reference model", "nats"),
)


def curve_charts(arms: Sequence[Arm], metric_name: str | None, upto: int) -> list[Chart]:
    """Return a picture for each curve that any arm has: validation accuracy, reward, gradient norm, ..."""
    title = f"validation: {metric_name}" if metric_name else "validation accuracy"
    label = "value" if metric_name else "share of right answers"
    found = [_lines("accuracy", accuracy(metric_name), title, label, arms, upto)]
    found += [_lines(name, metric(source), title, label, arms, upto) for name, source, title, label in _CURVES]
    return [chart for chart in found if chart]


def gradient_share_chart(arms: Sequence[Arm], upto: int) -> Chart | None:
    """Return the share of rare tokens in the gradient with the weights, and what it would be without; None if not logged."""
    weighted, width = curves(arms, metric(RARE), upto)
    uniform, _ = curves(arms, metric(RARE_UNIFORM), upto)
    if not weighted:
        return None
    same = {one.arm.label: one.band.mean for one in weighted}
    uniform = [one for one in uniform if one.band.mean != same.get(one.arm.label)]
    title = "gradient share of tokens with p < 0.25"
    figure, axis = new_figure(title, "step", "share of sum |A| w (1 - p)")
    words = []
    for drawn, weights in ((weighted, True), (uniform, False)):
        for one in drawn:
            steps, mean = one.band.steps, one.band.mean
            look = style(one.arm.number) | ({} if weights else {"linestyle": ":", "markerfacecolor": "white"})
            text = one.arm.label if weights else f"{one.arm.label}, weights 1"
            axis.plot(
                steps,
                mean,
                **look,
                linewidth=1.8 if weights else 1.2,
                markevery=mark_every(len(steps)),
                label=plain(text),
            )
            words.append(f"{text}: {from_to(mean)}")
    _whole_steps(axis)
    legend(figure)
    caption = (
        "Means over seeds. The gradient of a token at the logits has a norm of |A| w (1 - p) up to a factor of sqrt(2). "
        "Dotted, with open markers: the same tokens with all weights 1, where that makes a difference."
    )
    alt = f"Line chart, {title}, over steps. First to last value of the mean: {'; '.join(words)}."
    return Chart("gradient-share", as_png(figure), alt, caption + _averaged(width))


def weight_charts(arms: Sequence[Arm], upto: int) -> tuple[list[Chart], list[str]]:
    """Return a picture of the distribution of token weights for each arm, and a sentence for each arm without one."""
    charts, notes = [], []
    height = _limits([value for one in curves(arms, metric(WEIGHT), upto)[0] for value in one.band.mean])
    for arm in arms:
        parts = [one for name in (WEIGHT, LOWER, UPPER, SPREAD) for one in curves([arm], metric(name), upto)[0]]
        if len(parts) < 4 or not parts[0].band.steps:
            notes.append(f"{arm.label}: token weights were not logged, as with a loss other than this package's.")
        elif all(value < 1e-9 for value in parts[3].band.mean):
            notes.append(f"{arm.label}: all tokens have the same weight, {from_to(parts[0].band.mean[-1:])}.")
        else:
            charts.append(_areas(parts[0], parts[1], parts[2], height))
    return charts, notes


def _areas(mean: Curves, at_lower: Curves, at_upper: Curves, height: tuple[float, float]) -> Chart:
    steps, weight, lower, upper = mean.band.steps, mean.band.mean, at_lower.band.mean, at_upper.band.mean
    arm = mean.arm
    between = [1 - low - high for low, high in zip(lower, upper, strict=True)]
    title = f"token weights of {arm.label}"
    figure, axis = new_figure(plain(title), "step", "share of tokens")
    names = ("at the lower limit", "between", "at the upper limit")
    shares = (lower, between, upper)
    areas = axis.stackplot(steps, *shares, colors=("#fdd0a2", "#f7f7f7", "#9ecae1"), labels=names, edgecolor="#555555")
    for area, hatch in zip(areas, ("///", "", "..."), strict=True):
        area.set(hatch=hatch, linewidth=0.4)
    axis.set_ylim(0, 1)
    axis.set_xlim(steps[0], max(steps[-1], steps[0] + 1))
    _whole_steps(axis)
    right = axis.twinx()
    right.plot(steps, weight, color="black", linewidth=2.2, marker="o", markersize=4,
               markevery=mark_every(len(steps)), label="mean weight (right axis)")  # fmt: skip
    right.set_ylim(*height)
    right.set_ylabel("mean weight", fontsize=11)
    legend(figure)
    words = "; ".join(f"{name} {from_to(values)}" for name, values in zip(names, shares, strict=True))
    alt = (
        f"Stacked areas over steps {steps[0]:g} to {steps[-1]:g}, first to last share of tokens: {words}. "
        f"Mean weight {from_to(weight)}."
    )
    return Chart(f"weights-{arm.number}", as_png(figure), alt, f"Mean over {_seeds(mean.counted)}.")


def _limits(values: Sequence[float]) -> tuple[float, float]:
    known = [value for value in values if math.isfinite(value)] or [1.0]
    margin = max(0.05, 0.25 * (max(known) - min(known)))
    return min(known) - margin, max(known) + margin


def _lines(name: str, extract: Extract, title: str, y_label: str, arms: Sequence[Arm], upto: int) -> Chart | None:
    drawn, width = curves(arms, extract, upto)
    if not drawn:
        return None
    figure, axis = new_figure(plain(title), "step", y_label)
    for one in drawn:
        _draw(axis, one)
    values = [y for one in drawn for points in one.seeds for _, y in points if math.isfinite(y)]
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
    _whole_steps(axis)
    legend(figure)
    caption = "Logarithmic axis." if axis.get_yscale() == "log" else ""
    alt = f"Line chart, {title}, over steps. First to last value of the mean: {'; '.join(map(_words, drawn))}."
    return Chart(name, as_png(figure), alt, (caption + _averaged(width)).strip())


def _draw(axis: Any, one: Curves) -> None:
    look = style(one.arm.number)
    for points in one.seeds if len(one.seeds) > 1 else []:
        axis.plot([x for x, _ in points], [y for _, y in points], color=look["color"], linewidth=0.7, alpha=0.55)
    steps, mean, low, high = one.band
    axis.fill_between(steps, low, high, color=look["color"], alpha=0.13, linewidth=0)
    text = f"{one.arm.label} ({_seeds(one.counted)})"
    axis.plot(steps, mean, **look, linewidth=2.2, markevery=mark_every(len(steps)), label=plain(text))


def _words(one: Curves) -> str:
    band = one.band
    if not band.steps:
        return f"{one.arm.label}: no step that all of {_seeds(one.counted)} have"
    ends = [pair for pair in zip(band.low, band.high, strict=True) if all(map(math.isfinite, pair))]
    interval = f", 95 % interval at the end {number(ends[-1][0])} to {number(ends[-1][1])}" if ends else ""
    steps = f"steps {band.steps[0]:g} to {band.steps[-1]:g}"
    return f"{one.arm.label}, {_seeds(one.counted)}, {steps}: {from_to(band.mean)}{interval}"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _averaged(width: int) -> str:
    return f" Each point is the mean of {width} steps." if width > 1 else ""


def _whole_steps(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
