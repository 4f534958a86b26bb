"""Check the loss: clip range, inputs of the shaping, and what token weights do to the clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, findings_of
from verl_trgrpo.core import TokenWeighting
from verl_trgrpo.core.shaping import REMEDIES
from verl_trgrpo.runs.keys import ACTOR, LOSS

# Points between 0 and 1 at which weights are compared with the clip.
_GRID = 1001


def loss_findings(view: RunView) -> list[Finding]:
    """Check the loss of a configuration whose actor can be built."""
    from verl.utils.config import omega_conf_to_dataclass

    from verl_trgrpo.verl_plugin.actor import check_kl, clip_range_of
    from verl_trgrpo.verl_plugin.lopti import check_lopti

    actor = omega_conf_to_dataclass(view.config.actor_rollout_ref.actor)
    loss = actor.policy_loss
    # CISPO's lower bound is meant to be out of reach: veRL's example sets clip_ratio_low=10.
    clip_findings = [] if loss.loss_mode in ("cispo", "tr_cispo") else _errors_of(lambda: clip_range_of(actor))
    if not isinstance(loss, TokenWeighting):
        return clip_findings
    findings = clip_findings + _input_findings(view, loss)
    findings += _errors_of(lambda: check_kl(actor)) + _errors_of(lambda: check_lopti(actor))
    if loss.placement == "inside" and loss.shaping.probs_only and not clip_findings:
        findings += _silenced_findings(loss, clip_range_of(actor))
    return findings


def _input_findings(view: RunView, loss: Any) -> list[Finding]:
    """Check that the run computes what the shaping and the clip ask for."""
    needed = {
        "entropy": (f"{ACTOR}.calculate_entropy", f"{ACTOR}.entropy_coeff"),
        "ref_log_prob": (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"),
        "success_rate": ("trainer.v1.sampler.sampler_kwargs.success_rate",),
    }
    asked = {name: f"shaping {loss.shaping}" for name in loss.shaping.inputs if name in needed}
    if loss.high_entropy_clip is not None:
        asked.setdefault("entropy", "high_entropy_clip")
    return [
        view.finding(keys[0], f"{asked[name]} takes {name}; {REMEDIES[name]}")
        for name, keys in needed.items()
        if name in asked and not any(view[key] for key in keys)
    ]


def _errors_of(check: Callable[[], object]) -> list[Finding]:
    return [Finding.error(ACTOR, f"{ACTOR}: {finding.message}") for finding in findings_of(check, ACTOR)]


def _silenced_findings(loss: Any, clip: Any) -> list[Finding]:
    """Warn about probabilities whose weight alone is outside the clip: on policy (r = 1) they get no gradient."""
    probabilities = torch.linspace(0, 1, _GRID)
    weights = loss.shaping(probabilities)
    findings = []
    for silenced, sign in ((weights > 1 + clip.high, ">"), (weights < 1 - clip.low, "<")):
        if silenced.any():
            inside = probabilities[silenced]
            message = (
                f"{LOSS}.placement=inside: with the clip [{1 - clip.low:g}, {1 + clip.high:g}], tokens with probability "
                f"{inside.min():.3f} to {inside.max():.3f} and A {sign} 0 get no gradient; use placement=outside, or watch "
                "actor/tr_zero_grad_frac"
            )
            findings.append(Finding.warning(f"{LOSS}.placement", message))
    return findings
