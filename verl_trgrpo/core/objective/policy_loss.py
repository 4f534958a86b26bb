"""The TR-GRPO policy loss: PPO's clipped surrogate with token weights, dual clip and rollout-correction weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from verl_trgrpo.core.objective.aggregate import aggregate_loss
from verl_trgrpo.core.objective.flipped import FlippedSurrogate
from verl_trgrpo.core.objective.options import ClipRange, TokenWeighting
from verl_trgrpo.core.objective.statistics import PooledStatistic, regulation_metrics
from verl_trgrpo.core.objective.surrogate import ClippedSurrogate, clipped_surrogate
from verl_trgrpo.core.objective.weights import gated_weights, normalized_weights, shaped_weights, token_probs


@dataclass(frozen=True)
class PolicyLoss:
    """What :func:`compute_policy_loss` returns.

    Args:
        loss: scalar to minimise, connected to ``log_prob``.
        metrics: figures of :func:`~verl_trgrpo.core.objective.statistics.regulation_metrics`.
    """

    loss: torch.Tensor
    metrics: dict[str, float | PooledStatistic]


def compute_policy_loss(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    regulation: TokenWeighting,
    clip: ClipRange,
    loss_agg_mode: str = "token-mean",
    rollout_is_weights: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
    **global_batch_info: Any,
) -> PolicyLoss:
    """Negated objective of arXiv 2511.00066: ``-1/N sum w min(r A, clip(r, 1 - low, 1 + high) A)``, dual clip for A < 0.

    ``ratio="flipped"`` puts :class:`~verl_trgrpo.core.objective.flipped.FlippedSurrogate` (ASPO) in the place of the min.
    With the uniform shaping, the plain ratio and no gate this is veRL's vanilla loss, equal to the last bit in value and
    gradient. Nothing outside the mask, not even NaN, reaches the loss or the gradient.

    Args:
        old_log_prob: (batch, response_length) log pi_old of the sampled tokens, <= 0, may be -inf.
        log_prob: (batch, response_length) log pi_theta of the same tokens; the only input that gradient flows to.
        advantages: (batch, response_length) A.
        response_mask: (batch, response_length) 1 or True for tokens the model generated.
        regulation: how weights are made and where they go.
        clip: bounds of the importance ratio.
        loss_agg_mode: how 1/N is taken, see :func:`~verl_trgrpo.core.objective.aggregate.aggregate_loss`.
        rollout_is_weights: (batch, response_length) weights that correct the mismatch of rollout and training policy.
        entropy: (batch, response_length) entropy of pi_theta at each position in nats, for ``regulation.top_entropy`` alone;
            None where it is not known.
        **global_batch_info: counts over micro-batches and ranks, passed on to ``aggregate_loss``.

    Returns:
        loss and metrics.

    Raises:
        ValueError: for tensors of different shapes.
    """
    _check_shapes(old_log_prob, log_prob, advantages, response_mask, rollout_is_weights, entropy)
    valid = response_mask.bool()
    probs = token_probs(log_prob)
    current = regulation.prob_source == "current"
    raw_weights = shaped_weights(probs if current else token_probs(old_log_prob), regulation)
    raw_weights = gated_weights(raw_weights, log_prob if current else old_log_prob, entropy, valid, regulation)
    weights = normalized_weights(raw_weights, valid, regulation)

    inside, flipped = regulation.placement == "inside", regulation.ratio == "flipped"
    if flipped:
        token_losses, log_ratio, clipped, capped = FlippedSurrogate.apply(
            log_prob, old_log_prob, advantages, valid, weights, clip
        )
    else:
        token_losses, log_ratio, clipped, capped = ClippedSurrogate.apply(
            log_prob, old_log_prob, advantages, valid, None if inside else weights, weights if inside else None, clip
        )
    if rollout_is_weights is not None:
        token_losses = token_losses * rollout_is_weights
    loss = aggregate_loss(token_losses, response_mask, loss_agg_mode, **global_batch_info)

    # With weights inside the clip, metrics compare what is clipped now with what would be without weights.
    silenced_uniform = _silenced_tokens(log_ratio, advantages, valid, clip) if inside and weights is not None else None
    lower, upper = regulation.shaping.bounds()
    metrics = regulation_metrics(
        probs,
        raw_weights,
        advantages,
        valid,
        log_ratio,
        clipped,
        capped,
        silenced_uniform,
        bounds=(lower if regulation.top_entropy is None else 0.0, upper),
        capped_is_silent=not flipped,
    )
    return PolicyLoss(loss, metrics)


def _silenced_tokens(
    log_ratio: torch.Tensor, advantages: torch.Tensor, valid: torch.Tensor, clip: ClipRange
) -> torch.Tensor:
    """(batch, response_length) True where the unweighted surrogate is clipped or capped."""
    negated = torch.where(valid, -advantages.detach(), 0.0)
    uniform = clipped_surrogate(torch.exp(log_ratio), negated, clip)
    return uniform.clipped | uniform.capped


def _check_shapes(*tensors: torch.Tensor | None) -> None:
    names = ("old_log_prob", "log_prob", "advantages", "response_mask", "rollout_is_weights", "entropy")
    shapes = {name: tuple(tensor.shape) for name, tensor in zip(names, tensors, strict=True) if tensor is not None}
    if len(set(shapes.values())) > 1 or len(shapes["log_prob"]) != 2:
        raise ValueError(
            f"all inputs must have one shape (batch, response_length), got {shapes}; "
            "pad or select them alike before calling"
        )
