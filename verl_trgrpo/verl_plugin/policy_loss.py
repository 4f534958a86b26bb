"""Register the policy losses ``tr_grpo`` and ``aspo`` with veRL, and veRL's own losses with token weights as ``tr_NAME``."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn, register_policy_loss

from verl_trgrpo.core import OffPolicyMask, Tokens, TokenStatistic, compute_policy_loss
from verl_trgrpo.verl_plugin import actor as plugin_actor
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED

# Tensors of a micro-batch, as keyword arguments of compute_policy_loss, and what a loss returns: the scalar and its metrics.
_Tensors = dict[str, torch.Tensor]
_Result = tuple[torch.Tensor, dict[str, Any]]


def _own_loss(
    tensors: _Tensors, is_weights: torch.Tensor | None, loss_agg_mode: str, config: Any, surrogate: str
) -> _Result:
    """Compute a loss of the core; metrics are named ``actor/...``.

    Raises:
        ValueError: advantages that are not finite, or what ``compute_policy_loss`` refuses.
    """
    weighting = plugin_actor.token_weighting_of(config.policy_loss)
    result = compute_policy_loss(
        **tensors,
        weighting=weighting,
        clip=plugin_actor.clip_range_of(config),
        surrogate=surrogate,
        loss_agg_mode=loss_agg_mode,
        rollout_is_weights=is_weights,
        **plugin_actor.token_inputs_of(config),
        **config.global_batch_info,
    )
    # This sum over |advantages| is on the host already; only if it is not finite are the tensors read again.
    share = result.metrics["tr_grad_share_low_prob_uniform"]
    if isinstance(share, TokenStatistic) and not math.isfinite(share.sums[1]):
        _check_advantages(tensors["advantages"], tensors["response_mask"])
    metrics = {f"actor/{name}": value for name, value in result.metrics.items()}
    if weighting.shaping.bounds[0] == weighting.shaping.bounds[1]:
        del metrics["actor/tr_weight_std"]  # equal weights were asked for, and their spread of 0 would be a fault
    return result.loss, metrics


def _check_advantages(advantages: torch.Tensor, response_mask: torch.Tensor) -> None:
    """Refuse advantages that are not finite, for which veRL would silently skip the whole update."""
    valid = response_mask.bool()
    broken = int((~torch.isfinite(advantages) & valid).sum())
    if broken:
        raise ValueError(
            f"{broken} of {int(valid.sum())} advantages of a micro-batch are not finite: a reward was NaN or infinite; "
            "correct the reward function, which has to return a finite score for every response"
        )


def _weighted_verl_loss(
    tensors: _Tensors, is_weights: torch.Tensor | None, loss_agg_mode: str, config: Any, name: str
) -> _Result:
    """Compute veRL's policy loss `name` with token weights; metrics are veRL's own, and the mean weight.

    The weights, times those of a rollout correction, are passed as ``rollout_is_weights``, by which that loss multiplies
    token by token after its own clip: the same as ``placement=outside``. Read in veRL 0.9.1's ``core_algos.py`` for each of
    ``WEIGHTED``. What a loss adds to a token counts with it: the penalty of ``kl_cov`` and of ``dro``. What a loss decides
    before, it decides without the weights: clips, the covariances of ``clip_cov`` and ``kl_cov``, the ratio of ``gspo``.
    """
    weighting = plugin_actor.token_weighting_of(config.policy_loss)
    tokens = Tokens.of_batch(**tensors, **plugin_actor.token_inputs_of(config))
    shaped = weighting.shaping.weigh(tokens, weighting.prob_source)
    weights = weighting.normalized(shaped, tokens.valid)
    if is_weights is not None:
        weights = weights * is_weights.masked_fill(~tokens.valid, 0.0)
    # The safe tensors: several of veRL's losses multiply by the mask, which leaves a NaN outside it as it is.
    safe = {name: getattr(tokens, name) for name in ("log_prob", "old_log_prob", "advantages")}
    loss, metrics = get_policy_loss_fn(name)(
        **safe,
        response_mask=tensors["response_mask"],
        loss_agg_mode=loss_agg_mode,
        config=config,
        rollout_is_weights=weights,
    )
    raw = shaped[tokens.valid]
    mean = TokenStatistic("ratio", (raw.sum().item(), float(raw.numel())))
    return loss, {**metrics, "actor/tr_weight_mean": mean}


def _without_left_out(
    tensors: _Tensors, is_weights: torch.Tensor | None, config: Any
) -> tuple[torch.Tensor | None, dict[str, TokenStatistic]]:
    """Return the weights of the rollout correction, 0 where ``policy_loss.opsm`` leaves a response out, and its metric."""
    mask: OffPolicyMask | None = getattr(config.policy_loss, "opsm", None)
    if mask is None:
        return is_weights, {}
    tokens = Tokens.of_batch(**tensors, **plugin_actor.token_inputs_of(config))
    left_out = mask.left_out(tokens)
    weights = torch.ones_like(tokens.log_prob) if is_weights is None else is_weights
    counts = (float((left_out & tokens.valid).sum()), float(tokens.valid.sum()))
    return weights.masked_fill(left_out, 0.0), {"actor/opsm_masked_frac": TokenStatistic("ratio", counts)}


def _register(name: str, compute: Callable[..., _Result]) -> None:
    """Register `compute` under the signature that veRL calls; ``config`` is veRL's ``ActorConfig``."""
    # veRL would overwrite another plugin's loss silently.
    if name in POLICY_LOSS_REGISTRY:
        raise ValueError(
            f"policy loss {name!r} is already registered by {POLICY_LOSS_REGISTRY[name].__module__}; "
            "uninstall that plugin, or restrict VERL_USE_EXTERNAL_PLUGINS"
        )

    @register_policy_loss(name)
    def policy_loss(
        old_log_prob: torch.Tensor,
        log_prob: torch.Tensor,
        advantages: torch.Tensor,
        response_mask: torch.Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: torch.Tensor | None = None,
    ) -> _Result:
        tensors = {
            "log_prob": log_prob,
            "old_log_prob": old_log_prob,
            "advantages": advantages,
            "response_mask": response_mask,
        }
        is_weights, masked = _without_left_out(tensors, rollout_is_weights, config)
        loss, metrics = compute(tensors, is_weights, loss_agg_mode, config)
        return loss, {**metrics, **masked}


_register("tr_grpo", partial(_own_loss, surrogate="ppo"))
_register("aspo", partial(_own_loss, surrogate="aspo"))
for _verl_name, _own_name in WEIGHTED.items():
    if _verl_name != "vanilla":  # is tr_grpo
        _register(_own_name, partial(_weighted_verl_loss, name=_verl_name))
