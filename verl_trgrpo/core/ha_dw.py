"""Difficulty weighting of group-relative advantages by the policy's own history (HA-DW, arXiv 2601.08521)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.core.group_relative import at_valid_tokens, grouped_returns, normalized_in_groups


@dataclass(frozen=True)
class DifficultyOptions:
    """How strongly, and against what, the difficulty of a prompt weighs.

    Args:
        forgetting: eta in (0, 1], the share of the newest batch in the moving average of the policy's accuracy.
        scale: lambda > 0, a factor of all weights.
        correct_from: a response is right when its reward is at least this.

    Raises:
        ValueError: listing every parameter that is out of range.
    """

    forgetting: float = 0.1
    scale: float = 1.0
    correct_from: float = 1.0

    def __post_init__(self) -> None:
        ranges = {"forgetting": "(0, 1]", "scale": "(0, inf)", "correct_from": "(-inf, inf)"}
        raise_invalid(range_errors(vars(self), ranges))


@torch.no_grad()
def difficulty_weighted_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: DifficultyOptions,
    expected: float | None,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> tuple[torch.Tensor, float | None]:
    """GRPO's advantages times lambda exp(-sgn(A) (q - C)), q the share of right responses in a response's group.

    That is HA-DW's weight with D = -sgn(A) sgn(q - C) and M = |q - C|. On prompts that are harder than expected (q < C)
    good responses weigh more and bad ones less; on easier ones the other way round.

    All other arguments and what is raised are those of ``group_relative_advantages``.

    Args:
        options: see ``DifficultyOptions``.
        expected: C in [0, 1], the accuracy expected of the policy; None before the first batch, which is then compared
            with its own accuracy.

    Returns:
        the advantages, and C for the next batch: (1 - eta) C + eta y after a batch of accuracy y.
    """
    returns, groups = grouped_returns(token_level_rewards, response_mask, index)
    advantages = normalized_in_groups(returns, groups, epsilon, normalize_by_std)
    # veRL fills a batch up with empty responses of a group of their own, which say nothing about the policy.
    present = response_mask.bool().any(dim=-1).double()
    if not present.any():
        return at_valid_tokens(advantages, response_mask), expected
    right = torch.where(returns >= options.correct_from, present, 0.0)
    zeros = right.new_zeros(int(groups.max()) + 1)
    sizes = zeros.index_add(0, groups, present).clamp(min=1)
    success_rates = (zeros.index_add(0, groups, right) / sizes)[groups]
    accuracy = float(right.sum() / present.sum())
    if expected is None:
        expected = accuracy
    weights = options.scale * torch.exp(-torch.sign(advantages).double() * (success_rates - expected))
    weighted = at_valid_tokens((advantages * weights).to(advantages.dtype), response_mask)
    return weighted, (1 - options.forgetting) * expected + options.forgetting * accuracy
