"""The policy losses ``tr_grpo`` and ``aspo`` as veRL calls them, and veRL's own DPPO losses with token weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn, register_policy_loss

from verl_trgrpo.core import PolicyLoss, Tokens, TokenStatistic, compute_aspo_loss, compute_policy_loss
from verl_trgrpo.core.policy_loss import normalized
from verl_trgrpo.verl_plugin import config as plugin_config

_OWN = {"tr_grpo": compute_policy_loss, "aspo": compute_aspo_loss}


def verl_policy_loss(loss: Callable[..., PolicyLoss]) -> Callable[..., Any]:
    """A policy loss of the core in veRL's calling convention."""

    def policy_loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Compute the loss; see :func:`verl_trgrpo.core.compute_policy_loss` for the tensors.

        ``config`` is veRL's ``ActorConfig``, which holds clip range and weights. Returns the scalar loss, and metrics named
        ``actor/...``.

        Raises:
            ValueError: for advantages that are not finite, or for what the loss refuses.
        """
        result = loss(
            old_log_prob,
            log_prob,
            advantages,
            response_mask,
            plugin_config.token_weighting_of(config.policy_loss),
            plugin_config.clip_range_of(config),
            loss_agg_mode,
            rollout_is_weights,
            getattr(config, plugin_config.ENTROPY, None),
            **config.global_batch_info,
        )
        # Its sum over |advantages| has left the device already; only where that is no number is a look at the tensor needed.
        share = result.metrics["tr_grad_share_low_prob_uniform"]
        if isinstance(share, TokenStatistic) and not math.isfinite(share.sums[1]):
            _check_advantages(advantages, response_mask)
        return result.loss, {f"actor/{name}": value for name, value in result.metrics.items()}

    return policy_loss


def _check_advantages(advantages: torch.Tensor, response_mask: torch.Tensor) -> None:
    """Refuse advantages that are not finite: veRL would skip the whole update, and every later one like it, in silence."""
    valid = response_mask.bool()
    broken = int((~torch.isfinite(advantages) & valid).sum())
    if broken:
        raise ValueError(
            f"{broken} of {int(valid.sum())} advantages of a micro-batch are not finite: a reward was NaN or infinite; "
            "correct the reward function, which has to return a finite score for every response"
        )


def weighted_policy_loss(name: str) -> Callable[..., Any]:
    """One of veRL's own policy losses with token weights.

    The weights go the way of ``rollout_is_weights``, which those losses multiply with, token by token, after their own clip:
    the same as ``placement=outside``.
    """

    def policy_loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """As :func:`verl_policy_loss`; metrics are veRL's own, and the mean weight."""
        weighting = plugin_config.token_weighting_of(config.policy_loss)
        entropy = getattr(config, plugin_config.ENTROPY, None)
        tokens = Tokens.of_batch(old_log_prob, log_prob, advantages, response_mask, entropy)
        shaped = weighting.shaping.weigh(tokens, weighting.prob_source)
        weights = normalized(shaped, tokens.valid, weighting)
        if rollout_is_weights is not None:
            weights = weights * rollout_is_weights
        loss, metrics = get_policy_loss_fn(name)(
            old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, weights
        )
        raw = shaped[tokens.valid]
        mean = TokenStatistic("ratio", (raw.sum().item(), float(raw.numel())))
        return loss, {**metrics, "actor/tr_weight_mean": mean}

    return policy_loss


for _name in plugin_config.LOSS_MODES:
    # veRL overwrites silently; two plugins with one name must not fight in silence.
    if _name in POLICY_LOSS_REGISTRY:
        raise ValueError(
            f"policy loss {_name!r} is already registered by {POLICY_LOSS_REGISTRY[_name].__module__}; "
            "uninstall that plugin, or restrict VERL_USE_EXTERNAL_PLUGINS"
        )
    register_policy_loss(_name)(
        verl_policy_loss(_OWN[_name]) if _name in _OWN else weighted_policy_loss(plugin_config.WEIGHTED[_name])
    )
