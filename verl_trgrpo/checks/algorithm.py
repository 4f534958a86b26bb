"""Check that a run still is the algorithm that it names, and its loss: clip range, inputs of the shaping, weights in the clip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Finding, Level, findings_of
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.config import OWN_CONFIGS
from verl_trgrpo.core import TokenWeighting
from verl_trgrpo.core.shaping import REMEDIES
from verl_trgrpo.runs.compose import algorithm_settings, resolved, verl_defaults
from verl_trgrpo.runs.keys import ACTOR, CORRECTION, LOSS, ROLLOUT, SHAPING, flat, with_whole_keys
from verl_trgrpo.verl_plugin.loss_names import LOSS_MODES, WEIGHTED

# Points between 0 and 1 at which weights are compared with the clip.
_GRID = 1001
_DOUBLED = (
    f"the weight is the ratio p_old / p_rollout, by which {CORRECTION}.rollout_is={{level}} multiplies, too, so that it counts "
    f"squared; set shaping=uniform, or {CORRECTION}.rollout_is=null"
)
_ALWAYS_OLD = (
    "every token has the weight 1, because the rollout's probabilities are taken for the old ones; set "
    f"{CORRECTION}.bypass_mode=false"
)
# Losses whose gradient is computed; others are the user's own, or hand a batch on.
_PROBED = {*WEIGHTED, *LOSS_MODES, "geo_mean"}
# The algorithms that others are made from.
_BASES = ("grpo", "tr_grpo")
# Beginnings of keys that an algorithm's file sets and leaves open: a default of this project, not the algorithm's point.
_OPEN = {
    "tr_grpo": (f"{LOSS}.placement", f"{LOSS}.prob_source", f"{LOSS}.kl"),
    # Any shaping goes with them.
    **dict.fromkeys(("aspo", "lopti"), (f"{LOSS}.shaping.",)),
}


def drift_findings(view: RunView) -> list[Finding]:
    """Warn about settings that make an algorithm another one."""
    config, algorithm, findings = view.config, view.algorithm_name, _mismatch_findings(view)
    if not algorithm or not _content("algorithm", algorithm):
        return findings
    points, given = set(_points(algorithm)), flat(config)
    for key, written in algorithm_settings(algorithm).items():
        if given.get(key) == written:
            continue
        value, meant = resolved(config, key), _meant(config, key, written)
        same_loss = key == f"{LOSS}.loss_mode" and WEIGHTED.get(str(value)) == meant  # of a loss with token weights
        if value == meant or same_loss or key.startswith(_OPEN.get(algorithm, ())):
            continue
        bases = [base for base in _BASES if base != algorithm and value is not None]
        like = [base for base in bases if _base_value(base, key) == value]
        if key in points or like:
            fix = f"choose algorithm={like[0]}" if like else "keep the value if you study it"
            reason = f"algorithm={algorithm} is defined with {key}={as_plain_yaml(meant)}; remove the setting, or {fix}"
            findings.append(view.finding(key, reason, Level.WARNING))
    return findings


def _mismatch_findings(view: RunView) -> list[Finding]:
    """Warn about bounds that make a correction of the mismatch another one: a pair masks, a single number truncates."""
    word, findings = view.choices.get("mismatch"), []
    for key, written in flat(_content("mismatch", word)).items() if word else ():
        value, kinds = view[key], ("a single number", "a pair of bounds, which masks")
        if key.endswith("_threshold") and value is not None and ("_" in str(value)) != ("_" in str(written)):
            meant, given = (kinds["_" in str(each)] for each in (written, value))
            reason = f"is {given}, and mismatch={word} has {meant}; set {key}={as_plain_yaml(written)}"
            findings.append(view.finding(key, reason, Level.WARNING))
    return findings


def _content(group: str, word: str) -> Any:
    """Return what the file of a word says; nothing of a word that another package has."""
    file = OWN_CONFIGS / group / f"{word}.yaml"
    return OmegaConf.to_container(OmegaConf.load(file)) if file.is_file() else {}


def _points(algorithm: str) -> Iterator[str]:
    """Yield the keys that an algorithm's file sets, and the files that it is made from; not those of its shaping."""
    content = _content("algorithm", algorithm)
    for base in content.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            yield from _points(base)
    yield from (key for key in flat(content) if not key.startswith(_OPEN.get(algorithm, ())))


def _base_value(base: str, key: str) -> Any:
    settings = algorithm_settings(base)
    return settings[key] if key in settings else resolved(verl_defaults(), key)


def _meant(config: DictConfig, key: str, written: Any) -> Any:
    """Return what `written` would be in the place of a key."""
    if not (isinstance(written, str) and "${" in written):
        return written
    config = config.copy()
    OmegaConf.set_struct(config, False)
    OmegaConf.update(config, key, written, force_add=True)
    return resolved(config, key)


def loss_findings(view: RunView) -> list[Finding]:
    """Check the loss of a configuration whose actor can be built."""
    from verl.utils.config import omega_conf_to_dataclass

    from verl_trgrpo.verl_plugin.actor import check_kl, clip_range_of
    from verl_trgrpo.verl_plugin.lopti import check_lopti

    actor = omega_conf_to_dataclass(view.config.actor_rollout_ref.actor)
    loss = actor.policy_loss
    # CISPO's lower bound is meant to be out of reach: veRL's example sets clip_ratio_low=10.
    clip_findings = (
        [] if loss.loss_mode in ("cispo", "tr_cispo") else _errors_of(lambda: clip_range_of(actor), view.config)
    )
    if not isinstance(loss, TokenWeighting):
        return clip_findings or _idle_findings(view, actor)
    findings = clip_findings + _input_findings(view, loss)
    findings += _errors_of(lambda: check_kl(actor), view.config)
    findings += _errors_of(lambda: check_lopti(actor), view.config)
    if loss.placement == "inside" and loss.shaping.probs_only and not clip_findings:
        findings += _silenced_findings(view, loss, clip_range_of(actor))
    return findings or _idle_findings(view, actor)


