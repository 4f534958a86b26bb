"""The contract of a token shaping, and the checks that every shaping passes before a run may use it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

# Resolution at which a shaping is probed on [0, 1]. Odd, so that 0, 1/2 and 1 are all grid points.
_GRID_POINTS = 4097
# Weights closer together than this cannot be told apart in fp16 or bf16 losses: the shaping does nothing.
_SMALLEST_SPREAD = 1e-6


@dataclass(frozen=True)
class Shaping(ABC):
    """Maps token probabilities to loss weights; subclasses are frozen dataclasses whose fields are the parameters.

    Calling a shaping takes probabilities in [0, 1] of any shape and returns finite weights >= 0 of the same shape.
    Callers detach the weights; a shaping need not care about gradients.

    Args:
        reverse: use ``1 - probability`` instead of the probability (the paper's ablation, which should hurt).

    Raises:
        ValueError: on construction, listing every parameter that is out of range, or when the weights are constant.
    """

    reverse: bool = False

    def __post_init__(self) -> None:
        problems = self.problems()
        if problems:
            raise ValueError(f"{type(self).__name__}: " + "; ".join(problems))
        check_shaping(self, repr(self), may_be_constant=self.may_be_constant)

    @property
    def may_be_constant(self) -> bool:
        """Whether equal weights for all probabilities are intended (only ``uniform`` says so)."""
        return False

    def problems(self) -> list[str]:
        """Every complaint about the parameters, each with value, reason and remedy; empty when they are fine."""
        return []

    @abstractmethod
    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        """Weights of already reversed probabilities; same shape as ``probs``."""

    def __call__(self, probs: torch.Tensor) -> torch.Tensor:
        return self.weights(1 - probs if self.reverse else probs)

    def bounds(self) -> tuple[float, float]:
        """Smallest and largest weight (L, U) that the shaping can give."""
        return probe(self)


def probe(shaping) -> tuple[float, float]:
    """Smallest and largest weight of ``shaping`` on a fine grid over [0, 1].

    Raises:
        ValueError: when the weights have another shape than the probabilities, are not finite, or are negative.
    """
    grid = torch.linspace(0.0, 1.0, _GRID_POINTS)
    given = grid.clone()
    weights = shaping(given)
    if not torch.equal(given, grid):
        raise ValueError(
            f"shaping {shaping!r} changes the probabilities it is given; they are used again, "
            "so compute the weights into a new tensor (mul instead of mul_)"
        )
    if not isinstance(weights, torch.Tensor) or weights.shape != grid.shape:
        got = tuple(weights.shape) if isinstance(weights, torch.Tensor) else type(weights).__name__
        raise ValueError(
            f"shaping {shaping!r} returned {got} for probabilities of shape {tuple(grid.shape)}; "
            "return one weight for each probability"
        )
    if not torch.isfinite(weights).all() or bool((weights < 0).any()):
        worst = weights[~torch.isfinite(weights) | (weights < 0)][0].item()
        raise ValueError(f"shaping {shaping!r} gives weight {worst} on [0, 1]; weights must be finite and not negative")
    return weights.min().item(), weights.max().item()


def check_shaping(shaping, name: str, may_be_constant: bool = False) -> None:
    """Refuse a shaping that breaks the contract, or whose weights are constant on [0, 1].

    Args:
        shaping: callable from probabilities to weights.
        name: how to call it in messages.
        may_be_constant: accept equal weights for all probabilities.

    Raises:
        ValueError: with value, reason and remedy.
    """
    lowest, highest = probe(shaping)
    if not may_be_constant and highest - lowest < _SMALLEST_SPREAD:
        raise ValueError(
            f"{name} gives the same weight {lowest:g} to every probability in [0, 1], so training would be plain GRPO. "
            "Check the parameters (tau is an inverse temperature that multiplies the probability: 9, not 1/9; "
            "lower and upper must leave room between them), or ask for shaping.name=uniform if that is what you want"
        )


def number_problem(name: str, value: object, low: float, high: float, open_low: bool = False) -> list[str]:
    """One-element list with a complaint when ``value`` is not a number in [low, high] (``(low`` if open), else []."""
    interval = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if math.isinf(high) else ']'}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [f"{name}={value!r} is not a number; give one in {interval}"]
    if not math.isfinite(value) or value < low or value > high or (open_low and value == low):
        return [f"{name}={value!r} is out of range; give a number in {interval}"]
    return []
