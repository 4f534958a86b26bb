"""The analysis as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch

from verl_trgrpo.analysis.gradients import LogitGradients
from verl_trgrpo.analysis.options import UNIFORM
from verl_trgrpo.analysis.sharpness import Sharpness
from verl_trgrpo.common.files import replaced_file
from verl_trgrpo.common.text import text_table
from verl_trgrpo.runs.compare.table import interval_text

_HEAD = (
    "p of the quarter's tokens",
    "tokens",
    "weight",
    "share: logits",
    "parameters",
    "update norm",
    "cosine with 4th",
)


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
        columns = [effect[name] for name in ("weight", "share_at_logits", "share_at_parameters")]
        cosines = [row[-1] for row in effect["cosine"]]
        rows = [
            [
                range_of_p,
                f"{facts['tokens']:,}",
                *(f"{column[q]:.4f}" for column in columns),
                f"{effect['update_norm'][q]:.3g}",
                "-" if cosines[q] is None else f"{cosines[q]:.3f}",
            ]
            for q, (facts, range_of_p) in enumerate(zip(figures["quarters"], _ranges(figures), strict=True))
        ]
        about = "before weighting" if name == UNIFORM else f"mean weight {effect['mean_weight']:.4f}"
        lines += ["", f"{name}: {about}", text_table(rows, _HEAD, "r" * len(_HEAD))]
    return "\n".join(lines)


def _ranges(figures: Mapping[str, Any]) -> list[str]:
    quarters = figures["quarters"]
    return [f"{q['lowest_p']:.4f} to {q['highest_p']:.4f}" if q["tokens"] else "none" for q in quarters]


def sharpness_text(found: Mapping[str, Sequence[Sharpness]]) -> str:
    """A table with a line for each checkpoint and radius."""
    names = ("gradient_norm", "sam_rise", "sam_curvature")
    rows = [
        [model, f"{sharpness.radius:.3g}", *(interval_text(getattr(sharpness, name)) for name in names)]
        for model, radii in found.items()
        for sharpness in radii
    ]
    head = ["", "radius", *(name.replace("_", " ") for name in names)]
    return text_table(rows, head, "lrrrr") + "\n95 % intervals over batches"


def plot_gradients(
    figures: Mapping[str, Any], at_logits: LogitGradients, norms: torch.Tensor, path: Path, title: str
) -> None:
    """Draw norms against probability with their envelope, and shares by quarter, into a PNG file."""
    from matplotlib.figure import Figure  # not pyplot, which would keep it alive

    figure = Figure(figsize=(15, 5), layout="constrained")
    figure.suptitle(title)
    logits, parameters, shares = figure.subplots(1, 3)
    misses = at_logits.misses.numpy()
    _norms(logits, misses, at_logits.norms.numpy(), {"1 - p": 1.0, "sqrt(2) (1 - p)": math.sqrt(2)})
    logits.set(title="gradient norm of log p at the logits")
    ratio = figures["parameter_norm_over_miss"]
    bounds = {f"{bound:.3g} (1 - p)": bound for bound in (ratio["5%"], ratio["95%"])}
    _norms(parameters, misses[: len(norms)], norms.numpy(), bounds)
    parameters.set(title=f"by {figures['parameters']:,} parameters\n(lines hold 90 % of the tokens)")

    effects = figures["shapings"]
    by_shaping = {name: effect["share_at_parameters"] for name, effect in effects.items()}
    pandas.DataFrame(by_shaping, _ranges(figures)).plot.bar(ax=shares, rot=0, width=0.8, ylim=(0, 1), fontsize=8)
    shares.set(title="share of the summed norms |A| w ||g||\n(by parameters)", xlabel="p of the quarter's tokens")
    with replaced_file(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")


def _norms(axis: Any, misses: np.ndarray, norms: np.ndarray, bounds: Mapping[str, float]) -> None:
    shown = (misses > 1e-9) & (norms > 0)
    axis.loglog(misses[shown], norms[shown], ".", markersize=2, alpha=0.4, rasterized=True)
    line = np.geomspace(max(misses[shown].min(), 1e-9), 1, 100)
    for (name, bound), style in zip(bounds.items(), ("-", "--"), strict=True):
        axis.loglog(line, bound * line, style, color="C3", linewidth=1, label=name)
    axis.set(xlabel="1 - p of the sampled token (rare tokens on the right)", ylabel="norm")
    axis.legend(fontsize="small")
    axis.grid(alpha=0.3)
