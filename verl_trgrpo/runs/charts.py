"""What all pictures share: size, colours, line styles, numbers in words; and the picture of one run."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from verl_trgrpo.common.files import write_bytes
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT, Step

# Okabe and Ito's colours without yellow, which is too pale on white, and Tol's wine. To colour-blind readers, too, no two
# are closer than blue and green (CIE76 distance 16 in Machado's simulation). Dashes and markers differ as well.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9", "#882255")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)))
_FONT_SIZE = 11  # legible on a phone, where the picture is 360 pixels wide


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


def new_figure(title: str, x_label: str, y_label: str) -> tuple[Any, Any]:
    """Return a figure with one axis, both labelled."""
    figure, axis = _figure((5.6, 3.9))
    axis.set_title(title, fontsize=_FONT_SIZE + 1)
    axis.set_xlabel(x_label, fontsize=_FONT_SIZE)
    axis.set_ylabel(y_label, fontsize=_FONT_SIZE)
    axis.tick_params(labelsize=_FONT_SIZE - 1)
    axis.grid(alpha=0.3)
    return figure, axis


def _figure(size: tuple[float, float], rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    # Not pyplot: it would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)


def legend(figure: Any, columns: int = 2) -> None:
    """Put the legend of all axes below them, where it hides no curve."""
    figure.legend(loc="outside lower center", ncols=columns, fontsize=_FONT_SIZE - 1.5, frameon=False)


def whole_steps(axis: Any) -> None:
    """Have ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


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


def number(value: float, size: float | None = None) -> str:
    """Three decimals or three digits; an exponent where plain digits would be none or many.

    Args:
        value: to show.
        size: of the largest number beside it, so that all get the same decimals; None for this one's.
    """
    size = abs(value) if size is None else size
    if not math.isfinite(value):
        return "not a number"
    if size and not 1e-3 <= size < 1e7:
        return f"{value:.2e}"
    return f"{value:,.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def from_to(values: Sequence[float]) -> str:
    """First and last finite value, in words."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return "no finite values"
    return number(known[0]) if len(known) == 1 else f"{number(known[0])} to {number(known[-1])}"


def plot_curves(steps: Sequence[Step], path: Path, title: str) -> Path:
    """Draw the curves of a run into a PNG file: validation accuracy, reward, gradient norm, token weights.

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
    names = {name for step in steps for name in step.metrics}
    sources = sorted(name for name in names if name.startswith("val-core/") and "/acc/" in name)
    weights = {
        WEIGHT: "mean token weight",
        "actor/tr_grad_share_low_prob": "gradient share of tokens with p < 0.25",
        "actor/tr_grad_share_low_prob_uniform": "the same with weights 1",
    }
    panels = (
        ("validation accuracy on held-out prompts", {name: name.split("/")[1] for name in sources}),
        ("training reward", {REWARD: "mean reward of the rollouts"}),
        ("gradient norm", {GRAD_NORM: "before clipping"}),
        ("token weights", weights) if WEIGHT in names else ("entropy", {"actor/entropy": "mean over tokens"}),
    )
    figure, axes = _figure((10, 7), 2, 2)
    figure.suptitle(title)
    for axis, (head, metrics) in zip(axes.flatten(), panels, strict=True):
        axis.set_title(head)
        axis.set_xlabel("step")
        whole_steps(axis)
        axis.grid(alpha=0.3)
        for place, (name, label) in enumerate(metrics.items()):
            points = [(step.number, step.metrics[name]) for step in steps if name in step.metrics]
            if points:
                look = style(place) if name in sources else {"color": COLORS[place]}
                axis.plot(*zip(*points, strict=True), label=label, **look)
        if head.startswith("validation") and len(sources) > 1:
            mean = [(step.number, step.accuracy) for step in steps if step.accuracy is not None]
            axis.plot(*zip(*mean, strict=True), color="black", linewidth=2, label="mean")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best", fontsize="small")
    axes[0, 0].set_ylim(0, 1)
    write_bytes(path, as_png(figure))
    return path
