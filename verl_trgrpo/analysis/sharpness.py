"""Sharpness of a loss around given parameters: gradient norm, rise in random directions, rise after one SAM step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

LEVEL = 0.95
_RESAMPLES = 2000

LossFunction = Callable[[Any], torch.Tensor]


class Interval(NamedTuple):
    """A mean, and the ends of its 95 % bootstrap interval (NaN from a single value)."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Sharpness:
    """What :func:`measure_sharpness` found, means over batches (and directions).

    Args:
        loss: value at the parameters.
        gradient_norm: ||g||; radius times it is the rise to first order, SAM's surrogate of sharpness.
        random_rise: (L(x + d) + L(x - d)) / 2 - L(x) over random d of length radius: the mean curvature, since the
            pair cancels the slope.
        sam_rise: L(x + radius g / ||g||) - L(x), the ascent step of SAM (arXiv 2010.01412).
        sam_curvature: sam_rise - radius ||g||, the part that is not slope.
        radius: length of the perturbations, relative radius times the norm of the parameters.
    """

    loss: Interval
    gradient_norm: Interval
    random_rise: Interval
    sam_rise: Interval
    sam_curvature: Interval
    radius: float

    def as_dict(self) -> dict[str, Any]:
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def measure_sharpness(
    loss: LossFunction,
    batches: Sequence[Any],
    parameters: Sequence[torch.Tensor],
    relative_radius: float = 1e-3,
    directions: int = 8,
    seed: int = 0,
    progress: Callable[[Iterable[Any], int | None, str], Iterable[Any]] = lambda items, total, label: items,
) -> Sharpness:
    """Measure how the mean loss rises in a small ball around the parameters.

    All batches see the same directions. Intervals come from drawing batches, and for ``random_rise`` also directions,
    with replacement. The parameters are put back bit for bit.

    Args:
        loss: from a batch to a scalar connected to the parameters.
        batches: at least one.
        parameters: all that are perturbed, together a vector x.
        relative_radius: length of a perturbation over the norm of x, > 0.
        directions: random directions, each taken forwards and backwards; uniform on the sphere.
        seed: of directions and intervals.
        progress: shows progress over batches.

    Raises:
        ValueError: for no batches, no directions, a radius that is not positive, or parameters that are all 0.
    """
    length = math.sqrt(sum(float(p.detach().double().square().sum()) for p in parameters))
    if not batches or directions < 1 or not relative_radius > 0 or length == 0:
        raise ValueError(
            f"sharpness needs batches ({len(batches)}), directions ({directions}), a positive radius ({relative_radius}) "
            f"and parameters that are not all 0 (their norm is {length:g})"
        )
    radius = relative_radius * length
    rows = [
        _one_batch(loss, batch, parameters, radius, directions, seed) for batch in progress(batches, None, "batches")
    ]
    at, norms, sam, rises = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(4))
    column = [x[:, None] for x in (at, norms, sam, sam - radius * norms)]
    values, gradient_norm, sam_rise, sam_curvature = (interval(x, seed) for x in column)
    return Sharpness(values, gradient_norm, interval(rises, seed), sam_rise, sam_curvature, radius)


def _one_batch(
    loss: LossFunction, batch: Any, parameters: Sequence[torch.Tensor], radius: float, directions: int, seed: int
) -> tuple[float, float, float, list[float]]:
    """Loss, gradient norm, rise after a SAM step, and mean rises along pairs of random directions."""
    value = loss(batch)
    gradient = torch.autograd.grad(value, parameters)
    at = value.item()
    norm = _norm(gradient)
    with torch.no_grad():
        with perturbed(parameters, gradient, radius / norm if norm else 0.0):
            sam = loss(batch).item() - at
        rises = []
        generator = torch.Generator().manual_seed(seed)  # on the CPU, so that devices agree on the directions
        for _ in range(directions):
            direction = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
            scale = radius / _norm(direction)
            pair = []
            for sign in (1, -1):
                with perturbed(parameters, direction, sign * scale):
                    pair.append(loss(batch).item())
            rises.append((pair[0] + pair[1]) / 2 - at)
    return at, norm, sam, rises


@contextlib.contextmanager
def perturbed(parameters: Sequence[torch.Tensor], direction: Sequence[torch.Tensor], scale: float) -> Iterator[None]:
    """Add scale times direction to the parameters for the time of the block."""
    saved = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, step in zip(parameters, direction, strict=True):
                parameter.add_(step, alpha=scale)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, saved, strict=True):
                parameter.copy_(value)


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def interval(values: np.ndarray, seed: int) -> Interval:
    """Mean of (batches, directions) values with an interval from drawing rows and columns anew, each with replacement.

    The effects of a batch and of a direction are both shared by many values, so single values must not be drawn.
    """
    rng = np.random.default_rng(seed)
    if values.size == 1:
        return Interval(float(values[0, 0]), math.nan, math.nan)
    rows, columns = (rng.multinomial(n, [1 / n] * n, size=_RESAMPLES) / n for n in values.shape)
    means = np.einsum("rb,bd,rd->r", rows, values, columns)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values.mean()), float(low), float(high))
