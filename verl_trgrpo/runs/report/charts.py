"""Pictures of the page: each metric of all arms over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from verl_trgrpo.common.text import count_of
from verl_trgrpo.runs.charts import as_png, new_figure, plain, style
from verl_trgrpo.runs.compare.figures import series
from verl_trgrpo.runs.metrics import EQUAL_GROUPS, GRAD_NORM, NO_ANSWER, REWARD, WEIGHT
from verl_trgrpo.runs.report.runs import Arm
from verl_trgrpo.runs.statistics import number

if TYPE_CHECKING:
    import pandas

# Metric, title, y axis.
_CURVES = (
    (REWARD, "training reward", "mean score of a response"),
    (GRAD_NORM, "gradient norm before clipping", "norm"),
    (EQUAL_GROUPS, "groups of equal rewards, which teach nothing", "share of groups"),
    (NO_ANSWER, "responses without a readable answer", "share of responses"),
    ("actor/entropy", "entropy of the sampled tokens", "nats"),
    ("response_length/mean", "response length", "mean tokens"),
    ("actor/kl_loss", "KL divergence from the reference model", "nats"),
    (WEIGHT, "mean token weight", "weight before normalisation"),
    ("actor/tr_weight_std", "standard deviation of token weights", "weight before normalisation"),
    ("actor/tr_weight_at_lower", "tokens with the lowest weight", "share of tokens"),
    ("actor/tr_weight_at_upper", "tokens with the highest weight", "share of tokens"),
    ("actor/tr_zero_grad_frac", "tokens that clipping leaves without gradient", "share of tokens"),
    ("actor/tr_grad_share_low_prob", "gradient of tokens with p < 0.25", "share of |A| w (1 - p)"),
    ("actor/tr_grad_share_low_prob_uniform", "the same, were all weights 1",
     "share of |A| (1 - p)"),
)  # fmt: skip


class Chart(NamedTuple):
    """One picture.

    Args:
        png: the picture.
        alt: what it shows, in words and numbers.
    """

    png: bytes
    alt: str


class Curve(NamedTuple):
    """One metric of one arm; what is not finite is left out.

    Args:
        arm: whose.
        runs: (steps, runs) values, NaN where a run has none.
        counted: number of runs that the mean is over.
        mean: by step, over the counted runs, where all of them have a value: where a shorter run ends, a mean of the rest
            would jump.
        half_width: of the t interval of 95 % around the mean; NaN for fewer than three runs: that of two, 13
            standard errors, would press everything else flat.
    """

    arm: Arm
    runs: pandas.DataFrame
    counted: int
    mean: pandas.Series
    half_width: pandas.Series


def curves(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Curve]:
    """Return the curves of the arms that have `metric`, None for the mean accuracy over data sources.

    The mean is over runs that reached step `upto`; over all, where none did.
    """
    import pandas
    from scipy import stats

    found = []
    for arm in arms:
        logged = {
            number: {step: value for step, value in series(run.steps, metric) if math.isfinite(value)}
            for number, run in enumerate(arm.runs)
        }
        runs = pandas.DataFrame(logged).sort_index().dropna(axis=1, how="all")
        if runs.empty:
            continue
        whole = [number for number in runs.columns if arm.runs[number].last_step >= upto] or [*runs.columns]
        counted = runs[whole].dropna()
        factor = stats.t.ppf(0.975, len(whole) - 1) if len(whole) > 2 else math.nan
        half_width = factor * counted.sem(axis=1)
        found.append(Curve(arm, runs, len(whole), counted.mean(axis=1), half_width))
    return found


def curve_charts(arms: Sequence[Arm], metric: str | None, upto: int) -> list[Chart]:
    """Return a picture for each curve that any arm has: validation accuracy, reward, gradient norm, ..."""
    title, label = (f"validation: {metric}", "value") if metric else ("validation accuracy", "share of right answers")
    return [
        _chart(head, y_label, drawn)
        for source, head, y_label in ((metric, title, label), *_CURVES)
        if (drawn := curves(arms, source, upto))
    ]


def _chart(title: str, y_label: str, drawn: Sequence[Curve]) -> Chart:
    # On a phone the picture is 360 pixels wide; font sizes are legible there.
    figure, (axis,) = new_figure((5.6, 3.9), [plain(title)])
    steps = {step for curve in drawn for step in curve.runs.index}
    if len(steps) == 1:
        _draw_points(axis, drawn)
        about = f"after step {steps.pop():.0f}"
        axis.set_xlabel(f"{y_label} {about}")
    else:
        _draw_curves(axis, drawn)
        axis.set_ylabel(y_label)
        about = "first to last value of the mean over steps"
        # Below the picture, where it hides no curve.
        figure.legend(loc="outside lower center", ncols=2, fontsize=9.5, frameon=False)
    words = "; ".join(map(_words, drawn))
    return Chart(as_png(figure), f"{title}, {about}. {words}.")


def _draw_curves(axis: Any, drawn: Sequence[Curve]) -> None:
    """Means with intervals, and thin every run."""
    for curve in drawn:
        look = style(curve.arm.number)
        for _, points in curve.runs.items() if curve.runs.shape[1] > 1 else []:
            axis.plot(points.dropna(), color=look["color"], linewidth=0.7, alpha=0.55)
        ends = (curve.mean - curve.half_width, curve.mean + curve.half_width)
        axis.fill_between(curve.mean.index, *ends, color=look["color"], alpha=0.13, linewidth=0)
        label = plain(f"{curve.arm.label} ({count_of(curve.counted, 'seed')})")
        axis.plot(curve.mean, **look, linewidth=2.2, markevery=max(1, len(curve.mean) // 12), label=label)


def _draw_points(axis: Any, drawn: Sequence[Curve]) -> None:
    """Of a metric with one step: arm below arm, means with intervals, and thin the runs, those of one seed joined."""
    from matplotlib.ticker import AutoLocator

    seeds: dict[int, list[tuple[int, float]]] = {}
    for place, curve in enumerate(drawn):
        look = style(curve.arm.number)
        values = curve.runs.iloc[0]
        axis.scatter(values, [place] * len(values), s=14, color=look["color"], alpha=0.55)
        for run, value in values.items():
            if (seed := curve.arm.runs[run].seed) is not None:
                seeds.setdefault(seed, []).append((value, place))
        large = {**look, "markersize": 9, "capsize": 5}
        axis.errorbar(curve.mean, [place + 0.2], xerr=curve.half_width, **large)
    for points in seeds.values():
        axis.plot(*zip(*points, strict=True), color="#888888", linewidth=0.5, alpha=0.6, zorder=0)
    labels = [f"{plain(curve.arm.label)}\n({count_of(curve.counted, 'seed')})" for curve in drawn]
    axis.set_yticks(range(len(drawn)), labels, fontsize=9.5)
    axis.set_ylim(len(drawn) - 0.4, -0.6)
    axis.xaxis.set_major_locator(AutoLocator())


def _words(curve: Curve) -> str:
    about = f"{curve.arm.label}, {count_of(curve.counted, 'seed')}"
    if curve.mean.empty:
        return f"{about}: no steps that all have"
    ends = dict.fromkeys(curve.mean.index[[0, -1]])  # one where there is one step
    return f"{about}: {' to '.join(number(curve.mean[step]) for step in ends)}"
