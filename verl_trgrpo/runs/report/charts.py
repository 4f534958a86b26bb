"""What all pictures of a report share: size, colours, line styles, and the text that stands for them."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

# Okabe and Ito's colours, which colour-blind readers can tell apart, with a brown and Tol's wine for their orange and yellow,
# which are pale on white. As many as a study of this project has arms; dashes and markers differ, too.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#A6761D", "#56B4E9", "#000000", "#882255")
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
    # Not pyplot: it would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.set_title(title, fontsize=_FONT_SIZE + 1)
    axis.set_xlabel(x_label, fontsize=_FONT_SIZE)
    axis.set_ylabel(y_label, fontsize=_FONT_SIZE)
    axis.tick_params(labelsize=_FONT_SIZE - 1)
    axis.grid(alpha=0.3)
    return figure, axis


def legend(figure: Any, columns: int = 2) -> None:
    """Put the legend of all axes below them, where it hides no curve."""
    figure.legend(loc="outside lower center", ncols=columns, fontsize=_FONT_SIZE - 1.5, frameon=False)


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


def mark_every(points: int) -> int:
    """How many points of a line lie between its markers."""
    return max(1, points // 12)


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
