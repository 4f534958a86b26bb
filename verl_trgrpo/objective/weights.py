"""Token weights: the shaping applied to the right probability, detached, and normalised if asked."""

from __future__ import annotations

import torch

from verl_trgrpo.objective.options import TokenRegulation
from verl_trgrpo.shaping import Uniform


def token_probs(log_prob: torch.Tensor) -> torch.Tensor:
    """exp(log_prob) in float32 (or wider), no gradient, at most 1 where rounding left a log-probability above 0."""
    log_prob = log_prob.detach()
    return (log_prob if log_prob.dtype == torch.float64 else log_prob.float()).exp().clamp_(max=1.0)


def shaped_weights(probs: torch.Tensor, regulation: TokenRegulation) -> torch.Tensor | None:
    """The shaping's weights of ``probs`` before normalisation, detached; None for the uniform shaping (all 1)."""
    if isinstance(regulation.shaping, Uniform):
        return None
    weights = regulation.shaping(probs).detach().to(probs.dtype)
    if weights.shape != probs.shape:
        raise ValueError(
            f"shaping {regulation.shaping!r} returned weights of shape {tuple(weights.shape)} for probabilities of shape "
            f"{tuple(probs.shape)}; it must return one weight for each token"
        )
    return weights


def normalized_weights(
    weights: torch.Tensor | None, response_mask: torch.Tensor, regulation: TokenRegulation
) -> torch.Tensor | None:
    """Weights divided by their mean over the valid tokens where ``normalize`` is ``token_mean``; else unchanged."""
    if weights is None or regulation.normalize == "none":
        return weights
    valid = response_mask.bool()
    mean = torch.where(valid, weights, 0.0).sum() / valid.sum().clamp(min=1)
    # Weights that are all 0 (a floor of 0 allows it) cannot be scaled to mean 1 and stay as they are.
    return weights / torch.where(mean > 0, mean, 1.0)


def token_weights(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, response_mask: torch.Tensor, regulation: TokenRegulation
) -> torch.Tensor | None:
    """Weights w of the tokens' losses (arXiv 2511.00066) as ``regulation`` asks for.

    Args:
        log_prob: (batch, response_length) log pi_theta of the sampled tokens.
        old_log_prob: (batch, response_length) log pi_old of the same tokens.
        response_mask: (batch, response_length) 1 or True for tokens the model generated.
        regulation: shaping, probability source and normalisation.

    Returns:
        (batch, response_length) float32 (float64 for float64 input), no gradient, arbitrary outside the mask; None for
        the uniform shaping, whose weights are all 1.
    """
    probs = token_probs(log_prob if regulation.prob_source == "current" else old_log_prob)
    return normalized_weights(shaped_weights(probs, regulation), response_mask, regulation)