def _input_findings(view: RunView, loss: Any) -> list[Finding]:
    """Check that the run computes what the shaping and the clip ask for."""
    needed = {
        "entropy": (f"{ACTOR}.calculate_entropy", f"{ACTOR}.entropy_coeff"),
        "ref_log_prob": (f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"),
        "rollout_log_prob": (f"{ROLLOUT}.calculate_log_probs",),
        "success_rate": ("trainer.v1.sampler.sampler_kwargs.success_rate",),
    }
    asked = {name: f"shaping {loss.shaping}" for name in loss.shaping.inputs if name in needed}
    if loss.opsm is not None:
        asked.setdefault("rollout_log_prob", "opsm")
    if loss.high_entropy_clip is not None:
        asked.setdefault("entropy", "high_entropy_clip")
    remedies = REMEDIES | {"ref_log_prob": REMEDIES["ref_log_prob"].replace("=true", f"=true{view.size_of_reference}")}
    return [
        view.finding(keys[0], f"{asked[name]} takes {name}; {remedies[name]}")
        for name, keys in needed.items()
        if name in asked and not any(view[key] and not view.ignores(key) for key in keys)
    ]


def _idle_findings(view: RunView, actor: Any) -> list[Finding]:
    """Warn about a loss that is GRPO's, and about weights of 1, wherever the policy is the old one, in a run whose policy always
    is; about weights that are always 1, and about weights that a rollout correction multiplies once more.

    Nothing lists such losses: the gradients are computed, on-policy and off-policy, for veRL's and this project's losses, on
    inputs that are equal where the run's settings make them equal.
    """
    from verl_trgrpo.verl_plugin.gradient_probe import Policies, alike, is_correction, stock, unmasked, unweighted

    key, whole, epochs = f"{ACTOR}.ppo_mini_batch_size", view["data.train_batch_size"], f"{ACTOR}.ppo_epochs"
    several = view[key] is None or whole is None or view[key] < whole or view[epochs] != 1
    actor = unmasked(actor)  # a correction is not the loss
    bypass, loss = bool(view[f"{CORRECTION}.bypass_mode"]), actor.policy_loss
    once, same, apart = not several and not bypass, Policies(old_is_current=True), Policies(old_is_rollout=bypass)
    grouped = view["algorithm.adv_estimator"] in ("grpo", "tr_grpo")
    if getattr(loss, "lopti", None) or loss.loss_mode not in _PROBED:
        return []
    update = f"with data.train_batch_size={whole} and {epochs}=1 a batch is one update, in which the policy is the old one and"
    fix = (
        f"set {key}={max(1, (whole or 1) // 2)}, or {CORRECTION}.bypass_mode=true to take the rollout's for the old one"
    )
    try:
        if once and grouped and alike(actor, stock(actor), same) and not alike(actor, stock(actor), apart):
            word = f"algorithm={view.algorithm_name}" if view.algorithm_name else loss.loss_mode
            reason = f"{update} the loss of {word} has the gradient of veRL's vanilla loss, as algorithm=grpo; {fix}"
            return [view.finding(key, reason, Level.WARNING)]
        weighted = isinstance(loss, TokenWeighting) and loss.shaping.name != "uniform"
        if not weighted:
            return []
        level = None if bypass else view[f"{CORRECTION}.rollout_is"]
        if level and "rollout_log_prob" in loss.shaping.inputs and is_correction(actor, level):
            return [view.finding(f"{SHAPING}.name", _DOUBLED.format(level=level))]
        if not alike(actor, unweighted(actor), apart if bypass else same):
            return []
        always = alike(actor, unweighted(actor), apart)
    except Exception:  # of a shaping of the user's own, which the run will report
        return []
    if always and bypass and not alike(actor, unweighted(actor), Policies()):
        reason = _ALWAYS_OLD
    elif always:
        reason = "no likely or rare token that was tried has another weight than 1; change the parameters, or set shaping=uniform"
    else:
        reason = f"{update} every token has the weight 1; {fix}"
    return [view.finding(f"{SHAPING}.name", reason, Level.WARNING)] if always or once else []


def _errors_of(check: Callable[[], object], config: DictConfig) -> list[Finding]:
    messages = [with_whole_keys(finding.message, LOSS, config) for finding in findings_of(check, ACTOR)]
    return [Finding.error(ACTOR, f"{ACTOR}: {message}") for message in messages]


def _silenced_findings(view: RunView, loss: Any, clip: Any) -> list[Finding]:
    """Warn about probabilities whose weight alone is outside the clip: on policy (r = 1) they get no gradient."""
    fix = "algorithm=tr_grpo" if view.algorithm_name == "tr_grpo_published" else f"{LOSS}.placement=outside"
    probabilities = torch.linspace(0, 1, _GRID)
    weights = loss.shaping(probabilities)
    findings = []
    for silenced, sign in ((weights > 1 + clip.high, ">"), (weights < 1 - clip.low, "<")):
        if silenced.any():
            inside = probabilities[silenced]
            message = (
                f"{LOSS}.placement=inside: with the clip [{1 - clip.low:g}, {1 + clip.high:g}], tokens with probability "
                f"{inside.min():.3f} to {inside.max():.3f} and A {sign} 0 get no gradient; use {fix}, or watch "
                "actor/tr_zero_grad_frac"
            )
            findings.append(Finding.warning(f"{LOSS}.placement", message))
    return findings
