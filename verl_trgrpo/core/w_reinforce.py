"""Advantages from right and wrong alone, weighted apart (W-REINFORCE, arXiv 2506.01347)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.core.group_relative import at_valid_tokens, grouped_returns


@dataclass(frozen=True)
class OutcomeOptions:
    """What right and wrong responses weigh.

    Args:
        positive: lambda >= 0, the advantage of right responses; wrong ones have -1.
        correct_from: a response is right when its reward is at least this.

    Raises:
        ValueError: listing every parameter that is out of range.
    """

    positive: float = 0.1
    correct_from: float = 1.0

    def __post_init__(self) -> None:
        raise_invalid(range_errors(vars(self), {"positive": "[0, inf)", "correct_from": "(-inf, inf)"}))


@torch.no_grad()
def outcome_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: OutcomeOptions,
) -> torch.Tensor:
    """A = lambda for a right response and -1 for a wrong one; no baseline, no group (lambda L_PSR + L_NSR of the paper).

    With lambda 0 only wrong responses teach (negative sample reinforcement). The abstract and public code were seen.

    Arguments, result and what is raised are those of ``group_relative_advantages``;
    ``index`` is not used.
    """
    returns, _ = grouped_returns(token_level_rewards, response_mask, index)
    right = returns >= options.correct_from
    return at_valid_tokens(torch.where(right, options.positive, -1.0).to(returns.dtype), response_mask)
