"""Draws docs/shapings.png: the built-in shapings at their defaults, and the gradient envelope they act on.

Run: .venv/bin/python docs/plot_shapings.py
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from matplotlib.figure import Figure

from verl_trgrpo.core import available_shapings, make_shaping


def main() -> None:
    probs = torch.linspace(0, 1, 2001)
    figure = Figure(figsize=(10, 4), layout="constrained")
    weights, gradients = figure.subplots(1, 2)
    for name in available_shapings():
        shaping = make_shaping(name)
        if shaping.probs_only:
            weights.plot(probs, shaping(probs), label=name)
    weights.plot(probs, make_shaping(reverse=True)(probs), "--", color="gray", label="sigmoid, reverse")
    weights.set(
        title="weight of a token's loss", xlabel="probability p of the sampled token", ylabel="w(p)", ylim=(0, 1.5)
    )
    weights.legend(fontsize="small", ncols=2)

    for name, style in (("uniform", "k-"), ("sigmoid", "C3-"), ("power", "C1-")):
        lower = make_shaping(name)(probs) * (1 - probs)
        # Both relative to their mean over p, because Adam cancels a common factor.
        gradients.plot(probs, lower / lower.mean(), style, label=f"{name}: w (1 - p)")
        gradients.plot(probs, math.sqrt(2) * lower / lower.mean(), style, alpha=0.3)
    gradients.set(
        title="bounds of the gradient norm at the logits", xlabel="p", ylabel="relative to the mean of w (1 - p)"
    )
    gradients.legend(fontsize="small")
    for axis in (weights, gradients):
        axis.grid(alpha=0.3)
    figure.savefig(Path(__file__).with_name("shapings.png"), dpi=110)


if __name__ == "__main__":
    main()
