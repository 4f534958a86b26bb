"""Token weights: the shaping applied to the right probability, detached, and normalised if asked."""

from __future__ import annotations

import math

import torch

from verl_trgrpo.core.objective.options import TokenWeighting
from verl_trgrpo.core.shaping import Uniform


def token_probs(log_prob: torch.Tensor) -> torch.Tensor:
    """exp(log_prob) in float32 (or wider), no gradient, at most 1 where rounding left a log-probability above 0.

    Args:
        log_prob: any shape, log-probabilities, <= 0 but for rounding, may be -inf.

    Returns:
        probabilities in [0, 1], same shape; NaN stays NaN.
    """
    log_prob = log_prob.detach()
    return (log_prob if log_prob.dtype == torch.float64 else log_prob.float()).exp().clamp_(max=1.0)


def shaped_weights(probs: torch.Tensor, regulation: TokenWeighting) -> torch.Tensor | None:
    """The shaping's weights of ``probs`` before normalisation, detached; None for the uniform shaping (all 1).

    Args:
        probs: (batch, response_length) in [0, 1].
        regulation: its ``shaping`` is applied.

    Returns:
        (batch, response_length) weights within the shaping's bounds, in the precision of ``probs``.

    Raises:
        ValueError: for a shaping that does not return one weight for each probability.
    """
    if isinstance(regulation.shaping, Uniform):
        return None
    weights = regulation.shaping(probs).detach().to(probs.dtype)
    if weights.shape != probs.shape:
        raise ValueError(
            f"shaping {regulation.shaping!r} returned weights of shape {tuple(weights.shape)} for probabilities of shape "
            f"{tuple(probs.shape)}; it must return one weight for each token"
        )
    return weights


def entropy_gate(scores: torch.Tensor, valid: torch.Tensor, share: float) -> torch.Tensor:
    """1 for the ceil(share n) of the n valid tokens with the highest scores, ties with the last of them included; else 0.

    Args:
        scores: (batch, response_length) entropy in nats or an estimate of it, any values outside the mask, no gradient.
        valid: (batch, response_length) bool, True for generated tokens.
        share: in (0, 1).

    Returns:
        (batch, response_length) in the precision of ``scores``, 0 outside the mask.
    """
    candidates = scores[valid]
    if not len(candidates):
        return torch.zeros_like(scores)
    kept = math.ceil(share * len(candidates) - 1e-9)  # 0.1 of 30 is 3, although 0.1 * 30 is a little more
    threshold = torch.topk(candidates, kept, sorted=True).values[-1]
    return ((scores >= threshold) & valid).to(scores.dtype)


def gated_weights(
    weights: torch.Tensor | None,
    log_prob: torch.Tensor,
    entropy: torch.Tensor | None,
    valid: torch.Tensor,
    regulation: TokenWeighting,
) -> torch.Tensor | None:
    """``weights`` times :func:`entropy_gate` where ``top_entropy`` asks for it; else unchanged.

    Args:
        weights: (batch, response_length) or None for all 1.
        log_prob: (batch, response_length) log pi of the sampled tokens; -log pi estimates the entropy without bias.
        entropy: (batch, response_length) entropy of the policy at each position, or None where it is not known.
        valid: (batch, response_length) bool, True for generated tokens.
        regulation: its ``top_entropy``.
    """
    if regulation.top_entropy is None:
        return weights
    scores = (-log_prob if entropy is None else entropy).detach()
    gate = entropy_gate(scores if scores.dtype == torch.float64 else scores.float(), valid, regulation.top_entropy)
    return gate if weights is None else torch.where(gate > 0, weights, 0.0)


def normalized_weights(
    weights: torch.Tensor | None, response_mask: torch.Tensor, regulation: TokenWeighting
) -> torch.Tensor | None:
    """Weights divided by their mean over the valid tokens where ``normalize`` is ``token_mean``; else unchanged."""
    if weights is None or regulation.normalize == "none":
        return weights
    valid = response_mask.bool()
    mean = torch.where(valid, weights, 0.0).sum() / valid.sum().clamp(min=1)
    # Weights that are all 0 (a floor of 0 allows it) cannot be scaled to mean 1 and stay as they are.
    return weights / torch.where(mean > 0, mean, 1.0)


def token_weights(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, response_mask: torch.Tensor, regulation: TokenWeighting
) -> torch.Tensor | None:
    """Weights w of the tokens' losses (arXiv 2511.00066) as ``regulation`` asks for.

    Args:
        log_prob: (batch, response_length) log pi_theta of the sampled tokens.
        old_log_prob: (batch, response_length) log pi_old of the same tokens.
        response_mask: (batch, response_length) 1 or True for tokens the model generated.
        regulation: shaping, probability source and normalisation; ``top_entropy`` is not applied (:func:`gated_weights`).

    Returns:
        (batch, response_length) float32 (float64 for float64 input), no gradient, arbitrary outside the mask; None for
        the uniform shaping, whose weights are all 1.
    """
    probs = token_probs(log_prob if regulation.prob_source == "current" else old_log_prob)
    return normalized_weights(shaped_weights(probs, regulation), response_mask, regulation)
