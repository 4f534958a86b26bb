"""Read what a policy loss needs from veRL's ``ActorConfig``: token weights, clip range, inputs of tokens, kind of KL."""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.config import PolicyLossConfig

from verl_trgrpo.core import ClipRange, TokenWeighting

# The attribute in which the wrapped ppo_loss passes what a policy loss does not get, as keyword arguments of Tokens.of_batch:
# of its copy of the actor's configuration, the only argument of a policy loss that can carry it.
TOKEN_INPUTS = "_token_inputs"


def token_weighting_of(policy_loss: Any) -> TokenWeighting:
    """Return the token weighting of ``actor.policy_loss``.

    A stock ``PolicyLossConfig`` (``loss_mode=tr_grpo`` in an otherwise unchanged configuration) gives the default; it has no
    fields for the options.

    Raises:
        ValueError: anything else, e.g. a bare ``DictConfig`` whose options would be ignored.
    """
    if isinstance(policy_loss, TokenWeighting):
        return policy_loss
    if isinstance(policy_loss, PolicyLossConfig):
        return TokenWeighting()
    raise ValueError(
        f"actor.policy_loss is a {type(policy_loss).__name__}, whose options cannot be checked; instantiate the section through "
        "_target_: verl_trgrpo.verl_plugin.config.TRGRPOPolicyLossConfig (algorithm=tr_grpo does)"
    )


def clip_range_of(actor: Any) -> ClipRange:
    """Return the clip range of an actor configuration, with veRL's fall-backs for missing values."""
    low, high = actor.get("clip_ratio_low"), actor.get("clip_ratio_high")
    return ClipRange(
        low=actor.clip_ratio if low is None else low,
        high=actor.clip_ratio if high is None else high,
        dual=actor.get("clip_ratio_c", 3.0),
        high_entropy=actor.policy_loss.get("high_entropy_clip"),
    )


def token_inputs_of(actor: Any) -> dict[str, torch.Tensor]:
    """Return the inputs of tokens that the wrapped ``ppo_loss`` passes beside veRL's arguments.

    Returns:
        keyword arguments of ``Tokens.of_batch``, each (batch, response_length): the entropy, if the run computes it, and the
        columns that the shaping asks for.

    Raises:
        ValueError: the original ``ppo_loss`` has called the policy loss, and would compute the KL loss without weights.
    """
    inputs = getattr(actor, TOKEN_INPUTS, None)
    kind = getattr(actor.policy_loss, "kl", "plain")
    if inputs is None and actor.use_kl_loss and kind != "plain":
        raise ValueError(
            f"policy_loss.kl={kind!r} needs this plugin's ppo_loss, and a copy of veRL's own was called; import ppo_loss as "
            "verl.workers.utils.losses.ppo_loss at the time of the call, or set policy_loss.kl=plain"
        )
    return inputs or {}


def inputs_of(policy_loss: TokenWeighting) -> tuple[str, ...]:
    """Return the names of the inputs of tokens that an actor's policy loss takes."""
    masked = getattr(policy_loss, "opsm", None) is not None
    return (*policy_loss.shaping.inputs, *(["rollout_log_prob"] * masked))


def check_kl(actor: Any) -> None:
    """Check that a weighted KL agrees with the actor's own KL options, if the run has a KL loss.

    Args:
        actor: veRL's ``ActorConfig`` with a ``TokenWeighting`` as its policy loss.

    Raises:
        ValueError: ``kl_loss_type`` is not the k3 estimator.
    """
    kind = actor.policy_loss.kl
    if kind != "plain" and actor.use_kl_loss and actor.kl_loss_type not in ("low_var_kl", "k3"):
        raise ValueError(
            f"policy_loss.kl={kind!r} is built on the k3 estimator but actor.kl_loss_type={actor.kl_loss_type!r}; "
            "set actor.kl_loss_type=low_var_kl, or policy_loss.kl=plain"
        )
