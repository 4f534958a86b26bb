"""Plot the curves of one run, and of several arms over their seeds with intervals."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from verl_trgrpo.common.files import write_bytes
from verl_trgrpo.common.text import as_label, count_of
from verl_trgrpo.compare.arms import Run
from verl_trgrpo.compare.statistics import t_quantile
from verl_trgrpo.runs.metrics import (
    CUT_OFF_SHARE,
    GRAD_NORM,
    MEAN_REWARD,
    UNWEIGHTED_SHARE,
    WEIGHT,
    WEIGHT_STD,
    WEIGHTED_SHARE,
    Branch,
    Step,
    series,
)

if TYPE_CHECKING:
    import pandas

ENTROPY = "actor/entropy"

# Okabe and Ito's colours without yellow, and Tol's wine; dashes and markers differ as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)))

# Plots of arms beside validation accuracy: metric, title, y axis.
_PLOTS = (
    (MEAN_REWARD, "training reward", "mean score of a response"),
    (GRAD_NORM, "gradient norm before clipping", "norm"),
    (ENTROPY, "entropy of the sampled tokens", "nats"),
    (CUT_OFF_SHARE, "responses cut off at the length limit", "share of responses"),
    (WEIGHT_STD, "standard deviation of token weights", "weight before normalisation"),
    (WEIGHTED_SHARE, "gradient of tokens with p < 0.25", "share of |A| w (1 - p)"),
)


class Curve(NamedTuple):
    """One metric of one arm, finite values only.

    Args:
        label: name of the arm.
        number: place of the arm among all, which decides its colour and line style.
        runs: (steps, runs) values, NaN where a run has none.
        abandoned: (step, value) of each branch that a run has gone back before.
        counted: number of runs in the mean.
        mean: mean over the counted runs, at steps where all of them have a value: elsewhere the mean would jump.
        half_width: half the 95 % t interval of the mean; NaN below three runs, where it would dwarf the curves.
    """

    label: str
    number: int
    runs: pandas.DataFrame
    abandoned: list[list[tuple[float, float]]]
    counted: int
    mean: pandas.Series
    half_width: pandas.Series


def curves(arms: Mapping[str, Sequence[Run]], metric: str | None, upto: int) -> list[Curve]:
    """Return a curve for each arm that logged `metric`; None stands for the mean accuracy over data sources.

    The mean is over the runs that reached step `upto`, or over all runs if none did.
    """
    import pandas

    found = []
    for number, (label, own) in enumerate(arms.items()):
        logged = [dict(_finite(run.steps, metric)) for run in own]
        runs = pandas.DataFrame(dict(enumerate(logged))).sort_index().dropna(axis=1, how="all")
        if runs.empty:
            continue
        whole = [place for place in runs.columns if own[place].last_step >= upto] or [*runs.columns]
        counted = runs[whole].dropna()
        factor = t_quantile(len(whole)) if len(whole) > 2 else math.nan
        left = [_finite(branch.steps, metric) for run in own for branch in run.abandoned]
        found.append(Curve(label, number, runs, left, len(whole), counted.mean(axis=1), factor * counted.sem(axis=1)))
    return found


def _finite(steps: Sequence[Step], metric: str | None) -> list[tuple[float, float]]:
    return [(step, value) for step, value in series(steps, metric) if math.isfinite(value)]


def plot_arms(arms: Mapping[str, Sequence[Run]], metric: str | None, upto: int) -> dict[str, bytes]:
    """Return PNG files by title: validation accuracy, or another validation metric, and training metrics that were logged."""
    title, label = (f"validation: {metric}", "value") if metric else ("validation accuracy", "share of right answers")
    return {
        title: _plot(title, label, drawn)
        for source, title, label in ((metric, title, label), *_PLOTS)
        if (drawn := curves(arms, source, upto))
    }


def plot_run(
    steps: Sequence[Step],
    path: Path,
    title: str,
    weight_range: tuple[float, float] | None = None,
    abandoned: Sequence[Branch] = (),
) -> Path:
    """Plot accuracy, reward, gradient norm and entropy of one run, and what its token weights do; signals are shaded.

    Args:
        steps: at least one.
        path: PNG file, written atomically and returned.
        title: title of the picture.
        weight_range: smallest and largest weight of the run's shaping, the axis of its weights; None for the data's own.
        abandoned: steps that the run has gone back before, drawn in grey.
    """
    panels: list[tuple[str, dict[str, str | None]]] = [
        ("validation accuracy", {"": None}),
        ("training reward", {"": MEAN_REWARD}),
        ("gradient norm before clipping", {"": GRAD_NORM}),
        ("entropy of the sampled tokens", {"": ENTROPY}),
    ]
    if any(WEIGHT in step.metrics for step in steps):
        shares: dict[str, str | None] = {"every weight 1 (GRPO)": UNWEIGHTED_SHARE, "with the weights": WEIGHTED_SHARE}
        panels[2:2] = [
            ("share of tokens with p < 0.25 in |A| w (1 - p)", shares),
            ("token weight: mean, and one standard deviation", {"": WEIGHT}),
        ]
    figure, axes = _new_figure((10.5, 1.2 + 2.9 * len(panels) / 2), [head for head, _ in panels], columns=2)
    figure.suptitle(as_label(title))
    for axis, (_, lines) in zip(axes, panels, strict=True):
        for number, (label, metric) in enumerate(lines.items()):
            points = series(steps, metric)
            axis.plot([step for step, _ in points], [value for _, value in points], **_line_style(number), label=label)
        axis.ticklabel_format(axis="y", useOffset=False)
        if len(lines) > 1:
            if math.isfinite(highest := axis.dataLim.ymax):
                axis.set_ylim(0, 1.35 * highest or 1)  # room for the legend
            axis.legend(loc="upper right", fontsize=9)
        _draw_abandoned(axis, [_finite(branch.steps, metric) for metric in lines.values() for branch in abandoned])
    axes[0].set_ylim(0, 1)
    if len(panels) > 4:
        _finish_weights(axes[3], steps, weight_range)
    _shade_signals(
        figure, axes, steps, [f"grey: {branch.text}, before which the run went back" for branch in abandoned]
    )
    write_bytes(path, _as_png(figure))
    return path


def _draw_abandoned(axis: Any, branches: Sequence[list[tuple[float, float]]], label: str = "") -> None:
    """Draw the points of abandoned branches as they would have gone on, behind the curves and in grey.

    What is far from the curves, as after an explosion, is outside of the picture: the axis has at most three times their height.
    """
    if not any(branches):
        return
    low, high = axis.get_ylim()
    for number, points in enumerate(filter(None, branches)):
        steps, values = zip(*points, strict=True)
        axis.plot(steps, values, ".-", color="0.75", zorder=1, linewidth=0.9, label="" if number else label)
    lowest, highest = axis.get_ylim()
    axis.set_ylim(max(lowest, 2 * low - high), min(highest, 2 * high - low))


def _shade_signals(figure: Any, axes: Sequence[Any], steps: Sequence[Step], lines: list[str]) -> None:
    """Shade the steps of signals of :mod:`verl_trgrpo.runs.health`, and name these and other `lines` below the panels."""
    from verl_trgrpo.runs.health import judge  # and numpy, which the help does not need

    findings = [each for each in judge(steps) if not each.signal.machine]
    for axis in axes:
        for each in findings:
            axis.axvspan(each.first - 0.5, each.last + 0.5, color=COLORS[1], alpha=0.25 / len(findings), linewidth=0)
    if lines := [*(f"shaded: {each.signal.name}, {each.steps}" for each in findings), *lines]:
        figure.supxlabel("\n".join(lines), fontsize="small")


def _finish_weights(axis: Any, steps: Sequence[Step], weight_range: tuple[float, float] | None) -> None:
    """Add the band of one standard deviation, and the smallest and largest possible weight."""
    means, deviations = dict(series(steps, WEIGHT)), dict(series(steps, WEIGHT_STD))
    both = sorted(means.keys() & deviations.keys())
    lower, upper = weight_range or (-math.inf, math.inf)
    ends = ([min(max(means[step] + sign * deviations[step], lower), upper) for step in both] for sign in (-1, 1))
    axis.fill_between(both, *ends, color=COLORS[0], alpha=0.15, linewidth=0)
    if weight_range is None:
        return
    for end in weight_range:
        axis.axhline(end, color="grey", linewidth=0.8, linestyle=":")
    axis.set_ylim(lower - 0.08 * (upper - lower), upper + 0.08 * (upper - lower))


def _new_figure(size: tuple[float, float], titles: Sequence[str], columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure with one axis over training steps per title, row by row."""
    # pyplot would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(titles) // columns, columns, squeeze=False).flatten()
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=as_label(title), xlabel="step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
    return figure, [*axes]


