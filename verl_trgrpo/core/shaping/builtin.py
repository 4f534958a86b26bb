"""The shapings that ship with the project, each with its formula, parameter ranges and source."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verl_trgrpo.core.shaping.base import Shaping, number_problem
from verl_trgrpo.core.shaping.registry import register_shaping

_INF = math.inf


@dataclass(frozen=True)
class _ClippedSigmoid(Shaping):
    """Parameters shared by the two sigmoid forms; see the subclasses for the formulas."""

    alpha: float = 2.0
    tau: float = 9.0
    mu: float = 0.25
    lower: float = 1.0
    upper: float = 1.4

    def problems(self) -> list[str]:
        found = (
            number_problem("alpha", self.alpha, 0, _INF, open_low=True)
            + number_problem("tau", self.tau, 0, _INF, open_low=True)
            + number_problem("mu", self.mu, 0, 1)
            + number_problem("lower", self.lower, 0, _INF)
            + number_problem("upper", self.upper, 0, _INF)
        )
        if not found and self.lower >= self.upper:
            found.append(f"lower={self.lower} is not below upper={self.upper}; the clip range would be empty")
        return found

    def bounds(self) -> tuple[float, float]:
        return self.lower, self.upper


@register_shaping("sigmoid")
@dataclass(frozen=True)
class Sigmoid(_ClippedSigmoid):
    """TR-GRPO's weight: ``clip(alpha * (sigmoid(tau * p) - mu), lower, upper)`` (arXiv 2511.00066).

    The published constants are the defaults: w is 1.0 up to p = 0.122 and 1.4 from p = 0.327. Secondary sources print
    ``p / tau``; with these constants that form is 1.0 everywhere, so here tau multiplies (an inverse temperature).

    Args:
        alpha: scale, > 0.
        tau: inverse temperature, > 0.
        mu: offset, in [0, 1].
        lower: L, smallest weight, >= 0.
        upper: U, largest weight, > lower.
    """

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(probs * self.tau).sub_(self.mu).mul_(self.alpha).clamp_(self.lower, self.upper)


@register_shaping("sigmoid_centered")
@dataclass(frozen=True)
class SigmoidCentered(_ClippedSigmoid):
    """``clip(alpha * sigmoid(tau * (p - mu)), lower, upper)``: crosses alpha / 2 (1 by default) at p = mu.

    The shape of the ``both_sigmoid`` option in the public code of arXiv 2505.12929 (slope 5, centre 0.4 there);
    the constants here are TR-GRPO's. Parameters as in :class:`Sigmoid`; mu is the centre.
    """

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid((probs - self.mu).mul_(self.tau)).mul_(self.alpha).clamp_(self.lower, self.upper)


@register_shaping("linear")
@dataclass(frozen=True)
class Linear(Shaping):
    """``alpha * p + (1 - alpha)``: Advantage Reweighting of arXiv 2505.12929 (alpha 0.2 alone, 0.3 with Lopti).

    Args:
        alpha: slope, in (0, 1].
    """

    alpha: float = 0.2

    def problems(self) -> list[str]:
        return number_problem("alpha", self.alpha, 0, 1, open_low=True)

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return (probs * self.alpha).add_(1 - self.alpha)

    def bounds(self) -> tuple[float, float]:
        return 1 - self.alpha, 1.0


@register_shaping("power")
@dataclass(frozen=True)
class Power(Shaping):
    """``max(p ** gamma, lower)``, this project's own smooth alternative.

    Args:
        gamma: exponent, > 0; larger means stronger suppression of rare tokens.
        lower: L, floor of the weight, in [0, 1).
    """

    gamma: float = 0.5
    lower: float = 0.1

    def problems(self) -> list[str]:
        found = number_problem("gamma", self.gamma, 0, _INF, open_low=True) + number_problem("lower", self.lower, 0, 1)
        if not found and self.lower == 1:
            found.append("lower=1 leaves no room below the largest weight 1; give a floor in [0, 1)")
        return found

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return torch.pow(probs, self.gamma).clamp_(min=self.lower)

    def bounds(self) -> tuple[float, float]:
        return self.lower, 1.0


@register_shaping("threshold")
@dataclass(frozen=True)
class Threshold(Shaping):
    """``lower`` below probability eta, ``upper`` from eta on: a hard gate; eta 0.5 is the split of Lopti, arXiv 2505.12929.

    Args:
        eta: the probability at which the weight jumps, in (0, 1].
        lower: L, weight of tokens with p < eta, >= 0.
        upper: U, weight of tokens with p >= eta, > lower.
    """

    eta: float = 0.5
    lower: float = 1.0
    upper: float = 1.4

    def problems(self) -> list[str]:
        found = (
            number_problem("eta", self.eta, 0, 1, open_low=True)
            + number_problem("lower", self.lower, 0, _INF)
            + number_problem("upper", self.upper, 0, _INF)
        )
        if not found and self.lower >= self.upper:
            found.append(
                f"lower={self.lower} is not below upper={self.upper}; the gate would do nothing or be reversed"
            )
        return found

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        lower, upper = probs.new_tensor(self.lower), probs.new_tensor(self.upper)
        # NaN must stay visible: comparing it would quietly turn it into ``lower``.
        return torch.where(probs >= self.eta, upper, lower) + probs * 0

    def bounds(self) -> tuple[float, float]:
        return self.lower, self.upper


@register_shaping("binary_entropy")
@dataclass(frozen=True)
class BinaryEntropy(Shaping):
    """``lower + (upper - lower) h(p) / log 2`` with h(p) = -p log p - (1 - p) log(1 - p): this project's own.

    h(p) is the largest lower bound of the policy's entropy at a position that the sampled token's probability alone
    allows (every other token may share 1 - p or one may have it all): a smooth weight for uncertain positions, in the
    spirit of arXiv 2506.01939. It treats p and 1 - p alike, so it cannot be reversed.

    Args:
        lower: L, weight at p = 0 and p = 1, >= 0.
        upper: U, weight at p = 1/2, > lower.
    """

    lower: float = 1.0
    upper: float = 1.4

    def problems(self) -> list[str]:
        found = number_problem("lower", self.lower, 0, _INF) + number_problem("upper", self.upper, 0, _INF)
        if not found and self.lower >= self.upper:
            found.append(
                f"lower={self.lower} is not below upper={self.upper}; the weight would be constant or reversed"
            )
        if self.reverse:
            found.append(
                "reverse=true changes nothing, because p and 1 - p have the same binary entropy; leave it false"
            )
        return found

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        entropy = -(torch.xlogy(probs, probs) + torch.xlogy(1 - probs, 1 - probs))
        return entropy.mul_((self.upper - self.lower) / math.log(2)).add_(self.lower).clamp_(self.lower, self.upper)

    def bounds(self) -> tuple[float, float]:
        return self.lower, self.upper


@register_shaping("uniform")
@dataclass(frozen=True)
class Uniform(Shaping):
    """``1`` for every token: plain GRPO, the baseline of every comparison."""

    @property
    def may_be_constant(self) -> bool:
        return True

    def weights(self, probs: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(probs)

    def bounds(self) -> tuple[float, float]:
        return 1.0, 1.0
