"""Compute the gradient of an actor's policy loss on a few made-up tokens, to compare losses without training."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core import ClipRange, Tokens, make_shaping, token_weights
from verl_trgrpo.verl_plugin.actor import TOKEN_INPUTS

_ROWS, _LENGTH = 8, 24
# Largest entropies, in nats: some losses act below a bound only, others above.
_ENTROPIES = (0.5, 0.005, 5.0)


class Policies(NamedTuple):
    """Say which of a run's policies are one, so that their probabilities are equal in the run.

    Args:
        old_is_current: the old policy is the current one, as in a run with one update per batch.
        old_is_rollout: the old policy's probabilities are the rollout engine's (``rollout_correction.bypass_mode``).
    """

    old_is_current: bool = False
    old_is_rollout: bool = False


def alike(actor: Any, other: Any, policies: Policies) -> bool:
    """Return True if the losses of two actors have the same gradient; see :func:`gradient_of`."""
    return all(
        torch.allclose(gradient_of(actor, policies, largest), gradient_of(other, policies, largest), 1e-9, 1e-12)
        for largest in _ENTROPIES
    )


def gradient_of(actor: Any, policies: Policies, largest_entropy: float = _ENTROPIES[0]) -> torch.Tensor:
    """Return the gradient of the policy loss by log pi_theta, (8, 24) float64, on likely, rare, sure and unsure tokens.

    Args:
        actor: veRL's ``ActorConfig``; it stays as it is.
        policies: which of the policies are one; the others are far apart.
        largest_entropy: of a token, nats.
    """
    log_prob, old, advantages, mask, inputs = _batch(policies, largest_entropy)
    counts = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": _ROWS}
    counts["loss_scale_factor"] = actor.loss_scale_factor
    own = _changed(actor, {"global_batch_info": counts, TOKEN_INPUTS: inputs})
    log_prob = log_prob.clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):  # clip_cov draws its tokens
        loss, _ = get_policy_loss_fn(own.policy_loss.loss_mode)(old, log_prob, advantages, mask, own.loss_agg_mode, own)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return gradient


def is_correction(actor: Any, level: str) -> bool:
    """Return True if an actor's weights are the ratios p_old / p_rollout by which a rollout correction multiplies, too.

    Both may have bounds: the weights are compared where both are within them.

    Args:
        actor: veRL's ``ActorConfig`` with token weights.
        level: of ``algorithm.rollout_correction.rollout_is``: ``token`` or ``sequence``.
    """
    log_prob, old, advantages, mask, inputs = _batch(Policies(), _ENTROPIES[0])
    # Ratios near 1, which bounds leave alone.
    inputs["rollout_log_prob"] = old - 0.01 * (old - inputs["rollout_log_prob"]).tanh()
    tokens = Tokens.of_batch(log_prob, old_log_prob=old, advantages=advantages, response_mask=mask, **inputs)
    weights = token_weights(tokens, actor.policy_loss)
    log_ratio = (old - inputs["rollout_log_prob"]) * mask
    correction, _ = compute_rollout_correction_weights(log_ratio, mask.to(log_ratio.dtype), level, 1e4)
    return torch.allclose(weights[mask], correction[mask].to(weights.dtype), 1e-6)


def _batch(
    policies: Policies, largest_entropy: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return log pi_theta, log pi_old, A, the mask and the inputs of shapings by name."""
    generator = torch.Generator().manual_seed(0)
    shape = (_ROWS, _LENGTH)
    log_prob = -14 * torch.rand(shape, generator=generator, dtype=torch.double).square()
    entropy = largest_entropy * torch.rand(shape, generator=generator, dtype=torch.double)
    advantages = torch.linspace(-1.5, 2.0, _ROWS, dtype=torch.double)[:, None].expand(shape)
    mask = torch.arange(_LENGTH) < torch.linspace(6, _LENGTH, _ROWS)[:, None]
    # Ratios of any size in every other row, and some near 1 in those between.
    near = log_prob + 0.3 * torch.randn(shape, generator=generator, dtype=torch.double)
    other = torch.where(torch.arange(_ROWS)[:, None] % 2 == 0, log_prob.flip(0), near)
    old = log_prob if policies.old_is_current else other
    inputs = {
        "entropy": entropy,
        "success_rate": entropy.clamp(max=1),
        "responses": torch.arange(_ROWS * _LENGTH).view(shape),
        "ref_log_prob": log_prob.flip(1),
        "rollout_log_prob": old if policies.old_is_rollout else log_prob.flip(1),
    }
    return log_prob, old, advantages, mask, inputs


def stock(actor: Any) -> Any:
    """Return a copy of an actor with GRPO's loss and clip range, and its own aggregation."""
    clip = ClipRange()
    bounds = {"clip_ratio_low": clip.low, "clip_ratio_high": clip.high, "clip_ratio_c": clip.dual}
    return _changed(actor, {"policy_loss": PolicyLossConfig(), "clip_ratio": clip.low, **bounds})


def unmasked(actor: Any) -> Any:
    """Return a copy of an actor that leaves no response out as off-policy."""
    if getattr(actor.policy_loss, "opsm", None) is None:
        return actor
    return _changed(actor, {"policy_loss": replace(actor.policy_loss, opsm=None)})


def unweighted(actor: Any) -> Any:
    """Return a copy of an actor whose tokens have the weight 1."""
    loss = replace(actor.policy_loss, shaping=make_shaping("uniform"), prob_source="current")
    return _changed(actor, {"policy_loss": loss})


def _changed(actor: Any, values: dict[str, Any]) -> Any:
    own = copy.copy(actor)
    for name, value in values.items():
        object.__setattr__(own, name, value)  # it is frozen
    return own
