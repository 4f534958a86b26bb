"""The objective: veRL's typed options, clip against weights, kinds of KL."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import Finding, complaint_of, error, warning
from verl_trgrpo.core import TokenWeighting
from verl_trgrpo.runs.launch.configuration import root_cause, token_weighting_problems

_ACTOR = "actor_rollout_ref.actor"
_POLICY_LOSS = f"{_ACTOR}.policy_loss"
_SHAPING_TARGET = "verl_trgrpo.core.make_shaping"
_LOSS_TARGET = "verl_trgrpo.verl_plugin.config.TRGRPOPolicyLossConfig"

# What veRL's ActorConfig refuses otherwise.
_SOUND_ACTOR = {"ppo_micro_batch_size": None, "ppo_micro_batch_size_per_gpu": 1, "loss_agg_mode": "token-mean"}

# Points between 0 and 1 at which weights are compared with the clip.
_GRID = 1001


def objective_findings(config: DictConfig) -> tuple[list[Finding], DictConfig | None]:
    """Complaints about the actor's options, each found even if another one stands in the way.

    Also returns a configuration with a sound policy loss in place of a broken one, for checks that build the actor again;
    None where the actor cannot be built even so.
    """
    from verl.utils.config import omega_conf_to_dataclass

    # Copied whole: the actor's options refer to others. What is broken is replaced, so that the rest can be looked at.
    config = config.copy()
    findings = _replace_broken(config, f"{_POLICY_LOSS}.shaping", {"_target_": _SHAPING_TARGET})
    findings += _replace_broken(config, _POLICY_LOSS, {"_target_": _LOSS_TARGET, "loss_mode": "tr_grpo"})
    actor: Any = None
    try:
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    except Exception as problem:  # Hydra wraps whatever a constructor raises
        findings.append(error(_ACTOR, root_cause(problem)))
        config.actor_rollout_ref.actor.update(_SOUND_ACTOR)
    try:
        actor = actor or omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    except Exception:  # the same once more: something else is wrong, and it has been said
        return findings, None
    findings += _clip_findings(actor) + _registered_findings(config) + _kl_findings(config)
    if isinstance(actor.policy_loss, TokenWeighting):
        findings += _weight_findings(actor)
    return findings, config


def _replace_broken(config: DictConfig, key: str, replacement: dict[str, Any]) -> list[Finding]:
    """Try to build the options at ``key``; put ``replacement`` there if that fails."""
    from verl.utils.config import omega_conf_to_dataclass

    node = OmegaConf.select(config, key)
    if not OmegaConf.is_dict(node) or "_target_" not in node:
        return []
    try:
        omega_conf_to_dataclass(node)
    except Exception as problem:  # Hydra wraps whatever a constructor raises
        OmegaConf.update(config, key, replacement, merge=False, force_add=True)
        return [error(key, root_cause(problem))]
    return []


def _clip_findings(actor: Any) -> list[Finding]:
    from verl_trgrpo.verl_plugin.config import clip_range_of

    if isinstance(actor.policy_loss, TokenWeighting):
        return [error(_POLICY_LOSS, problem) for problem in token_weighting_problems(actor)]
    return complaint_of(lambda: clip_range_of(actor), _ACTOR)


def _registered_findings(config: DictConfig) -> list[Finding]:
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn

    estimator, loss = config.algorithm.adv_estimator, config.actor_rollout_ref.actor.policy_loss.loss_mode
    return complaint_of(lambda: get_adv_estimator_fn(estimator), "algorithm.adv_estimator") + complaint_of(
        lambda: get_policy_loss_fn(loss), f"{_POLICY_LOSS}.loss_mode"
    )


def _kl_findings(config: DictConfig) -> list[Finding]:
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    findings = []
    for used, key, kind in (
        (actor.use_kl_loss, f"{_ACTOR}.kl_loss_type", actor.kl_loss_type),
        (algorithm.use_kl_in_reward, "algorithm.kl_penalty", algorithm.kl_penalty),
    ):
        if used and not _is_kl_kind(kind):
            findings.append(error(key, f"{key}={kind!r} is not a KL that veRL has; use low_var_kl (k3)"))
    if actor.use_kl_loss and algorithm.use_kl_in_reward:
        findings.append(
            warning(
                "algorithm.use_kl_in_reward",
                f"algorithm.use_kl_in_reward=true and {_ACTOR}.use_kl_loss=true count the KL twice; GRPO uses the loss only",
            )
        )
    return findings


def _is_kl_kind(kind: Any) -> bool:
    """Asks veRL itself, whose kinds are a chain of ifs."""
    from verl.trainer.ppo.core_algos import kl_penalty

    try:
        kl_penalty(torch.FloatTensor([[0.0]]), torch.FloatTensor([[0.0]]), kind)
    except Exception:  # NotImplementedError for an unknown name, AttributeError for no text at all
        return False
    return True


def _weight_findings(actor: Any) -> list[Finding]:
    """What token weights do to clipping and to the KL."""
    from verl_trgrpo.verl_plugin.config import clip_range_of

    findings = []
    loss = actor.policy_loss
    if loss.kl != "plain" and not actor.use_kl_loss:
        findings.append(
            warning(
                f"{_POLICY_LOSS}.kl",
                f"policy_loss.kl={loss.kl} says how weights enter the KL loss, but {_ACTOR}.use_kl_loss=false: there is none",
            )
        )
    elif loss.kl == "literal":
        findings.append(
            warning(
                f"{_POLICY_LOSS}.kl",
                "policy_loss.kl=literal is not zero where the policy is the reference, and pushes it away from there where "
                "w > 1; use plain or scaled unless this form is what you want to study",
            )
        )
    if loss.placement != "inside" or not loss.shaping.probs_only:
        return findings
    try:
        clip = clip_range_of(actor)
    except ValueError:
        return findings  # already reported
    probabilities = torch.linspace(0, 1, _GRID)
    weights = loss.shaping(probabilities)
    for silenced, sign in ((weights > 1 + clip.high, ">"), (weights < 1 - clip.low, "<")):
        if silenced.any():
            inside = probabilities[silenced]
            findings.append(
                warning(
                    f"{_POLICY_LOSS}.placement",
                    f"policy_loss.placement=inside puts w r into the clip [{1 - clip.low:g}, {1 + clip.high:g}]: on-policy "
                    f"(r = 1), every token with probability {inside.min():.3f} to {inside.max():.3f} and A {sign} 0 gets no "
                    f"gradient (w up to {weights.max():g}, down to {weights.min():g}). That is up to all tokens of such "
                    "responses; watch actor/tr_zero_grad_frac, or use placement=outside",
                )
            )
    return findings
