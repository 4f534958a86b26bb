"""Pictures of the page: curves of the arms, token weights, gradient shares of rare tokens, and what analyze drew."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo.common.problems import count_of
from verl_trgrpo.runs.charts import as_png, new_figure, plain, style
from verl_trgrpo.runs.compare.figures import series
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT
from verl_trgrpo.runs.numbers import from_to, interval_text, number
from verl_trgrpo.runs.report.runs import Arm
from verl_trgrpo.runs.statistics import Estimate, mean_interval

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


class Chart(NamedTuple):
    """One picture.

    Args:
        name: stem of its file.
        png: the picture.
        alt: what it shows, in words and numbers.
        caption: what has to be known to read it; may be empty.
        wide: whether it needs the whole width.
    """

    name: str
    png: bytes
    alt: str
    caption: str
    wide: bool = False


class Curve(NamedTuple):
    """One metric of one arm.

    Args:
        arm: whose.
        runs: (step, value) of each run that has the metric.
        counted: number of runs that the mean is over.
        steps: those that all counted runs have: where a shorter run ends, a mean of the rest would jump.
        means: over the counted runs at these steps, with intervals; NaN where a value is not finite.
        width: how many neighbouring steps a point is the mean of.
    """

    arm: Arm
    runs: list[dict[float, float]]
    counted: int
    steps: list[float]
    means: list[Estimate]
    width: int

    @property
    def mean(self) -> list[float]:
        return [estimate.mean for estimate in self.means]


def curves(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Curve]:
    """Return the curves of the arms that have a metric.

    Args:
        arms: in order.
        metric: its name; None for the mean accuracy over data sources. Infinite values become NaN, which leaves a gap.
        upto: the mean is over runs that reached this step; over all, where none did.
    """
    logged = {arm: {run: points for run in arm.runs if (points := series(run.steps, metric))} for arm in arms}
    longest = max((len(points) for runs in logged.values() for points in runs.values()), default=0)
    width = max(1, math.ceil(longest / MOST_POINTS))
    found = []
    for arm, runs in logged.items():
        if not runs:
            continue
        binned = {run: _binned(points, width) for run, points in runs.items()}
        counted = [points for run, points in binned.items() if run.last_step >= upto] or [*binned.values()]
        steps = [step for step in counted[0] if all(step in points for points in counted)]
        columns = [[points[step] for points in counted] for step in steps]
        means = [mean_interval(own) if all(map(math.isfinite, own)) else Estimate(math.nan) for own in columns]
        found.append(Curve(arm, [*binned.values()], len(counted), steps, means, width))
    return found


def _binned(points: Sequence[tuple[float, float]], width: int) -> dict[float, float]:
    """Means of `width` neighbouring steps, at the last of them; the same steps make a bin in every run."""
    bins: dict[float, list[float]] = {}
    for step, value in points:
        bins.setdefault(math.ceil(step / width) * width, []).append(value if math.isfinite(value) else math.nan)
    return {step: math.fsum(values) / len(values) for step, values in bins.items()}


def curve_charts(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Chart]:
    """Return a picture for each curve that any arm has: validation accuracy, reward, gradient norm, ..."""
    title, label = (f"validation: {metric}", "value") if metric else ("validation accuracy", "share of right answers")
    found = []
    for name, source, head, y_label in (("accuracy", metric, title, label), *_CURVES):
        if drawn := curves(arms, source, upto):
            found.append(_line_chart(name, head, y_label, {curve.arm.label: curve for curve in drawn}))
    return found


def gradient_share_charts(arms: Sequence[Arm], upto: int) -> list[Chart]:
    """Return a picture of the share of rare tokens in the gradient, with the weights and without; none if not logged."""
    name = "actor/tr_grad_share_low_prob"
    weighted = {curve.arm.label: curve for curve in curves(arms, name, upto)}
    uniform = {
        f"{curve.arm.label}, weights 1": curve
        for curve in curves(arms, f"{name}_uniform", upto)
        if curve.mean != weighted[curve.arm.label].mean
    }
    caption = (
        "The gradient of a token at the logits has a norm of |A| w (1 - p) up to a factor of sqrt(2). "
        "Dotted, with open markers: the same tokens with all weights 1, where that makes a difference."
    )
    title = "gradient share of tokens with p < 0.25"
    y_label = "share of sum |A| w (1 - p)"
    return [_line_chart("gradient-share", title, y_label, weighted, uniform, caption)] if weighted else []


def _line_chart(
    name: str,
    title: str,
    y_label: str,
    drawn: dict[str, Curve],
    dotted: dict[str, Curve] | None = None,
    caption: str = "",
) -> Chart:
    """Means with intervals, and thin every run; of `dotted` curves the means alone."""
    figure, axis = _figure(plain(title), y_label)
    for label, curve in drawn.items():
        color = style(curve.arm.number)["color"]
        for points in curve.runs if len(curve.runs) > 1 else []:
            axis.plot([*points], [*points.values()], color=color, linewidth=0.7, alpha=0.55)
        low, high = (
            [math.nan if one.low is None else getattr(one, end) for one in curve.means] for end in ("low", "high")
        )
        axis.fill_between(curve.steps, low, high, color=color, alpha=0.13, linewidth=0)
        _draw_mean(axis, curve, f"{label} ({count_of(curve.counted, 'seed')})", linewidth=2.2)
    for label, curve in (dotted or {}).items():
        _draw_mean(axis, curve, label, linewidth=1.2, linestyle=":", markerfacecolor="white")
    values = [y for curve in drawn.values() for points in curve.runs for y in points.values() if math.isfinite(y)]
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
        caption += " Logarithmic axis."
    if (width := next(iter(drawn.values())).width) > 1:
        caption += f" Each point is the mean of {width} steps."
    words = "; ".join(_words(label, curve) for label, curve in [*drawn.items(), *(dotted or {}).items()])
    alt = f"Line chart, {title}, over steps. First to last value of the mean: {words}."
    return _chart(name, figure, alt, caption.strip())


def _figure(title: str, y_label: str) -> tuple[Any, Any]:
    # On a phone the picture is 360 pixels wide; font sizes are legible there.
    figure, (axis,) = new_figure((5.6, 3.9), [title])
    axis.set_title(title, fontsize=12)
    axis.set_ylabel(y_label)
    return figure, axis


def _chart(name: str, figure: Any, alt: str, caption: str) -> Chart:
    """Finish a picture; the legend goes below it, where it hides no curve."""
    figure.legend(loc="outside lower center", ncols=2, fontsize=9.5, frameon=False)
    return Chart(name, as_png(figure), alt, caption)


def _draw_mean(axis: Any, curve: Curve, label: str, **look: Any) -> None:
    every = max(1, len(curve.steps) // 12)  # markers
    axis.plot(curve.steps, curve.mean, **style(curve.arm.number) | look, markevery=every, label=plain(label))


def _words(label: str, curve: Curve) -> str:
    seeds = count_of(curve.counted, "seed")
    if not curve.steps:
        return f"{label}: no step that all of {seeds} have"
    last = interval_text(curve.means[-1])
    return (
        f"{label}, {seeds}, steps {curve.steps[0]:g} to {curve.steps[-1]:g}: {from_to(curve.mean)}, at the end {last}"
    )


def weight_charts(arms: Sequence[Arm], upto: int) -> tuple[list[Chart], list[str]]:
    """Return a picture of the distribution of token weights for each arm, and a sentence for each arm without one."""
    charts, notes = [], []
    names = (WEIGHT, "actor/tr_weight_at_lower", "actor/tr_weight_at_upper", "actor/tr_weight_std")
    for arm in arms:
        weight, lower, upper, spread = (curves([arm], name, upto) for name in names)
        if not spread or not spread[0].steps:
            notes.append(f"{arm.label}: token weights were not logged, as with a loss other than this package's.")
        elif all(value < 1e-9 for value in spread[0].mean):
            notes.append(f"{arm.label}: all tokens have the same weight, {number(weight[0].mean[-1])}.")
        else:
            charts.append(_weight_chart(weight[0], lower[0].mean, upper[0].mean))
    return charts, notes


def _weight_chart(weight: Curve, at_lower: list[float], at_upper: list[float]) -> Chart:
    """Areas: shares of tokens at the lower limit, between, and at the upper limit; a line: the mean weight."""
    steps, arm = weight.steps, weight.arm
    shares = {
        "at the lower limit": at_lower,
        "between": [1 - low - high for low, high in zip(at_lower, at_upper, strict=True)],
        "at the upper limit": at_upper,
    }
    figure, axis = _figure(plain(f"token weights of {arm.label}"), "share of tokens")
    fills = ("#fdd0a2", "#f7f7f7", "#9ecae1")
    areas = axis.stackplot(steps, *shares.values(), colors=fills, labels=[*shares], edgecolor="#555555")
    for area, hatch in zip(areas, ("///", "", "..."), strict=True):
        area.set(hatch=hatch, linewidth=0.4)
    axis.set_ylim(0, 1)
    right = axis.twinx()
    right.plot(steps, weight.mean, color="black", linewidth=2.2, label="mean weight (right axis)")
    right.set_ylabel("mean weight")
    right.set_ylim(bottom=0)
    words = "; ".join(f"{name} {from_to(values)}" for name, values in shares.items())
    alt = f"Stacked areas over steps, first to last share of tokens: {words}. Mean weight {from_to(weight.mean)}."
    return _chart(f"weights-{arm.number}", figure, alt, f"Mean over {count_of(weight.counted, 'seed')}.")


def gradient_chart(path: Path, place: int) -> Chart:
    """Return the picture that ``verl-trgrpo analyze`` drew, with its figures in words.

    Args:
        path: a ``gradients.json`` of that command, with ``gradients.png`` beside it.
        place: number of this file in the report, for the name of the picture.

    Raises:
        ValueError: when the file does not hold such figures.
    """
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        envelope, shapings = figures["envelope"], figures["shapings"]
        shares = "; ".join(
            f"{name}: {', '.join(map(number, effect['share_at_parameters']))}" for name, effect in shapings.items()
        )
        who = f"{'All' if envelope['holds'] else 'NOT all'} of {figures['tokens']:,} tokens"
        alt = (
            "Four panels: gradient norm of every token against 1 - p at the logits with its envelope, and by the "
            f"parameters; shares by quarter of probability; cosines between the quarters' updates. {who} lie within the "
            f"envelope: their norms are {envelope['lowest']:.4f} to {envelope['highest']:.4f} times 1 - p. Shares of the "
            f"summed gradient norms by the parameters, rarest quarter first: {shares}."
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a gradients.json of `verl-trgrpo analyze` ({error!r})") from error
    caption = f"{path}, as verl-trgrpo analyze drew it. {who} lie within the envelope 1 - p to sqrt(2) (1 - p)."
    return Chart(f"gradients-{place}", path.with_suffix(".png").read_bytes(), alt, caption, wide=True)
