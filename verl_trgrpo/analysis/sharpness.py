"""Sharpness of a loss around given parameters: gradient norm, rise in random directions, rise after one SAM step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from verl_trgrpo.analysis.options import AnalyzeOptions
from verl_trgrpo.analysis.rollouts import Rollout, chunks, response_log_probs, sample_rollouts
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.runs.statistics import Estimate, crossed_interval

LossFunction = Callable[[Any], torch.Tensor]

# Prompts, with all their responses, whose loss is measured together.
PROMPTS_PER_BATCH = 4


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

    loss: Estimate
    gradient_norm: Estimate
    random_rise: Estimate
    sam_rise: Estimate
    sam_curvature: Estimate
    radius: float


def analyze_sharpness(tokenizer: Any, model: Any, options: AnalyzeOptions, progress: Progress) -> list[Sharpness]:
    """Measure sharpness of GRPO's surrogate, -1/N sum A pi / pi_0, around a checkpoint pi_0 on its own rollouts.

    The same unweighted loss for every checkpoint, whatever it was trained with; a batch is `PROMPTS_PER_BATCH` groups.

    Returns:
        what was found for each radius.

    Raises:
        ValueError: when every group got equal rewards, so that the loss is 0 wherever one looks.
    """
    rollouts = sample_rollouts(tokenizer, model, options, progress)
    with torch.no_grad():
        pieces = chunks(rollouts, PROMPTS_PER_BATCH * options.samples)
        batches = [(batch, response_log_probs(model, batch)) for batch in pieces]

    def surrogate(batch: tuple[Sequence[Rollout], torch.Tensor]) -> torch.Tensor:
        rows, old = batch
        advantages = torch.cat([torch.full(row.response.shape, row.advantage).to(old) for row in rows])
        return -(advantages * torch.exp(response_log_probs(model, rows) - old)).mean()

    parameters = list(model.parameters())
    return [
        measure_sharpness(surrogate, batches, parameters, radius, options.directions, options.seed, progress)
        for radius in options.radius
    ]


def measure_sharpness(
    loss: LossFunction,
    batches: Sequence[Any],
    parameters: Sequence[torch.Tensor],
    relative_radius: float = 1e-3,
    directions: int = 8,
    seed: int = 0,
    progress: Progress = no_progress,
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

    def over_batches(values: Iterable[float]) -> Estimate:
        return crossed_interval([[value] for value in values], seed=seed)

    return Sharpness(
        loss=over_batches(value for value, _, _, _ in rows),
        gradient_norm=over_batches(norm for _, norm, _, _ in rows),
        random_rise=crossed_interval([rises for _, _, _, rises in rows], seed=seed),
        sam_rise=over_batches(rise for _, _, rise, _ in rows),
        sam_curvature=over_batches(rise - radius * norm for _, norm, rise, _ in rows),
        radius=radius,
    )


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
