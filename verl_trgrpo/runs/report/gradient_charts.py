"""Pictures of what ``verl-trgrpo analyze`` measured: gradient norm against probability, and shares by quarter."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verl_trgrpo.runs.charts import COLORS, Chart, as_png, legend, new_figure, number, plain

_HATCHES = ("", "///", "...", "xx", "\\\\\\", "++")
_PNG = b"\x89PNG\r\n\x1a\n"


def gradient_charts(path: Path, place: int) -> list[Chart]:
    """Return the pictures of one ``gradients.json``.

    Args:
        path: as ``verl-trgrpo analyze`` writes it; ``gradients.png`` beside it, with every token, is taken along.
        place: number of this file in the report, for the names of the pictures.

    Raises:
        ValueError: when the file does not hold such figures.
    """
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        charts = [_envelope(figures, place), _shares(figures, place)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path} is not a gradients.json of `verl-trgrpo analyze` ({type(error).__name__}: {error}); check --gradients"
        ) from error
    picture = path.with_suffix(".png")
    if picture.is_file() and (content := picture.read_bytes()).startswith(_PNG):
        alt = (
            f"Four panels drawn by verl-trgrpo analyze for {figures['tokens']} tokens: gradient norm of every token against "
            "1 - p at the logits with its envelope, and by the parameters; shares by quarter of probability; cosines "
            "between the quarters' updates."
        )
        charts.append(Chart(f"gradients-{place}-tokens", content, alt, "As verl-trgrpo analyze drew it.", wide=True))
    return charts


def _envelope(figures: dict[str, Any], place: int) -> Chart:
    """Where theory wants the norms, and where those of each quarter's tokens were found."""
    low, high = float(figures["envelope"]["lowest"]), float(figures["envelope"]["highest"])
    holds = bool(figures["envelope"]["holds"])
    title = "gradient norm of log p at the logits"
    figure, axis = new_figure(title, "p of the sampled token", "norm")
    whole = [i / 100 for i in range(101)]
    axis.fill_between(whole, [1 - p for p in whole], [math.sqrt(2) * (1 - p) for p in whole],
                      color=COLORS[5], alpha=0.35, linewidth=0, label="theory: (1 - p) to sqrt(2) (1 - p)")  # fmt: skip
    text = f"measured: {low:.3f} (1 - p) to {high:.3f} (1 - p)"
    for quarter in figures["quarters"]:
        if quarter["tokens"]:
            ends = [float(quarter["lowest_p"]), float(quarter["highest_p"])]
            axis.fill_between(ends, [low * (1 - p) for p in ends], [high * (1 - p) for p in ends], facecolor="none",
                              edgecolor=COLORS[1], hatch="///", linewidth=1.4, label=text)  # fmt: skip
            text = "_"
    axis.set(xlim=(0, 1), ylim=(0, 1.45))
    legend(figure, 1)
    verdict = f"{'All' if holds else 'NOT all'} of {int(figures['tokens']):,} tokens lie within the envelope"
    alt = (
        f"Band between 1 - p and sqrt(2) (1 - p) falling from p = 0 to 0 at p = 1. {verdict}: their norms are {low:.4f} to "
        f"{high:.4f} times 1 - p."
    )
    caption = (
        f"{verdict}. Hatched: the range of p of each quarter's tokens, with the smallest and largest ratio of all."
    )
    return Chart(f"gradients-{place}-envelope", as_png(figure), alt, caption)


def _shares(figures: dict[str, Any], place: int) -> Chart:
    title = "share of the summed gradient norms"
    figure, axis = new_figure(title, "p of the quarter's tokens", "share of sum |A| w ||g||")
    effects = figures["shapings"]
    width, words = 0.8 / len(effects), []
    for i, (name, effect) in enumerate(effects.items()):
        heights: Sequence[float] = [float(share) for share in effect["share_at_parameters"]]
        label = f"{name} (before weighting)" if name == "uniform" else name
        at = [quarter + (i - (len(effects) - 1) / 2) * width for quarter in range(len(heights))]
        axis.bar(at, heights, width, label=plain(label), color=COLORS[i % len(COLORS)], alpha=0.75, edgecolor="black",
                 linewidth=0.6, hatch=_HATCHES[i % len(_HATCHES)])  # fmt: skip
        words.append(f"{label}: {', '.join(map(number, heights))}")
    quarters = figures["quarters"]
    texts = [
        f"{q['lowest_p']:.2f} to {q['highest_p']:.2f}\nn = {q['tokens']:,}" if q["tokens"] else "none" for q in quarters
    ]
    axis.set_xticks(range(len(quarters)), texts, fontsize=8.5)
    axis.set_ylim(0, 1)
    legend(figure)
    alt = f"Bar chart, {title} by quarter of probability, rarest first. {'; '.join(words)}."
    caption = "Gradients by the parameters; n tokens with an advantage other than 0."
    return Chart(f"gradients-{place}-shares", as_png(figure), alt, caption)
