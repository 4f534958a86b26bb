"""The policy loss ``tr_grpo`` as veRL calls it."""

from __future__ import annotations

import math
from typing import Any

import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, register_policy_loss

from verl_trgrpo.core.objective import PooledStatistic, compute_policy_loss
from verl_trgrpo.verl_plugin.config import clip_range_of, regulation_of

LOSS_MODE = "tr_grpo"


def compute_policy_loss_tr_grpo(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """TR-GRPO's policy loss in veRL's calling convention; see :func:`verl_trgrpo.core.objective.compute_policy_loss`.

    Args:
        old_log_prob: (batch, response_length) log pi_old of the sampled tokens.
        log_prob: (batch, response_length) log pi_theta of the same tokens, with gradient.
        advantages: (batch, response_length).
        response_mask: (batch, response_length) 1 or True for generated tokens.
        loss_agg_mode: veRL's aggregation mode.
        config: veRL's ``ActorConfig``.
        rollout_is_weights: (batch, response_length) rollout-correction weights, or None.

    Returns:
        scalar loss, and metrics named ``actor/...``.

    Raises:
        ValueError: without a configuration, for advantages that are not finite, or for what the objective refuses.
    """
    if config is None:
        raise ValueError("policy loss tr_grpo needs config=ActorConfig(...): it holds the clip range and the shaping")
    result = compute_policy_loss(
        old_log_prob,
        log_prob,
        advantages,
        response_mask,
        regulation_of(config.policy_loss),
        clip_range_of(config),
        loss_agg_mode,
        rollout_is_weights,
        **config.global_batch_info,
    )
    # Its sum over |advantages| is on the host already; only where that is no number is a look at the tensor needed.
    share = result.metrics["tr_grad_share_low_prob_uniform"]
    if isinstance(share, PooledStatistic) and not math.isfinite(share.sums[1]):
        _check_advantages(advantages, response_mask)
    return result.loss, {f"actor/{name}": value for name, value in result.metrics.items()}


def _check_advantages(advantages: torch.Tensor, response_mask: torch.Tensor) -> None:
    """Refuse advantages that are not finite: veRL would skip the whole update, and every later one like it, in silence."""
    valid = response_mask.bool()
    broken = int((~torch.isfinite(advantages) & valid).sum())
    if broken:
        raise ValueError(
            f"{broken} of {int(valid.sum())} advantages of a micro-batch are not finite: a reward was NaN or infinite; "
            "correct the reward function, which has to return a finite score for every response"
        )


# veRL overwrites silently; two plugins with one name must not fight in silence.
if POLICY_LOSS_REGISTRY.get(LOSS_MODE, compute_policy_loss_tr_grpo) is not compute_policy_loss_tr_grpo:
    raise ValueError(
        f"policy loss {LOSS_MODE!r} is already registered by {POLICY_LOSS_REGISTRY[LOSS_MODE].__module__}; "
        "uninstall that plugin, or restrict VERL_USE_EXTERNAL_PLUGINS"
    )
register_policy_loss(LOSS_MODE)(compute_policy_loss_tr_grpo)
