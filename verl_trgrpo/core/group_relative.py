"""Group-relative advantages, vectorised: the estimators of GRPO and Reinforce-Rej in pure torch."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence

import numpy as np
import torch

logger = logging.getLogger(__name__)


@torch.no_grad()
def group_relative_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """A = (R - mean R) / (std R + epsilon) within each group of responses to one prompt (arXiv 2402.03300).

    R is the sum of a response's token rewards; std is the sample standard deviation. A group whose rewards are all equal
    gives exactly 0, with no rounding residue that a division by a tiny std would blow up. A group of one has nothing to
    be compared with: it gives 0 and a logged warning.

    Args:
        token_level_rewards: (batch, response_length) rewards; values outside the mask count, as in veRL.
        response_mask: (batch, response_length) 1 or True for tokens the model generated.
        index: (batch,) hashable group labels (strings, integers, tuples, ...); equal labels form a group.
        epsilon: added to the standard deviation.
        normalize_by_std: False gives R - mean R, as in Dr.GRPO (arXiv 2503.20783).

    Returns:
        (batch, response_length) advantages, each response's value at its valid tokens and 0 elsewhere.

    Raises:
        ValueError: for shapes that do not agree.
    """
    returns, groups = grouped_returns(token_level_rewards, response_mask, index)
    return at_valid_tokens(normalized_in_groups(returns, groups, epsilon, normalize_by_std), response_mask)


@torch.no_grad()
def rejection_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> torch.Tensor:
    """A = R where a group's rewards differ, and exactly 0 where they are all equal (Reinforce-Rej, arXiv 2504.11343).

    "All right" and "all wrong" are told by equal rewards R (the sums of token rewards): a reward that also depends on
    format or length, or a KL in the reward, makes groups differ that are equally right. A group of one is dropped.

    Arguments, result and what is raised are those of ``group_relative_advantages``.
    """
    returns, groups = grouped_returns(token_level_rewards, response_mask, index)
    lowest, highest = _group_extremes(returns, groups)
    return at_valid_tokens(torch.where((lowest == highest)[groups], 0.0, returns), response_mask)


def grouped_returns(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """R of each response and the number of its group, both (batch,); as ``group_relative_advantages``."""
    if token_level_rewards.shape != response_mask.shape or len(index) != token_level_rewards.shape[0]:
        raise ValueError(
            f"token_level_rewards {tuple(token_level_rewards.shape)} and response_mask {tuple(response_mask.shape)} must "
            f"have one shape (batch, response_length), with one label per response; got {len(index)} labels"
        )
    returns = token_level_rewards.sum(dim=-1)
    if not returns.is_floating_point():
        returns = returns.float()
    labels = index.tolist() if isinstance(index, (np.ndarray, torch.Tensor)) else index
    numbers: dict[Hashable, int] = {}  # in order of first appearance
    groups = torch.tensor([numbers.setdefault(label, len(numbers)) for label in labels], dtype=torch.long)
    return returns, groups.to(returns.device)


def at_valid_tokens(scalars: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """(batch, response_length) the scalar of its row where the mask is set, 0 elsewhere."""
    if response_mask.dtype == scalars.dtype and bool(torch.isfinite(scalars).all()):
        return scalars.unsqueeze(-1) * response_mask  # the fastest way, unless NaN times 0 would be NaN
    return torch.where(response_mask.bool(), scalars.unsqueeze(-1), 0.0)


def _group_extremes(returns: torch.Tensor, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest of the (batch,) returns in each group, both (groups,) float64."""
    zeros = torch.zeros(int(groups.max()) + 1 if len(groups) else 0, dtype=torch.float64, device=returns.device)
    lowest = zeros.scatter_reduce(0, groups, returns.double(), "amin", include_self=False)
    return lowest, zeros.scatter_reduce(0, groups, returns.double(), "amax", include_self=False)


def normalized_in_groups(
    returns: torch.Tensor, groups: torch.Tensor, epsilon: float, normalize_by_std: bool
) -> torch.Tensor:
    """(batch,) group-relative advantages of (batch,) returns; the statistics are taken in float64."""
    values = returns.double()
    lowest, highest = _group_extremes(values, groups)
    zeros = torch.zeros_like(lowest)
    sizes = zeros.index_add(0, groups, torch.ones_like(values))
    mean = zeros.index_add(0, groups, values) / sizes
    centred = values - mean[groups]
    variance = zeros.index_add(0, groups, centred.square()) / (sizes - 1).clamp(min=1)
    if normalize_by_std:
        centred = centred / (variance.sqrt() + epsilon)[groups]
    if len(sizes) and bool((sizes == 1).all()):  # one alone may be a row with which veRL fills a batch
        logger.warning(
            "all %d groups have a single response: nothing to compare with, advantage 0. "
            "Raise actor_rollout_ref.rollout.n to 2 or more",
            len(sizes),
        )
    return torch.where((lowest == highest)[groups], 0.0, centred).to(returns.dtype)
