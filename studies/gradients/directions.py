"""Compare directions of weighted gradients with GRPO's, from gradients of many mini-batches of one policy, without training.

Let g_k be the gradient of a mini-batch with the weights of shaping k, and g_0 that with equal weights. Its mean over
mini-batches, E g_0, is the direction in which GRPO moves on average. A step of length e along g_k gains e <E g_k, E g_0> / |g_k|
to first order, so the **efficiency** of a shaping is

    <E g_k, E g_0> / sqrt(E |g_k|^2)    divided by    <E g_0, E g_0> / sqrt(E |g_0|^2) ,

which does not depend on the size of the weights: 1.1 means 10 % more gain from steps of the same length, or the same gain from
1 / 1.1^2 of the samples where noise dominates. With curvature alike in all directions, the best step size of each shaping gains
in proportion to the square.

Estimates from M mini-batches with independent samples:

- <E g_k, E g_l> is the mean of <g_k of i, g_l of j> over pairs i != j. Both factors are independent, so it is unbiased, which
  the product of the two means is not: it would contain the noise, 1/M E |g|^2.
- E |g_k|^2 is the mean of the squared norms.
- For Adam, g_k of i is divided, coordinate by coordinate, by the root of the mean square of its own value and of those in the
  half of the mini-batches that i is not in. Partners j are of i's own half, so the two factors are independent here, too.
- Standard errors are the jackknife's, leaving out one mini-batch at a time; Adam's divisors stay as they are.

Inner products may be over a random sample of the coordinates, and norms over all: `scale` is then all over sampled. The error
of that sampling is not in the standard errors, and is nearly common to all shapings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, NamedTuple

import torch

from verl_trgrpo.compare.statistics import Estimate

# Adam's own, far below every gradient that matters.
_EPSILON = 1e-12


class Products(NamedTuple):
    """Inner products of M mini-batches and K shapings, the first of equal weights; all float64.

    Args:
        plain: (M, K, M, K) of gradients.
        adam: (K, M, M) of Adam's steps (row) with gradients of equal weights (column); NaN between the two halves.
        adam_squares: (M, K) squared lengths of Adam's steps.
    """

    plain: torch.Tensor
    adam: torch.Tensor
    adam_squares: torch.Tensor


class Direction(NamedTuple):
    """One shaping; intervals are the estimate plus and minus `ERRORS` standard errors.

    Args:
        efficiency: relative to equal weights.
        adam_efficiency: the same of steps that Adam has scaled.
        cosine: of the mean gradients with and without the weights.
        angle: degrees between the two gradients of one mini-batch, on average.
        signal: squared norm of the mean gradient; may be negative where noise dominates.
        adam_signal: inner product of Adam's mean step and the mean gradient of equal weights, to which `adam_efficiency` is
            proportional; may be negative, too.
        noise: mean squared distance of a mini-batch's gradient from the mean.
    """

    efficiency: Estimate
    adam_efficiency: Estimate
    cosine: Estimate
    angle: float
    signal: Estimate
    adam_signal: Estimate
    noise: float

    def figures(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return {name: asdict(value) if isinstance(value, Estimate) else value for name, value in self._asdict().items()}


# Of normal values, 95 % are within so many standard errors.
ERRORS = 1.96


def inner_products(parts: Iterable[torch.Tensor]) -> Products:
    """Compute the inner products of gradients that are given in parts of the coordinates, (M, K, any), M at least 4.

    Raises:
        ValueError: fewer mini-batches.
    """
    plain: torch.Tensor | None = None
    for part in parts:
        batches, shapings, _ = part.shape
        if batches < 4:
            raise ValueError(f"{batches} mini-batches are too few; give at least 4")
        part = part.double()
        if plain is None:
            plain = torch.zeros(batches * shapings, batches * shapings, dtype=torch.float64)
            adam = torch.zeros(shapings, batches, batches, dtype=torch.float64)
            squares = torch.zeros(batches, shapings, dtype=torch.float64)
        rows = part.flatten(0, 1)
        plain += rows @ rows.T
        for half in (slice(0, None, 2), slice(1, None, 2)):
            own, other = part[half], part[1 - half.start :: 2]
            steps = own / (((own.square() + other.square().sum(0)) / (len(other) + 1)).sqrt() + _EPSILON)
            squares[half] += steps.square().sum(-1)
            adam[:, half, half] += torch.einsum("ikx,jx->kij", steps, own[:, 0])
    if plain is None:
        raise ValueError("there are no coordinates; give at least one part")
    batches, shapings = squares.shape
    place = torch.arange(batches)
    adam[:, place[:, None] % 2 != place % 2] = torch.nan
    return Products(plain.view(batches, shapings, batches, shapings), adam, squares)


def directions(products: Products, squared_norms: torch.Tensor, scale: float = 1.0) -> list[Direction]:
    """Return the direction of each shaping, the first with efficiency 1.

    Args:
        products: of `inner_products`.
        squared_norms: (M, K) squared norms of the gradients.
        scale: number of all coordinates over those that `products` are of.
    """
    own = torch.einsum("ikjk->kij", products.plain) * scale
    with_first = products.plain[:, :, :, 0].transpose(0, 1) * scale
    norms, steps = squared_norms.double().T, products.adam_squares.T
    mean_products, own_products, adam_products = _leave_out(with_first), _leave_out(own), _leave_out(products.adam)
    efficiency = _relative(mean_products / _leave_out(norms).sqrt())
    adam_efficiency = _relative(adam_products / _leave_out(steps).sqrt())
    cosine = mean_products / (own_products * own_products[:1]).clamp(min=0).sqrt()
    same = torch.einsum("ikik->ki", products.plain)
    same_cosine = products.plain[:, :, :, 0].diagonal(dim1=0, dim2=2) / (same * same[:1]).sqrt()
    angles = torch.rad2deg(torch.arccos(same_cosine.clamp(-1, 1))).nanmean(-1)
    return [
        Direction(
            _jackknife(efficiency[k]), _jackknife(adam_efficiency[k]), _jackknife(cosine[k]), float(angles[k]),
            _jackknife(own_products[k]), _jackknife(adam_products[k]), float(norms[k].mean() - own_products[k, 0]),
        )
        for k in range(len(norms))
    ]  # fmt: skip


def _leave_out(values: torch.Tensor) -> torch.Tensor:
    """Return means over all mini-batches, then without each of them: (K, 1 + M).

    Args:
        values: (K, M) one for each mini-batch; or (K, M, M) one for each pair, of which those of a mini-batch with itself and
            NaN do not count.
    """
    if values.dim() == 2:
        total, without, count = values.sum(-1, keepdim=True), values, values.shape[1]
        return torch.cat([total / count, (total - without) / (count - 1)], -1)
    size = values.shape[-1]
    counted = ~(torch.eye(size, dtype=torch.bool) | values.isnan())
    kept = values.masked_fill(~counted, 0.0)
    total, number = kept.sum((-1, -2))[:, None], counted.sum((-1, -2))[:, None]
    without = total - kept.sum(-1) - kept.sum(-2)
    left = number - counted.sum(-1) - counted.sum(-2)
    return torch.cat([total / number, without / left], -1)


def _relative(values: torch.Tensor) -> torch.Tensor:
    return values / values[:1]


def _jackknife(values: torch.Tensor) -> Estimate:
    """Return the first value with the interval that the others, without one mini-batch each, give."""
    mean, others = values[0].item(), values[1:]
    error = ((len(others) - 1) * (others - others.mean()).square().mean()).sqrt().item()
    if math.isnan(mean) or math.isnan(error) or error == 0:
        return Estimate(mean)
    return Estimate(mean, mean - ERRORS * error, mean + ERRORS * error)
