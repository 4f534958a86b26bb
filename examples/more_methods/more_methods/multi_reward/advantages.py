"""Compute advantages from several parts of a reward: GDPO, and Constrained GRPO with its dual ascent.

The parts come as one mapping per response, from the name of a part to its value, as a reward function returns them beside the
score. tests/test_multi_reward_advantages.py computes both once more from their formulas.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.core.advantages import at_valid_tokens, group_numbers, normalized_in_groups


@dataclass(frozen=True)
class RewardWeights:
    """Hold the rewards that GDPO adds up.

    Args:
        names: of parts of the reward; at least one, each once.
        weights: w_k, one number for each name; none at all means 1 for each.

    Raises:
        ValueError: a wrong value; all are listed.
    """

    names: Sequence[str]
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        lists = {"gdpo_reward_keys": self.names, "gdpo_reward_weights": self.weights}
        raise_invalid([f"{key}={given!r} is not a list" for key, given in lists.items() if not _is_list(given)])
        keys = {f"gdpo_reward_weights[{i}]": weight for i, weight in enumerate(self.weights)}
        messages = range_errors(keys, dict.fromkeys(keys, "(-inf, inf)"))
        names = list(self.names)
        if not names or len({*names}) < len(names):
            messages.append(f"gdpo_reward_keys={names}: give at least one, and each name once")
        if self.weights and len(self.weights) != len(names):
            messages.append(f"gdpo_reward_weights={list(self.weights)}: give as many as gdpo_reward_keys={names}")
        raise_invalid(messages)
        object.__setattr__(self, "weights", tuple(self.weights) or (1.0,) * len(names))


@dataclass(frozen=True)
class Cost:
    """Hold a constraint: the mean of a cost over the responses is to be at most `limit`.

    Args:
        name: of a part of the reward.
        limit: the largest mean cost that is allowed, any number; for a cost of 0 or 1 the share of responses.
        above: the cost is 1 where the part is above this number and 0 elsewhere; None takes the part itself as the cost.
    """

    name: str
    limit: float
    above: float | None = None

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the cost of each value."""
        return values if self.above is None else (values > self.above).to(values.dtype)


