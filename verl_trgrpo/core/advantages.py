"""Compute advantages of groups of responses: GRPO, Reinforce-Rej, RAFT, MaxRL, HA-DW and W-REINFORCE, vectorised.

All take ``token_level_rewards`` and ``response_mask``, both (batch, response_length), and ``index``, (batch,) labels of the
groups; the reward R of a response is the sum of its token rewards, and its advantage is the same at all its valid tokens.
Rewards have to be finite: one that is not gives advantages that are not finite, of its own response or its whole group.
tests/core/test_advantages.py computes each of them once more from its formula.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Hashable, Sequence

import numpy as np
import torch

from verl_trgrpo.core.options import DifficultyOptions, OutcomeOptions

logger = logging.getLogger(__name__)


@torch.no_grad()
def group_relative_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> torch.Tensor:
    """Compute A = (R - mean R) / (std R + epsilon) within each group of responses to one prompt (GRPO, arXiv 2402.03300).

    std is the sample standard deviation. A group whose rewards are all equal gives exactly 0, without a rounding residue
    that the division by a tiny std would blow up. A group of one response gives 0; if all groups have one, a warning is
    logged.

    Args:
        token_level_rewards: (batch, response_length) rewards; values outside the mask count, as in veRL.
        response_mask: (batch, response_length) 1 or True for tokens that the model generated.
        index: (batch,) hashable group labels (strings, integers, tuples, ...); equal labels form a group.
        epsilon: added to the standard deviation.
        normalize_by_std: False gives R - mean R, as in Dr.GRPO (arXiv 2503.20783).

    Returns:
        (batch, response_length) advantages, each response's value at its valid tokens and 0 elsewhere.

    Raises:
        ValueError: shapes that do not agree.
    """
    returns, groups = _grouped_returns(token_level_rewards, response_mask, index)
    return at_valid_tokens(normalized_in_groups(returns, groups, epsilon, normalize_by_std), response_mask)


@torch.no_grad()
def rejection_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> torch.Tensor:
    """Return A = R where a group's rewards differ, and exactly 0 where all are equal (Reinforce-Rej, arXiv 2504.11343).

    "All right" and "all wrong" are recognised by equal rewards R: with a reward that also depends on format or length, or
    a KL in the reward, groups differ that are equally right. A group of one is dropped; the authors' public code
    (github.com/RLHFlow/Minimal-RL, ``compute_reinforce_rej_outcome_advantage``), otherwise the same, keeps it.

    Arguments, result and errors are those of ``group_relative_advantages``.
    """
    returns, groups = _grouped_returns(token_level_rewards, response_mask, index)
    lowest, highest = _group_extremes(returns, groups)
    return at_valid_tokens(torch.where((lowest == highest)[groups], 0.0, returns), response_mask)


@torch.no_grad()
def positive_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> torch.Tensor:
    """Return A = R where R > 0, else 0 (RAFT, arXiv 2504.11343): right responses alone teach, without a baseline.

    With the ratio and the clip of the policy loss this is the paper's RAFT++. Its abstract and README were read.

    Arguments, result and errors are those of ``group_relative_advantages``; ``index`` has no effect.
    """
    returns, _ = _grouped_returns(token_level_rewards, response_mask, index)
    return at_valid_tokens(returns.clamp(min=0), response_mask)


@torch.no_grad()
def mean_relative_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> torch.Tensor:
    """Return A = (R - mean R) / mean R within each group (MaxRL, arXiv 2602.02710): rare right responses weigh most.

    A group of equal rewards, all 0 or a single response among them, gives exactly 0.
    Read in prime-rl's preset (pull request 2778).

    Arguments and result are those of ``group_relative_advantages``.

    Raises:
        ValueError: shapes that do not agree, or a reward below 0, with which the sign of a mean could turn that of A.
    """
    returns, groups = _grouped_returns(token_level_rewards, response_mask, index)
    if bool((returns < 0).any()):
        raise ValueError(
            "MaxRL divides by the mean reward of a group, which is not meant for rewards below 0 (smallest here: "
            f"{returns.min().item():g}); use rewards of 0 and more, without a KL in the reward or a penalty for length, or "
            "algorithm=grpo"
        )
    means = _group_means(returns.double(), groups, torch.ones_like(returns, dtype=torch.float64))
    centred = normalized_in_groups(returns.double(), groups, 0.0, normalize_by_std=False)
    return at_valid_tokens((centred / torch.where(means == 0, 1.0, means)).to(returns.dtype), response_mask)


@torch.no_grad()
def difficulty_weighted_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: DifficultyOptions,
    history: Sequence[float] = (),
    epsilon: float = 1e-6,
    normalize_by_std: bool = True,
) -> tuple[torch.Tensor, list[float]]:
    """Weight GRPO's advantages by lambda exp(-sgn(A) (q - C)), q the share of right responses in a group (HA-DW).

    This is the weight of arXiv 2601.08521, Eq. 12 to 16, with D = -sgn(A) sgn(q - C) and M = |q - C|. On prompts that are
    harder than expected (q < C) good responses weigh more (up to e) and bad ones less; on easier prompts the other way
    round. C, the accuracy expected of the policy, is the mean of the last batches' accuracies, the present one among them, as in
    the authors' public code (github.com/yangfengkai/HA-DW) and the paper's Appendix F. That code and summaries of the paper were
    read. It has mean rewards for q and C, which rewards of 0 and 1 make the same.

    A response whose tokens a rollout correction has rejected counts in q and C as it does in GRPO's mean and standard deviation:
    it is a sample of the policy, and without it q would be the rate of a selection. Groups without any token do not count: with
    such ones veRL fills a batch up, and one that was rejected as a whole looks the same.

    Other arguments and errors are those of ``group_relative_advantages``.

    Args:
        options: window of C, scale lambda and the reward that counts as right.
        history: what the call for the batch before returned; empty before the first.

    Returns:
        the advantages, and the accuracies of the last batches for the next one, oldest first.
    """
    returns, groups = _grouped_returns(token_level_rewards, response_mask, index)
    advantages = normalized_in_groups(returns, groups, epsilon, normalize_by_std)
    present = _in_groups_with_tokens(response_mask, groups)
    if not present.any():
        return at_valid_tokens(advantages, response_mask), list(history)
    accuracy = float((returns[present] >= options.correct_from).double().mean())
    accuracies = [*history, accuracy][-options.window :]
    rates = success_rates(returns, groups, options.correct_from, present)
    weights = options.scale * torch.exp(-torch.sign(advantages).double() * (rates - statistics.fmean(accuracies)))
    return at_valid_tokens((advantages * weights).to(advantages.dtype), response_mask), accuracies


@torch.no_grad()
def outcome_advantages(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
    options: OutcomeOptions,
) -> torch.Tensor:
    """Return A = lambda for a right response and -1 for a wrong one (W-REINFORCE, arXiv 2506.01347: lambda L_PSR + L_NSR).

    There is no baseline, so the share of wrong responses sets the size of the gradient; with lambda 0 only wrong responses
    teach (negative sample reinforcement). Abstract and public code were read.

    Arguments, result and errors are those of ``group_relative_advantages``; ``index`` has no effect.
    """
    returns, _ = _grouped_returns(token_level_rewards, response_mask, index)
    advantages = torch.where(returns >= options.correct_from, options.positive, -1.0).to(returns.dtype)
    # A reward that is not finite is neither right nor wrong.
    return at_valid_tokens(torch.where(returns.isfinite(), advantages, torch.nan), response_mask)


def _grouped_returns(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Hashable] | np.ndarray | torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return R of each response and the number of its group, both (batch,)."""
    if token_level_rewards.shape != response_mask.shape or len(index) != token_level_rewards.shape[0]:
        raise ValueError(
            f"token_level_rewards {tuple(token_level_rewards.shape)} and response_mask {tuple(response_mask.shape)} must "
            f"have one shape (batch, response_length), with one label per response; got {len(index)} labels"
        )
    returns = token_level_rewards.sum(dim=-1)
    if not returns.is_floating_point():
        returns = returns.float()
    return returns, group_numbers(index).to(returns.device)


