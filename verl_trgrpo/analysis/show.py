"""The analysis as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from verl_trgrpo.analysis.gradients import TokenTable
from verl_trgrpo.analysis.options import UNIFORM
from verl_trgrpo.analysis.sharpness import Sharpness
from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.common.tables import text_table
from verl_trgrpo.runs.statistics import Estimate


def gradient_text(figures: Mapping[str, Any]) -> str:
    """Tables of the figures of :func:`~verl_trgrpo.analysis.gradients.analyze_gradients`."""
    envelope, ratio = figures["envelope"], figures["parameter_norm_over_miss"]
    verdict = "all tokens lie within" if envelope["holds"] else "NOT all tokens lie within"
    lines = [
        f"{figures['tokens']:,} tokens, {figures['tokens_with_gradient']:,} with an advantage other than 0",
        f"gradient norm of log p at the logits: {envelope['lowest']:.4f} to {envelope['highest']:.4f} times (1 - p); "
        f"{verdict} 1 to sqrt(2)",
        f"by {figures['parameters']:,} parameters: {ratio['5%']:.3g} | {ratio['50%']:.3g} | {ratio['95%']:.3g} times (1 - p) "
        "(5 %, median, 95 % of the tokens)",
    ]
    for name, effect in figures["shapings"].items():
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        rows = [_row(q, facts, effect) for q, facts in enumerate(figures["quarters"])]
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)


_HEAD = (
    "quarter",
    "p of its tokens",
    "tokens",
    "weight",
    "share: logits",
    "parameters",
    "update norm",
    "cosine with 4th",
)


def _row(q: int, facts: Mapping[str, Any], effect: Mapping[str, Any]) -> list[str]:
    cosine = effect["cosine"][q][-1]
    return [
        str(q + 1),
        f"{facts['lowest_p']:.4f} to {facts['highest_p']:.4f}" if facts["tokens"] else "none",
        f"{facts['tokens']:,}",
        f"{effect['weight'][q]:.4f}",
        f"{effect['share_at_logits'][q]:.4f}",
        f"{effect['share_at_parameters'][q]:.4f}",
        f"{effect['update_norm'][q]:.3g}",
        "-" if cosine is None else f"{cosine:.3f}",
    ]


def sharpness_text(found: Mapping[str, Sequence[Sharpness]]) -> str:
    """A table with a line for each checkpoint and radius."""
    names = ("gradient_norm", "random_rise", "sam_rise", "sam_curvature")
    rows = [
        [model, f"{sharpness.radius:.3g}", *(_interval(getattr(sharpness, name)) for name in names)]
        for model, radii in found.items()
        for sharpness in radii
    ]
    head = ["", "radius", *(name.replace("_", " ") for name in names)]
    return text_table(rows, head, "lrrrrr") + "\n95 % intervals over batches, and directions"


def _interval(value: Estimate) -> str:
    if value.low is None or value.high is None:
        return f"{value.mean:.3g} (n/a)"
    return f"{value.mean:.3g} ({value.low:.3g} to {value.high:.3g})"


def plot_gradients(figures: Mapping[str, Any], table: TokenTable, norms: torch.Tensor, path: Path, title: str) -> Path:
    """Draw norms against probability with their envelope, shares by quarter, and cosines into a PNG file."""
    # Not pyplot: it would need a display back-end and keep figures alive.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    axes = figure.subplots(2, 2).flatten()
    _norms(axes[0], table.misses.numpy(), table.logit_norms.numpy(), (1.0, math.sqrt(2)), ("1 - p", "sqrt(2) (1 - p)"))
    axes[0].set(title="gradient norm of log p at the logits")
    ratio = figures["parameter_norm_over_miss"]
    measured = norms.numpy()
    bounds = (ratio["5%"], ratio["95%"])
    names = tuple(f"{bound:.3g} (1 - p)" for bound in bounds)
    _norms(axes[1], table.misses.numpy()[: len(measured)], measured, bounds, names)
    axes[1].set(title=f"by {figures['parameters']:,} parameters; lines hold 90 % of the tokens")
    _shares(axes[2], figures)
    _cosines(axes[3], figures)
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
    return path


def _norms(
    axis: Any, misses: np.ndarray, norms: np.ndarray, bounds: tuple[float, float], names: tuple[str, ...]
) -> None:
    shown = (misses > 1e-9) & (norms > 0)
    axis.loglog(misses[shown], norms[shown], ".", markersize=2, alpha=0.4, color="C0", rasterized=True)
    line = np.geomspace(max(misses[shown].min(), 1e-9), 1, 100)
    for bound, name, style in zip(bounds, names, ("-", "--"), strict=True):
        axis.loglog(line, bound * line, style, color="C3", linewidth=1, label=name)
    axis.set(xlabel="1 - p of the sampled token (rare tokens on the right)", ylabel="norm")
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)


def _shares(axis: Any, figures: Mapping[str, Any]) -> None:
    effects = figures["shapings"]
    width = 0.8 / len(effects)
    at = np.arange(4)
    for i, (name, effect) in enumerate(effects.items()):
        label = f"{name} (before weighting)" if name == UNIFORM else name
        axis.bar(at + (i - (len(effects) - 1) / 2) * width, effect["share_at_parameters"], width, label=label)
    labels = [f"{q['lowest_p']:.3f} to {q['highest_p']:.3f}" if q["tokens"] else "none" for q in figures["quarters"]]
    axis.set_xticks(at, labels)
    axis.set(title="share of the summed gradient norms |A| w ||g|| (parameters)", xlabel="p of the quarter's tokens")
    axis.set_ylim(0, 1)
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3, axis="y")


def _cosines(axis: Any, figures: Mapping[str, Any]) -> None:
    name = list(figures["shapings"])[min(1, len(figures["shapings"]) - 1)]
    values = np.array(figures["shapings"][name]["cosine"], dtype=np.float64)  # None becomes NaN, which stays white
    axis.imshow(values, vmin=-1, vmax=1, cmap="RdBu_r")
    for (i, j), value in np.ndenumerate(values):
        text, color = (
            ("none", "gray") if np.isnan(value) else (f"{value:.2f}", "white" if abs(value) > 0.6 else "black")
        )
        axis.text(j, i, text, ha="center", va="center", color=color)
    ticks = ["1: rarest", "2", "3", "4"]
    axis.set_xticks(range(4), ticks)
    axis.set_yticks(range(4), ticks)
    axis.set(title=f"cosine between the quarters' updates ({name})")
