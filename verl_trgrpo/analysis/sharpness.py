"""Sharpness of a loss around given parameters: gradient norm, rise in random directions, rise after one SAM step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
        gradient_norm: ||g||; radius times it is the rise to first order, SAM's surrogate of sharpness.
        random_rise: (L(x + d) + L(x - d)) / 2 - L(x) over random d of length radius: the mean curvature, since the
            pair cancels the slope.
        sam_rise: L(x + radius g / ||g||) - L(x), the ascent step of SAM (arXiv 2010.01412).
        sam_curvature: sam_rise - radius ||g||, the part that is not slope.
        radius: length of the perturbations, relative radius times the norm of the parameters.
    """

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
    relative_radius: float,
    directions: int,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Sharpness:
    """Measure how a loss rises around the parameters, which are put back to the bit.

    Args:
        loss: of a batch, at the present values of the parameters; deterministic.
        batches: one or more.
        parameters: x, all of them that the loss depends on.
        relative_radius: length of a perturbation over the norm of x, > 0.
        directions: random directions, each taken forwards and backwards; uniform on the sphere.
        seed: of directions and intervals.
        progress: shows progress over batches.
    """
    start = [parameter.detach().clone() for parameter in parameters]
    radius = relative_radius * _norm(start)

    def loss_at(batch: Any, direction: Sequence[torch.Tensor], scale: float) -> float:
        with torch.no_grad():
            for parameter, value, step in zip(parameters, start, direction, strict=True):
                parameter.copy_(torch.add(value, step, alpha=scale))
            found = loss(batch).item()
            for parameter, value in zip(parameters, start, strict=True):
                parameter.copy_(value)
        return found

    norms, sam_rises, random_rises = [], [], []
    for batch in progress(batches, None, "batches"):
        value = loss(batch)
        gradient = torch.autograd.grad(value, parameters)
        at, norm = value.item(), _norm(gradient)
        norms.append(norm)
        sam_rises.append(loss_at(batch, gradient, radius / norm if norm else 0.0) - at)
        generator = torch.Generator().manual_seed(seed)  # on the CPU, so that devices agree on the directions
        rises = []
        for _ in range(directions):
            direction = [torch.randn(p.shape, generator=generator).to(p) for p in parameters]
            scale = radius / _norm(direction)
            rises.append((loss_at(batch, direction, scale) + loss_at(batch, direction, -scale)) / 2 - at)
        random_rises.append(rises)

    def over_batches(values: Iterable[float]) -> Estimate:
        return crossed_interval([[value] for value in values], seed=seed)

    return Sharpness(
        gradient_norm=over_batches(norms),
        random_rise=crossed_interval(random_rises, seed=seed),
        sam_rise=over_batches(sam_rises),
        sam_curvature=over_batches(rise - radius * norm for rise, norm in zip(sam_rises, norms, strict=True)),
        radius=radius,
    )


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))