@dataclass(frozen=True)
class ConstraintOptions:
    """Hold the options of Constrained GRPO.

    Args:
        costs: the constraints, each a ``Cost`` or a mapping of its fields; at least one, with different names.
        lr: step of the dual ascent, above 0.
        initial: multiplier of each cost before the first batch, at least 0.
        damping: of the multipliers' oscillation, at least 0: in the advantages of a batch a multiplier counts as ``dual_ascent``
            by a step of this size would have it, from the batch's own costs, without remembering that step. It is the
            proportional term of PID Lagrangian methods (arXiv 2007.03964, of which the abstract and a summary were read); 0 is
            Constrained GRPO.
        reward_weight: lambda_R >= 0, weight of the reward's own advantage.

    Raises:
        ValueError: a wrong value; all are listed.
    """

    costs: Sequence[Cost] = ()
    lr: float = 0.1
    initial: float = 0.0
    damping: float = 0.0
    reward_weight: float = 1.0

    def __post_init__(self) -> None:
        ranges = {"lr": "(0, inf)"} | dict.fromkeys(("initial", "damping", "reward_weight"), "[0, inf)")
        messages = range_errors(vars(self), ranges)
        if not _is_list(self.costs):
            messages.append(f"costs={self.costs!r} is not a list of costs; give [{{name: NAME, limit: NUMBER}}]")
        costs: list[Cost] = []
        for given in self.costs if _is_list(self.costs) else ():
            try:
                cost = given if isinstance(given, Cost) else Cost(**given)
            except TypeError:
                messages.append(
                    f"costs: {given} is not a cost; give name and limit, and above where the cost is 0 or 1"
                )
                continue
            values = {"limit": cost.limit} | ({} if cost.above is None else {"above": cost.above})
            errors = range_errors(values, dict.fromkeys(values, "(-inf, inf)"))
            if not isinstance(cost.name, str):
                errors.append("the name of a part of the reward is a string")
            messages += [f"costs: {cost.name}: {error}" for error in errors]
            costs.append(cost)
        names = [cost.name for cost in costs]
        if not messages and (not names or len({*names}) < len(names)):
            messages.append(f"costs={names}: give at least one, and each name once")
        raise_invalid(messages)
        object.__setattr__(self, "costs", tuple(costs))

    def remembered(self, state: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Return the multiplier of each cost by name: what the state remembers of it, else the initial one."""
        found = state.get("multipliers", {})
        return {cost.name: found.get(cost.name, self.initial) for cost in self.costs}

    def ascended(
        self, state: Mapping[str, Mapping[str, float]], means: Sequence[float], step: float
    ) -> dict[str, float]:
        """Return the multipliers after a step of dual ascent: of `damping` for a batch's advantages, of `lr` to remember.

        Args:
            state: what is remembered, before the batch.
            means: mean costs of the batch, in the order of `costs`.
            step: size of the step.
        """
        multipliers = self.remembered(state)
        return {
            cost.name: dual_ascent(multipliers[cost.name], mean, cost.limit, step)
            for cost, mean in zip(self.costs, means, strict=True)
        }

    def values(self, parts: Sequence[Mapping[str, float]], device: torch.device | None = None) -> torch.Tensor:
        """Return the costs of responses, (batch, number of costs) float64.

        Raises:
            ValueError: a response lacks a part.
        """
        columns = part_values(parts, [cost.name for cost in self.costs], device).unbind(-1)
        return torch.stack([cost.of(column) for cost, column in zip(self.costs, columns, strict=True)], dim=-1)


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)


def part_values(
    parts: Sequence[Mapping[str, float]], names: Sequence[str], device: torch.device | None = None
) -> torch.Tensor:
    """Return the named parts of each response's reward, (batch, number of names) float64.

    Raises:
        ValueError: a response lacks one of them (the message has the names that all responses have), or one is not finite,
            which would spread to the advantages of a group and set a multiplier back to 0.
    """
    missing = [name for name in names if any(name not in given for given in parts)]
    if missing:
        there = sorted(set.intersection(*(set(given) for given in parts)))
        raise ValueError(
            f"the reward function does not return {', '.join(missing)} with every response; with every one it returns "
            f"{', '.join(there) or 'nothing'}"
        )
    broken = [name for name in names if not all(math.isfinite(given[name]) for given in parts)]
    if broken:
        raise ValueError(
            f"the reward function returns NaN or infinity as {', '.join(broken)}; it has to return a finite number with every "
            "response"
        )
    rows = [[float(given[name]) for name in names] for given in parts]
    return torch.tensor(rows, dtype=torch.float64, device=device).reshape(len(parts), len(names))


@torch.no_grad()
def decoupled_advantages(
    rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    weights: Sequence[float],
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """Normalise each reward within its group, add them up, and normalise over the batch (GDPO, arXiv 2601.05242).

    A = (S - mean S) / sqrt(var S + 1e-8) with S = sum_k w_k Z_k, where Z_k are GRPO's advantages of reward k alone. Mean and
    variance are over the valid tokens of the batch, as in veRL's ``gdpo`` and the authors' code (github.com/NVlabs/GDPO); the
    paper's equation, of which a summary was read, counts each response once. Unlike in veRL's, a group of equal rewards gives
    Z = 0 exactly, and so does a group of one.

    Other arguments and errors are those of ``group_relative_advantages``.

    Args:
        rewards: (batch, number of rewards).
        weights: w_k, one for each reward.

    Returns:
        (batch, response_length) float32 advantages, 0 outside the mask.
    """
    groups = group_numbers(index).to(rewards.device)
    columns = [
        normalized_in_groups(column, groups, epsilon, normalize_by_std) for column in rewards.double().unbind(-1)
    ]
    total = sum(weight * column for weight, column in zip(weights, columns, strict=True))
    tokens = response_mask.bool().sum(dim=-1).double()
    count = tokens.sum().clamp(min=2)
    centred = total - (tokens * total).sum() / count
    variance = (tokens * centred.square()).sum() / (count - 1)
    return at_valid_tokens((centred * torch.rsqrt(variance + 1e-8)).float(), response_mask)


@torch.no_grad()
def constrained_advantages(
    token_level_rewards: torch.Tensor,
    costs: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    multipliers: Sequence[float],
    reward_weight: float = 1.0,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """Compute A = lambda_R Z_R - sum_k lambda_k Z_k (Constrained GRPO, arXiv 2602.05863).

    Z are GRPO's advantages of the reward and of each cost alone. Adding them up after the normalisation keeps the ratio of
    the multipliers, which the standard deviation of a sum of reward and costs would change. Abstract, introduction and
    summaries were read; lambda_R is 1 here.

    Other arguments and errors are those of ``group_relative_advantages``.

    Args:
        costs: (batch, number of costs).
        multipliers: lambda_k >= 0, one for each cost.
        reward_weight: lambda_R.
    """
    groups = group_numbers(index).to(costs.device)
    returns = token_level_rewards.sum(dim=-1).double()
    total = reward_weight * normalized_in_groups(returns, groups, epsilon, normalize_by_std)
    for multiplier, column in zip(multipliers, costs.double().unbind(-1), strict=True):
        total = total - multiplier * normalized_in_groups(column, groups, epsilon, normalize_by_std)
    return at_valid_tokens(total.float(), response_mask)


def dual_ascent(multiplier: float, mean_cost: float, limit: float, lr: float) -> float:
    """Return max(0, lambda + lr (mean cost - limit)), the multiplier of a cost for the next batch (arXiv 2602.05863)."""
    return max(0.0, multiplier + lr * (mean_cost - limit))
