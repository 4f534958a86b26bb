"""Draws docs/shapings.png: every shaping at its defaults, over p, and over entropy where it asks for that.

Run: make docs, or .venv/bin/python docs/plot_shapings.py
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from verl_trgrpo.core import Shaping, Tokens, available_shapings, make_shaping

_COLUMNS = 4
_POINTS = 201
# Largest change of p where it is not 0.3.
_DRIFTS = {"fipo": 0.004, "ipo_mask": 0.45}
# Largest p and largest entropy of a map where it is not 1 and 2: what the shaping acts on, or a mean entropy below its target.
_EXTENTS = {"stapo": (0.01, 2.0), "taco": (0.012, 2.0), "stare": (1.0, 0.5)}


def main() -> None:
    shapings = {name: make_shaping(name) for name in available_shapings()}
    shapings["sigmoid, reverse"] = make_shaping(reverse=True)
    rows = math.ceil(len(shapings) / _COLUMNS)
    figure = Figure(figsize=(12, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, _COLUMNS).flatten()
    for axis, (name, shaping) in zip(axes, shapings.items(), strict=False):
        axis.set_title(f"{name}, A > 0" if "advantages" in shaping.inputs else name, fontsize=11)
        axis.set_xlabel("p of the sampled token", fontsize=9)
        if shaping.probs_only:
            _curve(axis, shaping)
        elif "entropy" not in shaping.inputs and {"log_prob", "old_probs"} & set(shaping.inputs):
            _drift(axis, shaping)
        else:
            _map(axis, shaping)
        axis.tick_params(labelsize=8)
    for axis in axes[len(shapings) :]:
        axis.set_axis_off()
    figure.savefig(Path(__file__).with_name("shapings.png"), dpi=90)


def _curve(axis: Any, shaping: Shaping) -> None:
    """w over p, and what it does to the lower bound of the gradient at the logits, 1 - p."""
    probs = torch.linspace(0, 1, _POINTS)
    weights = shaping(probs)
    axis.plot(probs, weights, color="#0072B2", label="w")
    axis.plot(probs, weights * (1 - probs), color="#D55E00", linestyle="--", label="w (1 - p)")
    axis.set_ylim(0, 1.5)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False)


def _map(axis: Any, shaping: Shaping) -> None:
    """w over p and entropy, for A > 0, of a micro-batch that has every pair once."""
    most_probable, most_uncertain = _EXTENTS.get(shaping.name, (1.0, 2.0))
    probs = torch.linspace(1e-4, most_probable, _POINTS)
    entropy = torch.linspace(0, most_uncertain, _POINTS)
    log_prob, entropies = torch.meshgrid(probs.log(), entropy, indexing="xy")
    ones = torch.ones_like(log_prob)
    weights = shaping.weigh(
        Tokens.of_batch(log_prob, old_log_prob=log_prob, advantages=ones, response_mask=ones, entropy=entropies)
    )
    _draw(axis, weights, (float(probs[0]), float(probs[-1]), float(entropy[0]), float(entropy[-1])))
    asked = "entropy" in shaping.inputs
    axis.set_ylabel("entropy, nats" if asked else "")
    if not asked:
        axis.set_yticks([])


def _drift(axis: Any, shaping: Shaping) -> None:
    """w over a response's tokens, for A > 0; each row is a response all of whose tokens moved alike, from p = 1/2 upwards."""
    largest = _DRIFTS.get(shaping.name, 0.3)
    moved = torch.linspace(0, largest, _POINTS)[:, None].expand(_POINTS, _POINTS)
    old, ones = torch.full_like(moved, 0.5), torch.ones_like(moved)
    weights = shaping.weigh(
        Tokens.of_batch((old + moved).log(), old_log_prob=old.log(), advantages=ones, response_mask=ones)
    )
    _draw(axis, weights, (1, _POINTS, 0, largest))
    axis.set_xlabel("token of the response", fontsize=9)
    axis.set_ylabel("p - p_old of all tokens")


def _draw(axis: Any, weights: torch.Tensor, extent: tuple[float, float, float, float]) -> None:
    """Draw a map of weights, the smallest light, the largest dark; `extent` has the ends of both axes."""
    low, high = weights.min().item(), weights.max().item()
    span = high - low
    look = {"cmap": "Blues", "vmin": low - 0.3 * span, "vmax": high + 0.5 * span, "interpolation": "nearest"}
    axis.imshow(weights, origin="lower", aspect="auto", extent=extent, **look)
    label = f"light: {low:.3g}, dark: {high:.3g}"
    axis.text(
        0.97, 0.06, label, transform=axis.transAxes, ha="right", fontsize=8, bbox={"color": "white", "alpha": 0.7}
    )


if __name__ == "__main__":
    main()