def _as_png(figure: Any) -> bytes:
    """Return the figure as a PNG file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # a name may have letters that the font has not
        figure.savefig(buffer, format="png", dpi=170)
    return buffer.getvalue()


def _line_style(number: int) -> dict[str, Any]:
    """Return colour, dashes and marker of an arm, another combination for each of 40 arms."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
    }


def _plot(title: str, y_label: str, drawn: Sequence[Curve]) -> bytes:
    """Draw means with intervals, and every run as a thin line."""
    figure, (axis,) = _new_figure((5.6, 3.9), [title])
    axis.set_ylabel(y_label)
    for curve in drawn:
        look = _line_style(curve.number)
        for _, points in curve.runs.items() if curve.runs.shape[1] > 1 else []:
            axis.plot(points.dropna(), ".-", color=look["color"], markersize=2, linewidth=0.7, alpha=0.55)
        ends = (curve.mean - curve.half_width, curve.mean + curve.half_width)
        axis.fill_between(curve.mean.index, *ends, color=look["color"], alpha=0.13, linewidth=0)
        label = f"{as_label(curve.label)} ({count_of(curve.counted, 'seed')})"
        axis.plot(curve.mean, **look, linewidth=2.2, markevery=max(1, len(curve.mean) // 12), label=label)
    _draw_abandoned(axis, [points for curve in drawn for points in curve.abandoned], "abandoned steps")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9.5, frameon=False)
    return _as_png(figure)
