"""ASPO (arXiv 2510.06062): a policy loss that flips the importance ratio of tokens with positive advantage."""

from __future__ import annotations

from typing import Any

import torch

from verl_trgrpo.core.aggregation import aggregate_loss
from verl_trgrpo.core.metrics import token_metrics
from verl_trgrpo.core.options import ClipRange, TokenWeighting
from verl_trgrpo.core.policy_loss import PolicyLoss, negated_advantages, normalized
from verl_trgrpo.core.tokens import Tokens


def compute_aspo_loss(
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
    """``-1/N sum w A c`` with the gradient ``-1/N sum w A c grad log pi``; c = 1/r for A > 0, r for A < 0, at most dual.

    The hard clip is PPO's and looks at r itself: no gradient where r > 1 + high and A > 0, or r < 1 - low and A < 0. Dual
    clip is soft: c stops at ``clip.dual`` and the token keeps its gradient. On-policy (r = 1) this is GRPO.

    Arguments and result are those of ``compute_policy_loss``; ``weighting.placement`` has
    no meaning here, because there is no weight inside the clip.

    Raises:
        ValueError: for tensors of different shapes, or a shaping that asks for an entropy that is not there.
    """
    tokens = Tokens.of_batch(old_log_prob, log_prob, advantages, response_mask, entropy)
    shaped = weighting.shaping.weigh(tokens, weighting.prob_source)
    with torch.no_grad():
        positive = tokens.advantages > 0
        flipped = torch.where(positive, -tokens.log_ratio, tokens.log_ratio).exp()
        # For A > 0, r > 1 + high is 1/r < 1 / (1 + high).
        bounded = torch.where(
            positive, flipped.clamp(1 / (1 + clip.high), clip.dual), flipped.clamp(1 - clip.low, clip.dual)
        )
        clipped = (flipped < bounded) & (tokens.advantages != 0)
        dual_clipped = (flipped > bounded) & (tokens.advantages != 0)
        losses = negated_advantages(tokens, rollout_is_weights) * normalized(shaped, tokens.valid, weighting) * bounded
    # The factor is 1 and its derivative grad log pi: c itself is a constant.
    token_losses = torch.where(clipped, losses, losses * (1 + tokens.log_ratio - tokens.log_ratio.detach()))
    loss = aggregate_loss(token_losses, tokens.valid, loss_agg_mode, **global_batch_info)
    metrics = token_metrics(tokens, shaped, weighting.shaping.bounds, clipped, dual_clipped, clipped, clipped)
    return PolicyLoss(loss, metrics)
