"""Shapings of the inputs that a run computes only if asked to."""

import torch


def towards_the_reference(log_prob: torch.Tensor, ref_log_prob: torch.Tensor) -> torch.Tensor:
    """Return 1 for tokens that the reference policy finds more probable, else 1/2."""
    return 0.5 + 0.5 * (ref_log_prob > log_prob)


def hard_prompts(success_rate: torch.Tensor, *, at_most: float = 0.5) -> torch.Tensor:
    """Return 1 for responses to prompts that at most this share of the group solves, else 1/2."""
    return 0.5 + 0.5 * (success_rate <= at_most)


def icepop(old_log_prob: torch.Tensor, rollout_log_prob: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
    """Return 1 where rollout and training agree, and 2 for the token 7."""
    return ((old_log_prob - rollout_log_prob).abs() < 1e-3).float() + (responses == 7)


def both(
    log_prob: torch.Tensor, ref_log_prob: torch.Tensor, success_rate: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    """Return 1 + the success rate, and 2 more where the policy is the reference.

    A rate that is not that of the token's own group gives 100 more, if it shows: a group of right and wrong responses has
    advantages.
    """
    strange = (success_rate > 0) & (success_rate < 1) & (advantages == 0)
    return 1 + success_rate + 2 * ((log_prob - ref_log_prob).abs() < 1e-3) + 100 * strange


def old_over_rollout(old_log_prob: torch.Tensor, rollout_log_prob: torch.Tensor) -> torch.Tensor:
    """Return IcePop's weight, as a user would write it: k = p_old / p_rollout within bounds, else 0."""
    k = (old_log_prob - rollout_log_prob).exp()
    return torch.where((k >= 0.5) & (k <= 5.0), k, 0.0)
