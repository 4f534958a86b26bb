"""Compute the gradient of an actor's policy loss on a few made-up tokens, to compare losses without training."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core import ClipRange, make_shaping
from verl_trgrpo.verl_plugin.actor import TOKEN_INPUTS

_ROWS, _LENGTH = 8, 24
# Largest entropies, in nats: some losses act below a bound only, others above.
_ENTROPIES = (0.5, 0.005, 5.0)


def alike(actor: Any, other: Any, off_policy: bool) -> bool:
    """Return True if the losses of two actors have the same gradient; see :func:`gradient_of`."""
    return all(
        torch.allclose(gradient_of(actor, off_policy, largest), gradient_of(other, off_policy, largest), 1e-9, 1e-12)
        for largest in _ENTROPIES
    )


def gradient_of(actor: Any, off_policy: bool, largest_entropy: float = _ENTROPIES[0]) -> torch.Tensor:
    """Return the gradient of the policy loss by log pi_theta, (8, 24) float64, on likely, rare, sure and unsure tokens.

    Args:
        actor: veRL's ``ActorConfig``; it stays as it is.
        off_policy: the old policy is another one, far away; otherwise it is the current one.
        largest_entropy: of a token, nats.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (_ROWS, _LENGTH)
    log_prob = -14 * torch.rand(shape, generator=generator, dtype=torch.double).square()
    entropy = largest_entropy * torch.rand(shape, generator=generator, dtype=torch.double)
    advantages = torch.linspace(-1.5, 2.0, _ROWS, dtype=torch.double)[:, None].expand(shape)
    mask = torch.arange(_LENGTH) < torch.linspace(6, _LENGTH, _ROWS)[:, None]
    # Ratios of any size in every other row, and some near 1 in those between.
    near = log_prob + 0.3 * torch.randn(shape, generator=generator, dtype=torch.double)
    other = torch.where(torch.arange(_ROWS)[:, None] % 2 == 0, log_prob.flip(0), near)
    old = other if off_policy else log_prob
    counts = {"dp_size": 1, "batch_num_tokens": int(mask.sum()), "global_batch_size": _ROWS}
    counts["loss_scale_factor"] = actor.loss_scale_factor
    inputs = {
        "entropy": entropy,
        "success_rate": entropy.clamp(max=1),
        "responses": torch.arange(_ROWS * _LENGTH).view(shape),
    }
    inputs |= dict.fromkeys(("ref_log_prob", "rollout_log_prob"), log_prob.flip(1))
    own = _changed(actor, {"global_batch_info": counts, TOKEN_INPUTS: inputs})
    log_prob = log_prob.clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):  # clip_cov draws its tokens
        loss, _ = get_policy_loss_fn(own.policy_loss.loss_mode)(old, log_prob, advantages, mask, own.loss_agg_mode, own)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return gradient


def stock(actor: Any) -> Any:
    """Return a copy of an actor with GRPO's loss and clip range, and its own aggregation."""
    clip = ClipRange()
    bounds = {"clip_ratio_low": clip.low, "clip_ratio_high": clip.high, "clip_ratio_c": clip.dual}
    return _changed(actor, {"policy_loss": PolicyLossConfig(), "clip_ratio": clip.low, **bounds})


def unweighted(actor: Any) -> Any:
    """Return a copy of an actor whose tokens have the weight 1."""
    loss = replace(actor.policy_loss, shaping=make_shaping("uniform"), prob_source="current")
    return _changed(actor, {"policy_loss": loss})


def _changed(actor: Any, values: dict[str, Any]) -> Any:
    own = copy.copy(actor)
    for name, value in values.items():
        object.__setattr__(own, name, value)  # it is frozen
    return own
