"""The TR-GRPO policy loss: PPO's clipped surrogate with token weights, dual clip and rollout-correction weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from verl_trgrpo.core.aggregation import aggregate_loss
from verl_trgrpo.core.metrics import TokenStatistic, token_metrics
from verl_trgrpo.core.options import ClipRange, TokenWeighting
from verl_trgrpo.core.tokens import Tokens, check_shapes, masked


@dataclass(frozen=True)
class PolicyLoss:
    """What a policy loss returns.

    Args:
        loss: scalar to minimise, connected to ``log_prob``.
        metrics: figures of ``token_metrics``.
    """

    loss: torch.Tensor
    metrics: dict[str, float | TokenStatistic]


def compute_policy_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    weighting: TokenWeighting,
    clip: ClipRange,
    loss_agg_mode: str = "token-mean",
    rollout_is_weights: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
    **global_batch_info: Any,
) -> PolicyLoss:
    """Negated objective of arXiv 2511.00066: ``-1/N sum w min(r A, clip(r, 1 - low, 1 + high) A)``, dual clip for A < 0.

    With the uniform shaping this is veRL's vanilla loss, equal in value and gradient within rounding. Nothing outside the
    mask, not even NaN, reaches the loss or the gradient.

    Args:
        old_log_prob: (batch, response_length) log pi_old of the sampled tokens, <= 0, may be -inf.
        log_prob: (batch, response_length) log pi_theta of the same tokens; the only input that gradient flows to.
        advantages: (batch, response_length) A.
        response_mask: (batch, response_length) 1 or True for tokens the model generated.
        weighting: how weights are made and where they go.
        clip: bounds of the importance ratio.
        loss_agg_mode: how 1/N is taken, see ``aggregate_loss``.
        rollout_is_weights: (batch, response_length) weights that correct the mismatch of rollout and training policy.
        entropy: (batch, response_length) entropy of pi_theta at each position in nats, for shapings that ask for it.
        **global_batch_info: counts over micro-batches and ranks, passed on to ``aggregate_loss``.

    Returns:
        loss and metrics.

    Raises:
        ValueError: for tensors of different shapes, or a shaping that asks for an entropy that is not there.
    """
    tokens = Tokens.of_batch(old_log_prob, log_prob, advantages, response_mask, entropy)
    shaped = weighting.shaping.weigh(tokens, weighting.prob_source)
    weights = normalized(shaped, tokens.valid, weighting)
    ratio = tokens.log_ratio.exp()

    with torch.no_grad():
        inside = weighting.placement == "inside"
        weighted_ratio = weights * ratio if inside else ratio.detach()
        bounded_ratio = clipped_ratio(weighted_ratio, tokens.advantages, clip)
        active = weighted_ratio == bounded_ratio
        beyond = ~active & (tokens.advantages != 0)
        dual_clipped = beyond & (tokens.advantages < 0) & (weighted_ratio > clip.dual)
        beyond_uniform = past_clip(ratio, tokens.advantages, clip) if inside else beyond
        # In place from here on: what is no longer needed should not count into the peak memory.
        slope = negated_advantages(tokens, rollout_is_weights)
        constant = bounded_ratio.mul_(slope)
        slope.mul_(weights)
        if not inside:
            constant.mul_(weights)
    token_losses = torch.where(active, slope * ratio, constant)
    loss = aggregate_loss(token_losses, tokens.valid, loss_agg_mode, **global_batch_info)
    del weighted_ratio, bounded_ratio, constant, token_losses
    metrics = token_metrics(
        tokens, shaped, weighting.shaping.bounds, beyond & ~dual_clipped, dual_clipped, beyond, beyond_uniform
    )
    return PolicyLoss(loss, metrics)


def clipped_ratio(ratio: torch.Tensor, advantages: torch.Tensor, clip: ClipRange) -> torch.Tensor:
    """The ratio at which ``min(r A, clip(r) A)`` with dual clip takes its value: r itself where r is within its bounds.

    For A > 0 the bound is 1 + high; for A < 0 they are 1 - low and dual.
    """
    return torch.where(advantages < 0, ratio.clamp(1 - clip.low, clip.dual), ratio.clamp(max=1 + clip.high))


def past_clip(ratio: torch.Tensor, advantages: torch.Tensor, clip: ClipRange) -> torch.Tensor:
    """(batch, response_length) bool, True where the clip, or dual clip, leaves no gradient."""
    return (clipped_ratio(ratio, advantages, clip) != ratio) & (advantages != 0)


def negated_advantages(tokens: Tokens, rollout_is_weights: torch.Tensor | None) -> torch.Tensor:
    """(batch, response_length) -A times the rollout-correction weights, 0 outside the mask."""
    if rollout_is_weights is None:
        return -tokens.advantages
    check_shapes(log_prob=tokens.log_prob, rollout_is_weights=rollout_is_weights)
    return -tokens.advantages * masked(rollout_is_weights, ~tokens.valid)


def normalized(weights: torch.Tensor, valid: torch.Tensor, weighting: TokenWeighting) -> torch.Tensor:
    """Weights divided by their mean over the valid tokens where ``normalize`` is ``token_mean``; else unchanged."""
    if weighting.normalize == "none":
        return weights
    mean = (weights * valid).sum() / valid.sum().clamp(min=1)
    # Weights that are all 0 (a floor of 0 allows it) cannot be scaled to mean 1 and stay as they are.
    return weights / torch.where(mean > 0, mean, 1.0)


def token_weights(tokens: Tokens, weighting: TokenWeighting) -> torch.Tensor:
    """Weights w of the tokens' losses as ``weighting`` asks for: (batch, response_length), no gradient."""
    return normalized(weighting.shaping.weigh(tokens, weighting.prob_source), tokens.valid, weighting)