def group_numbers(index: Sequence[Hashable] | np.ndarray | torch.Tensor) -> torch.Tensor:
    """Return the number of the group of each label, (batch,) long, counted from 0 in order of first appearance."""
    labels = index.tolist() if isinstance(index, (np.ndarray, torch.Tensor)) else index
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(label, len(numbers)) for label in labels], dtype=torch.long)


def success_rates(
    returns: torch.Tensor, groups: torch.Tensor, correct_from: float, present: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the share of right responses in the group of each response, (batch,) float64.

    Args:
        returns: (batch,) rewards.
        groups: (batch,) numbers of groups, as `group_numbers` counts them.
        correct_from: a response is right if its reward is at least this.
        present: (batch,) bool, True for the responses that count; None for all.
    """
    counted = torch.ones_like(returns, dtype=torch.float64) if present is None else present.double()
    return _group_means(torch.where(returns >= correct_from, counted, 0.0), groups, counted)


def _group_means(values: torch.Tensor, groups: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """Return the mean of the group of each response, (batch,) float64, of `values` that are 0 where `counted` is 0, else 1."""
    zeros = counted.new_zeros(int(groups.max()) + 1 if len(groups) else 0)
    sizes = zeros.index_add(0, groups, counted).clamp(min=1)
    return (zeros.index_add(0, groups, values) / sizes)[groups]


def at_valid_tokens(scalars: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
    """Spread (batch,) scalars to (batch, response_length): the row's scalar where the mask is set, 0 elsewhere."""
    if response_mask.dtype == scalars.dtype and bool(torch.isfinite(scalars).all()):
        return scalars.unsqueeze(-1) * response_mask  # the fastest way, unless NaN times 0 would be NaN
    return torch.where(response_mask.bool(), scalars.unsqueeze(-1), 0.0)


def _in_groups_with_tokens(response_mask: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Return True for the responses of groups in which any response has a valid token, (batch,) bool."""
    counts = response_mask.bool().any(dim=-1).long()
    return (torch.zeros_like(counts).index_add(0, groups, counts) > 0)[groups]


def _group_extremes(returns: torch.Tensor, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest of the (batch,) returns in each group, both (groups,) float64."""
    zeros = torch.zeros(int(groups.max()) + 1 if len(groups) else 0, dtype=torch.float64, device=returns.device)
    lowest = zeros.scatter_reduce(0, groups, returns.double(), "amin", include_self=False)
    return lowest, zeros.scatter_reduce(0, groups, returns.double(), "amax", include_self=False)


def normalized_in_groups(
    returns: torch.Tensor, groups: torch.Tensor, epsilon: float, normalize_by_std: bool
) -> torch.Tensor:
    """Return the (batch,) group-relative advantages of (batch,) returns; the statistics are taken in float64."""
    values = returns.double()
    lowest, highest = _group_extremes(values, groups)
    zeros = torch.zeros_like(lowest)
    sizes = zeros.index_add(0, groups, torch.ones_like(values))
    mean = zeros.index_add(0, groups, values) / sizes
    centred = values - mean[groups]
    variance = zeros.index_add(0, groups, centred.square()) / (sizes - 1).clamp(min=1)
    if normalize_by_std:
        centred = centred / (variance.sqrt() + epsilon)[groups]
    if len(sizes) and bool((sizes == 1).all()):  # a single one may be a row with which veRL fills a batch
        logger.warning(
            "all %d groups have a single response: nothing to compare with, advantage 0. "
            "Raise actor_rollout_ref.rollout.n to 2 or more",
            len(sizes),
        )
    return torch.where((lowest == highest)[groups], 0.0, centred).to(returns.dtype)
