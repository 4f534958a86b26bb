"""Difficulty weighting of group-relative advantages by the policy's own history (HA-DW, arXiv 2601.08521)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.core.group_relative import at_valid_tokens, grouped_returns, normalized_in_groups
from verl_trgrpo.core.ranges import range_problems

ANCHORS = ("history", "batch")


@dataclass(frozen=True)
class DifficultyOptions:
    """How strongly, and against what, the difficulty of a prompt weighs.

    Args:
        anchor: ``history`` (default) compares a prompt with a moving average of the policy's accuracy; ``batch`` with the
            accuracy of its own batch, which needs no memory.
        forgetting: eta in (0, 1], the share of the newest batch in the moving average.
        scale: lambda > 0, a factor of all weights.
        correct_from: a response is right when its reward is at least this.

    Raises:
        ValueError: listing every parameter that is out of range.
    """

    anchor: str = "history"
    forgetting: float = 0.1
    scale: float = 1.0
    correct_from: float = 1.0

    def __post_init__(self) -> None:
        problems = []
        if self.anchor not in ANCHORS:
            problems.append(f"anchor={self.anchor!r} is unknown; choose {' or '.join(ANCHORS)}")
        ranges = {"forgetting": "(0, 1]", "scale": "(0, inf)", "correct_from": "(-inf, inf)"}
        raise_problems(problems + range_problems(vars(self), ranges))


@dataclass
class DifficultyAnchor:
    """C, the accuracy expected of the policy: C <- (1 - eta) C + eta y after each batch of accuracy y.

    Args:
        accuracy: C in [0, 1]; None before the first batch, which is then compared with its own accuracy.
    """

    accuracy: float | None = None

    def update(self, batch_accuracy: float, forgetting: float) -> float:
        """Take a batch in; returns C as it was before."""
        before = batch_accuracy if self.accuracy is None else self.accuracy
        self.accuracy = (1 - forgetting) * before + forgetting * batch_accuracy
        return before


@torch.no_grad()
def difficulty_weighted_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: DifficultyOptions,
    anchor: DifficultyAnchor,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """GRPO's advantages times lambda exp(-sgn(A) (q - C)), q the share of right responses in a response's group.

    That is HA-DW's weight with D = -sgn(A) sgn(q - C) and M = |q - C|. On prompts that are harder than expected (q < C)
    good responses weigh more and bad ones less; on easier ones the other way round. ``anchor`` then takes the batch in
    (``anchor: history``).

    All other arguments, the result and what is raised are those of
    :func:`~verl_trgrpo.core.group_relative.group_relative_advantages`.

    Args:
        options: see :class:`DifficultyOptions`.
        anchor: the memory between batches; changed in place.
    """
    returns, groups = grouped_returns(token_level_rewards, response_mask, index)
    advantages = normalized_in_groups(returns, groups, epsilon, normalize_by_std)
    # veRL fills a batch up with empty responses of a group of their own, which say nothing about the policy.
    present = response_mask.bool().any(dim=-1).double()
    if not present.any():
        return at_valid_tokens(advantages, response_mask)
    right = torch.where(returns >= options.correct_from, present, 0.0)
    zeros = right.new_zeros(int(groups.max()) + 1)
    sizes = zeros.index_add(0, groups, present).clamp(min=1)
    success_rates = (zeros.index_add(0, groups, right) / sizes)[groups]
    expected = float(right.sum() / present.sum())
    if options.anchor == "history":
        expected = anchor.update(expected, options.forgetting)
    weights = options.scale * torch.exp(-torch.sign(advantages).double() * (success_rates - expected))
    return at_valid_tokens((advantages * weights).to(advantages.dtype), response_mask)
