"""The objective: typed options, clip against weights, kinds of KL."""

from __future__ import annotations

from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding, findings_of
from verl_trgrpo.common.text import choice_hint
from verl_trgrpo.core import TokenWeighting
from verl_trgrpo.runs.checks.contracts import build_problems

_ACTOR = "actor_rollout_ref.actor"
_POLICY_LOSS = f"{_ACTOR}.policy_loss"

_SOUND_SHAPING = {"_target_": "verl_trgrpo.core.make_shaping", "name": "sigmoid"}
# Sound options, by node, the innermost first.
_SOUND = {
    f"{_POLICY_LOSS}.shaping": _SOUND_SHAPING,
    _POLICY_LOSS: {
        "_target_": "verl_trgrpo.verl_plugin.config.TRGRPOPolicyLossConfig",
        "loss_mode": "tr_grpo",
        "shaping": _SOUND_SHAPING,
    },
}
# What veRL's ActorConfig refuses otherwise.
_SOUND_ACTOR = {"ppo_micro_batch_size": None, "ppo_micro_batch_size_per_gpu": 1}

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
    findings = []
    for key, sound in _SOUND.items():
        node = OmegaConf.select(config, key)
        if OmegaConf.is_dict(node) and "_target_" in node and (problems := build_problems(node)):
            findings += [Finding.error(key, problem) for problem in problems]
            OmegaConf.update(config, key, sound, merge=False, force_add=True)
    if problems := build_problems(config.actor_rollout_ref.actor):
        findings += [Finding.error(_ACTOR, problem) for problem in problems]
        config.actor_rollout_ref.actor.update(_SOUND_ACTOR)
        if build_problems(config.actor_rollout_ref.actor):
            return findings, None
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    findings += _clip_findings(actor) + _registered_findings(config) + _kl_findings(config)
    if isinstance(actor.policy_loss, TokenWeighting):
        findings += _weight_findings(actor)
    return findings, config


def _clip_findings(actor: Any) -> list[Finding]:
    from verl_trgrpo.verl_plugin.config import check_kl, clip_range_of

    loss = actor.policy_loss
    findings = findings_of(lambda: clip_range_of(actor), _ACTOR)
    if not isinstance(loss, TokenWeighting):
        return findings
    if "entropy" in loss.shaping.inputs and not (actor.calculate_entropy or actor.entropy_coeff):
        message = f"shaping {loss.shaping} asks for the entropy, but actor.calculate_entropy=false; set it to true"
        findings.append(Finding.error(f"{_ACTOR}.calculate_entropy", message))
    return findings + findings_of(lambda: check_kl(actor), _POLICY_LOSS)


def _registered_findings(config: DictConfig) -> list[Finding]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

    registries = {"algorithm.adv_estimator": ADV_ESTIMATOR_REGISTRY, f"{_POLICY_LOSS}.loss_mode": POLICY_LOSS_REGISTRY}
    return [
        Finding.error(key, f"{key}={name!r} is not registered; {choice_hint(str(name), registry)}")
        for key, registry in registries.items()
        if (name := OmegaConf.select(config, key)) not in registry
    ]


def _kl_findings(config: DictConfig) -> list[Finding]:
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    kinds = (
        (actor.use_kl_loss, f"{_ACTOR}.kl_loss_type", actor.kl_loss_type),
        (algorithm.use_kl_in_reward, "algorithm.kl_penalty", algorithm.kl_penalty),
    )
    findings = [
        Finding.error(key, f"{key}={kind!r} is not a KL that veRL has; use low_var_kl (k3)")
        for used, key, kind in kinds
        if used and not _is_kl_kind(kind)
    ]
    if actor.use_kl_loss and algorithm.use_kl_in_reward:
        message = (
            f"algorithm.use_kl_in_reward=true and {_ACTOR}.use_kl_loss=true count the KL twice; GRPO uses the loss only"
        )
        findings.append(Finding.warning("algorithm.use_kl_in_reward", message))
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
        message = f"policy_loss.kl={loss.kl} says how weights enter the KL loss, but {_ACTOR}.use_kl_loss=false: there is none"
        findings.append(Finding.warning(f"{_POLICY_LOSS}.kl", message))
    elif loss.kl == "literal":
        message = (
            "policy_loss.kl=literal is not zero where the policy is the reference, and pushes it away from there where "
            "w > 1; use plain or scaled unless this form is what you want to study"
        )
        findings.append(Finding.warning(f"{_POLICY_LOSS}.kl", message))
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
            message = (
                f"policy_loss.placement=inside puts w r into the clip [{1 - clip.low:g}, {1 + clip.high:g}]: on-policy "
                f"(r = 1), every token with probability {inside.min():.3f} to {inside.max():.3f} and A {sign} 0 gets no "
                f"gradient (w up to {weights.max():g}, down to {weights.min():g}). That is up to all tokens of such "
                "responses; watch actor/tr_zero_grad_frac, or use placement=outside"
            )
            findings.append(Finding.warning(f"{_POLICY_LOSS}.placement", message))
    return findings
