"""Pictures of the page: each metric of all arms over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from verl_trgrpo.common.problems import count_of
from verl_trgrpo.runs.charts import as_png, new_figure, plain, style
from verl_trgrpo.runs.compare.figures import series
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT
from verl_trgrpo.runs.numbers import interval_text, number
from verl_trgrpo.runs.report.runs import Arm
from verl_trgrpo.runs.statistics import Estimate, mean_interval

# A curve has its interval at about as many steps; more could not be told apart.
MOST_INTERVALS = 60

# Name of the picture, metric, title, y axis.
_CURVES = (
    ("reward", REWARD, "training reward", "mean score of a response"),
    ("grad-norm", GRAD_NORM, "gradient norm before clipping", "norm"),
    ("entropy", "actor/entropy", "entropy of the sampled tokens", "nats"),
    ("response-length", "response_length/mean", "response length", "mean tokens"),
    ("kl", "actor/kl_loss", "KL divergence from the reference model", "nats"),
    ("weight-mean", WEIGHT, "mean token weight", "weight before normalisation"),
    ("weight-std", "actor/tr_weight_std", "standard deviation of token weights", "weight before normalisation"),
    ("weight-at-lower", "actor/tr_weight_at_lower", "tokens with the lowest weight", "share of tokens"),
    ("weight-at-upper", "actor/tr_weight_at_upper", "tokens with the highest weight", "share of tokens"),
    ("zero-grad", "actor/tr_zero_grad_frac", "tokens that clipping leaves without gradient", "share of tokens"),
    ("gradient-share", "actor/tr_grad_share_low_prob", "gradient of tokens with p < 0.25", "share of |A| w (1 - p)"),
    ("gradient-share-uniform", "actor/tr_grad_share_low_prob_uniform", "the same, were all weights 1",
     "share of |A| (1 - p)"),
)  # fmt: skip


class Chart(NamedTuple):
    """One picture.

    Args:
        name: stem of its file.
        png: the picture.
        alt: what it shows, in words and numbers.
    """

    name: str
    png: bytes
    alt: str


class Curve(NamedTuple):
    """One metric of one arm.

    Args:
        arm: whose.
        runs: value by step, of each run that has the metric.
        counted: number of runs that the mean is over.
        mean: over the counted runs, at the steps that all of them have: where a shorter run ends, a mean of the rest would
            jump. NaN where a value is not finite.
        intervals: of the mean at some of these steps, the last among them.
    """

    arm: Arm
    runs: list[dict[float, float]]
    counted: int
    mean: dict[float, float]
    intervals: dict[float, Estimate]


def curves(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Curve]:
    """Return the curves of the arms that have a metric.

    Args:
        arms: in order.
        metric: its name; None for the mean accuracy over data sources. Infinite values become NaN, which leaves a gap.
        upto: the mean is over runs that reached this step; over all, where none did.
    """
    found = []
    for arm in arms:
        logged = {
            run: {step: value if math.isfinite(value) else math.nan for step, value in points}
            for run in arm.runs
            if (points := series(run.steps, metric))
        }
        if not logged:
            continue
        counted = [points for run, points in logged.items() if run.last_step >= upto] or [*logged.values()]
        columns = {
            step: [points[step] for points in counted]
            for step in counted[0]
            if all(step in points for points in counted)
        }
        steps = [*columns][:: -max(1, len(columns) // MOST_INTERVALS)][::-1]
        intervals = {
            step: Estimate(math.nan) if any(map(math.isnan, columns[step])) else mean_interval(columns[step])
            for step in steps
        }
        means = {step: fmean(values) for step, values in columns.items()}
        found.append(Curve(arm, [*logged.values()], len(counted), means, intervals))
    return found


def curve_charts(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Chart]:
    """Return a picture for each curve that any arm has: validation accuracy, reward, gradient norm, ..."""
    title, label = (f"validation: {metric}", "value") if metric else ("validation accuracy", "share of right answers")
    return [
        _chart(name, head, y_label, drawn)
        for name, source, head, y_label in (("accuracy", metric, title, label), *_CURVES)
        if (drawn := curves(arms, source, upto))
    ]


def _chart(name: str, title: str, y_label: str, drawn: Sequence[Curve]) -> Chart:
    """Means with intervals, and thin every run."""
    # On a phone the picture is 360 pixels wide; font sizes are legible there.
    figure, (axis,) = new_figure((5.6, 3.9), [plain(title)])
    for curve in drawn:
        look = style(curve.arm.number)
        for points in curve.runs if len(curve.runs) > 1 else []:
            axis.plot([*points], [*points.values()], color=look["color"], linewidth=0.7, alpha=0.55)
        low, high = (
            [math.nan if one.low is None else getattr(one, end) for one in curve.intervals.values()]
            for end in ("low", "high")
        )
        axis.fill_between([*curve.intervals], low, high, color=look["color"], alpha=0.13, linewidth=0)
        label = plain(f"{curve.arm.label} ({count_of(curve.counted, 'seed')})")
        every = max(1, len(curve.mean) // 12)  # markers
        axis.plot([*curve.mean], [*curve.mean.values()], **look, linewidth=2.2, markevery=every, label=label)
    values = [y for curve in drawn for points in curve.runs for y in points.values() if math.isfinite(y)]
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
        y_label += ", logarithmic"
    axis.set_ylabel(y_label)
    # Below the picture, where it hides no curve.
    figure.legend(loc="outside lower center", ncols=2, fontsize=9.5, frameon=False)
    words = "; ".join(map(_words, drawn))
    return Chart(name, as_png(figure), f"{title}, first to last value of the mean over steps. {words}.")


def _words(curve: Curve) -> str:
    about = f"{curve.arm.label}, {count_of(curve.counted, 'seed')}"
    known = {step: value for step, value in curve.mean.items() if math.isfinite(value)}
    if not known:
        return f"{about}: no finite values at steps that all have"
    first, last = min(known), max(known)
    end = interval_text(curve.intervals[last]) if last in curve.intervals else number(known[last])
    return f"{about}, steps {first:g} to {last:g}: {number(known[first])} to {end}"
