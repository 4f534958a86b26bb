"""What all pictures share: size, colours, line styles; and the picture of one run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import write_bytes
from verl_trgrpo.runs.metrics import GRAD_NORM, REWARD, WEIGHT, Step

# Okabe and Ito's colours without yellow, which is too pale on white, and Tol's wine. To colour-blind readers, too, no two
# are closer than green and sky blue (CIE76 distance 16 in Machado's simulation). Dashes and markers differ as well.
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
    """Draw the curves of a run, of one step at least: validation accuracy, reward, gradient norm, mean token weight.

    The PNG file `path`, which is returned, is replaced as a whole.
    """
    weighted = any(WEIGHT in step.metrics for step in steps)
    panels = {
        "validation accuracy": [step.accuracy for step in steps],
        "training reward": [step.metrics.get(REWARD) for step in steps],
        "gradient norm before clipping": [step.metrics.get(GRAD_NORM) for step in steps],
        "mean token weight" if weighted else "entropy": [
            step.metrics.get(WEIGHT if weighted else "actor/entropy") for step in steps
        ],
    }
    figure, axes = new_figure((10, 7), [*panels], columns=2)
    figure.suptitle(title)
    for axis, values in zip(axes, panels.values(), strict=True):
        points = [(step.number, value) for step, value in zip(steps, values, strict=True) if value is not None]
        axis.plot([number for number, _ in points], [value for _, value in points], **style(0))
    axes[0].set_ylim(0, 1)
    write_bytes(path, as_png(figure))
    return path
