"""The picture of a run: validation accuracy, reward, gradient norm, token weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT, Step


def plot_curves(steps: Sequence[Step], path: Path, title: str) -> Path:
    """Draw the curves of a run into a PNG file.

    Args:
        steps: in order.
        path: file to write; replaced as a whole.
        title: above the picture.

    Returns:
        ``path``.

    Raises:
        ValueError: when there is nothing to draw.
    """
    if not steps:
        raise ValueError(f"no steps to draw for {path}; has the run logged anything yet?")
    # Not pyplot: it would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = figure.subplots(2, 2).flatten()
    _accuracy(axes[0], steps)
    _line(axes[1], steps, {REWARD: "mean reward of the rollouts"}, "training reward")
    _line(axes[2], steps, {GRAD_NORM: "before clipping"}, "gradient norm")
    _weights(axes[3], steps)
    for axis in axes:
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best", fontsize="small")
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    temporary.replace(path)
    return path


def _series(steps: Sequence[Step], name: str) -> tuple[list[int], list[float]]:
    points = [(step.number, step.metrics[name]) for step in steps if name in step.metrics]
    return [x for x, _ in points], [y for _, y in points]


def _accuracy(axis: Any, steps: Sequence[Step]) -> None:
    axis.set_title("validation accuracy on held-out prompts")
    sources = sorted(
        {name for step in steps for name in step.metrics if name.startswith("val-core/") and "/acc/" in name}
    )
    for name in sources:
        axis.plot(*_series(steps, name), marker="o", markersize=3, alpha=0.6, label=name.split("/")[1])
    if len(sources) > 1:
        mean = [(step.number, step.accuracy) for step in steps if step.accuracy is not None]
        axis.plot([x for x, _ in mean], [y for _, y in mean], color="black", linewidth=2, label="mean")
    axis.set_ylim(0, 1)


def _line(axis: Any, steps: Sequence[Step], names: dict[str, str], title: str) -> None:
    axis.set_title(title)
    for name, label in names.items():
        x, y = _series(steps, name)
        if x:
            axis.plot(x, y, label=label)


def _weights(axis: Any, steps: Sequence[Step]) -> None:
    if any(WEIGHT in step.metrics for step in steps):
        names = {
            WEIGHT: "mean token weight",
            "actor/tr_grad_share_low_prob": "gradient share of tokens with p < 0.25",
            "actor/tr_grad_share_low_prob_uniform": "the same with weights 1",
        }
        _line(axis, steps, names, "token weights")
    else:
        _line(axis, steps, {"actor/entropy": "mean over tokens"}, "entropy")
