"""What all pictures share: size, colours, line styles; and the picture of one run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_bytes
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT, Step

# Okabe and Ito's colours without yellow, which is too pale on white, and Tol's wine. To colour-blind readers, too, no two
# are closer than blue and green (CIE76 distance 16 in Machado's simulation). Dashes and markers differ as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)))


def new_figure(size: tuple[float, float], titles: Sequence[str], columns: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure, and an axis over training steps for each title, row by row."""
    # Not pyplot: it would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(titles) // columns, columns, squeeze=False).flatten()
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(alpha=0.3)
    return figure, [*axes]


def as_png(figure: Any) -> bytes:
    """Return the picture; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=170)
    return buffer.getvalue()


def style(number: int) -> dict[str, Any]:
    """How an arm's lines look: another colour and marker for each of eight, another combination with dashes for each of 40."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 4,
    }


def plain(text: str) -> str:
    """A user's text as matplotlib takes it: no formulas between dollar signs, no hiding by an underscore, not too long."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    shown = shown if len(shown) <= 48 else f"{shown[:47]}…"
    return (" " + shown if shown.startswith("_") else shown).replace("$", r"\$")


def plot_curves(steps: Sequence[Step], path: Path, title: str) -> Path:
    """Draw the curves of a run into a PNG file: validation accuracy, reward, gradient norm, token weights.

    Args:
        steps: in order, at least one.
        path: file to write; replaced as a whole.
        title: above the picture.

    Returns:
        ``path``.
    """
    names = {name for step in steps for name in step.metrics}
    sources = sorted(name for name in names if name.startswith("val-core/") and "/acc/" in name)
    weights = {
        WEIGHT: "mean token weight",
        "actor/tr_grad_share_low_prob": "gradient share of tokens with p < 0.25",
        "actor/tr_grad_share_low_prob_uniform": "the same with weights 1",
    }
    panels = {
        "validation accuracy on held-out prompts": {name: name.split("/")[1] for name in sources},
        "training reward": {REWARD: "mean reward of the rollouts"},
        "gradient norm": {GRAD_NORM: "before clipping"},
        **({"token weights": weights} if WEIGHT in names else {"entropy": {"actor/entropy": "mean over tokens"}}),
    }
    figure, axes = new_figure((10, 7), [*panels], columns=2)
    figure.suptitle(title)
    for axis, metrics in zip(axes, panels.values(), strict=True):
        for place, (name, label) in enumerate(metrics.items()):
            points = [(step.number, step.metrics[name]) for step in steps if name in step.metrics]
            if points:
                axis.plot(*zip(*points, strict=True), label=label, **style(place))
    if len(sources) > 1:
        mean = [(step.number, step.accuracy) for step in steps if step.accuracy is not None]
        axes[0].plot(*zip(*mean, strict=True), color="black", linewidth=2, label="mean")
    for axis in axes:
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small")
    axes[0].set_ylim(0, 1)
    write_bytes(path, as_png(figure))
    return path
