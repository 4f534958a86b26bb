"""Reinforce-Rej (arXiv 2504.11343): policy gradient without the groups whose responses are all right or all wrong."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.core.aggregation import LOSS_AGG_MODES
from verl_trgrpo.core.group_relative import at_valid_tokens, group_extremes, grouped_returns, normalized_in_groups

BASELINES = ("none", "group")


@dataclass(frozen=True)
class RejectionOptions:
    """What remains of a group that is kept, and what the loss is averaged over.

    Args:
        baseline: ``none`` (default) gives A = R, as in Reinforce-Rej; ``group`` gives GRPO's group-relative A, for which
            dropped groups have A = 0 anyway, so that only ``renormalize`` makes a difference.
        renormalize: multiply A by (all / kept), counted in the units that ``loss_agg_mode`` averages over, so that the
            policy gradient is the mean over the kept responses alone. False (default) divides by all of them, as the
            authors' code does. With several updates per batch the factor is that of the batch, not of each update.
        loss_agg_mode: the actor's.

    Raises:
        ValueError: listing every unknown choice.
    """

    baseline: str = "none"
    renormalize: bool = False
    loss_agg_mode: str = "token-mean"

    def __post_init__(self) -> None:
        problems = [
            f"{name}={value!r} is unknown; choose {' or '.join(choices)}"
            for name, value, choices in (
                ("baseline", self.baseline, BASELINES),
                ("loss_agg_mode", self.loss_agg_mode, LOSS_AGG_MODES),
            )
            if value not in choices
        ]
        raise_problems(problems)


@torch.no_grad()
def rejection_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: RejectionOptions,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """A = R where a group's rewards differ, and exactly 0 where they are all equal (arXiv 2504.11343).

    "All right" and "all wrong" are told by equal rewards R (the sums of token rewards): a reward that also depends on
    format or length, or a KL in the reward, makes groups differ that are equally right. A group of one is dropped.

    All other arguments, the result and what is raised are those of
    :func:`~verl_trgrpo.core.group_relative.group_relative_advantages`.

    Args:
        options: baseline and normaliser; ``epsilon`` and ``normalize_by_std`` are for ``baseline: group``.
    """
    returns, groups = grouped_returns(token_level_rewards, response_mask, index)
    lowest, highest = group_extremes(returns, groups)
    kept = (lowest != highest)[groups]
    scalars = (
        returns if options.baseline == "none" else normalized_in_groups(returns, groups, epsilon, normalize_by_std)
    )
    scalars = torch.where(kept, scalars, 0.0)
    if options.renormalize:
        scalars = scalars * _all_over_kept(kept, response_mask, options.loss_agg_mode)
    return at_valid_tokens(scalars, response_mask)


def _all_over_kept(kept: torch.Tensor, response_mask: torch.Tensor, loss_agg_mode: str) -> float:
    """(all / kept) tokens or responses, as the mode counts them; 1 where nothing is kept, or nothing is averaged."""
    if loss_agg_mode == "token-sum":
        return 1.0
    units = response_mask.bool().sum(dim=-1)
    if loss_agg_mode != "token-mean":
        units = (units > 0).long()
    remaining = int(units[kept].sum())
    return int(units.sum()) / remaining if remaining else 1.0
