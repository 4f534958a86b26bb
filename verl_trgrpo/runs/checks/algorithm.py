"""Whether a run still is what its algorithm's name says, what veRL's estimators cannot do, and steps that are hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.compose import OWN_CONFIGS, defaults_of, flat

# The algorithms that others are made from.
_BASES = ("grpo", "tr_grpo")
_ACTOR = "actor_rollout_ref.actor"
_POLICY_LOSS = f"{_ACTOR}.policy_loss"
# What an algorithm's file sets and leaves open, as beginnings of keys: the default of the project, not its point.
_OPEN = {
    "tr_grpo": tuple(f"{_POLICY_LOSS}.{name}" for name in ("placement", "prob_source", "kl")),
    "aspo": (f"{_POLICY_LOSS}.shaping.",),  # any shaping multiplies with the flipped ratio
}


def algorithm_findings(config: DictConfig, algorithm: str | None) -> list[Finding]:
    """Complaints about the advantage estimator and about settings that make an algorithm another one.

    `algorithm` is what was chosen of the group of that name, if anything was.
    """
    findings = _preference_findings(config) + _filter_findings(config)
    if not algorithm or not (OWN_CONFIGS / "algorithm" / f"{algorithm}.yaml").is_file():
        return findings + _step_findings(config, {})
    own = flat(defaults_of({"algorithm": algorithm}))
    bases = {base: flat(defaults_of({"algorithm": base})) for base in _BASES if base != algorithm}
    points = set(_points(algorithm))
    for key, meant in own.items():
        others = {base: plain[key] for base, plain in bases.items() if plain.get(key, meant) != meant}
        if (key not in points and not others) or key.startswith(_OPEN.get(algorithm, ())):
            continue
        value, meant = _value(config, key), _value(config, key, meant)
        like = [base for base, plain in others.items() if value == plain]
        if value != meant and (key in points or like):
            remedy = f"or choose algorithm={like[0]}" if like else "unless that is what you want to study"
            means = f"algorithm={algorithm} means {key}={as_plain_yaml(meant)}, but the run has {as_plain_yaml(value)}"
            findings.append(Finding.warning(key, f"{means}; drop the setting, {remedy}"))
    seen = {finding.where for finding in findings}
    return findings + [finding for finding in _step_findings(config, own) if finding.where not in seen]


def _step_findings(config: DictConfig, own: Mapping[str, Any]) -> list[Finding]:
    """Warnings about a clip and a learning rate that hold nothing back; `own` are the values of the run's algorithm."""
    actor, findings = config.actor_rollout_ref.actor, []
    key, clip = f"{_ACTOR}.clip_ratio_high", actor.clip_ratio_high
    # Other losses have bounds of another kind there.
    if actor.policy_loss.loss_mode in ("vanilla", "tr_grpo") and clip is not None and clip > 1 and clip != own.get(key):
        message = f"{key}={clip} lets a probability grow {1 + clip:g}-fold before its tokens are clipped; 0.2 to 0.28 is usual"
        findings.append(Finding.warning(key, message))
    key, optimizer = f"{_ACTOR}.optim.lr", actor.optim
    if optimizer.lr > 0.01 and "Adam" in str(optimizer.get("optimizer")):
        message = f"{key}={optimizer.lr} moves every weight by about that much in a step of Adam; 1e-6 is usual"
        findings.append(Finding.warning(key, message))
    return findings


def _points(algorithm: str) -> Iterator[str]:
    """Keys that an algorithm's file sets, and the files that it is made from."""
    content: Any = OmegaConf.to_container(OmegaConf.load(OWN_CONFIGS / "algorithm" / f"{algorithm}.yaml"))
    for base in content.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            yield from _points(base)
    yield from (key for key in flat(content) if not key.startswith(_OPEN.get(algorithm, ())))


def _value(config: DictConfig, key: str, written: Any = None) -> Any:
    """The value of a key in a run, or what it would be if `written` stood there."""
    if isinstance(written, str) and "${" in written:
        config = config.copy()
        OmegaConf.set_struct(config, False)
        OmegaConf.update(config, key, written, force_add=True)
    elif written is not None:
        return written
    value = OmegaConf.select(config, key)
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _preference_findings(config: DictConfig) -> list[Finding]:
    """``use_pf_ppo`` draws rows anew; veRL's v1 trainer writes their advantages back in the order before (veRL #7956)."""
    key = "algorithm.use_pf_ppo"
    if not config.algorithm.get("use_pf_ppo", False):
        return []
    if config.algorithm.adv_estimator != "gae":
        message = (
            f"{key}=true has no effect with algorithm.adv_estimator={config.algorithm.adv_estimator}, only with gae"
        )
        return [Finding.warning(key, message)]
    if not config.trainer.use_v1:
        return []
    message = (
        f"{key}=true: veRL's trainer draws rows anew and gives their advantages to other responses (veRL issue 7956); set "
        "it to false"
    )
    return [Finding.error(key, message)]


def _filter_findings(config: DictConfig) -> list[Finding]:
    """veRL leaves ``filter_groups`` to a custom replay buffer, and this package's does not filter."""
    filters, sampler = config.algorithm.get("filter_groups"), config.trainer.v1.sampler.custom_sampler
    if not (filters and filters.enable and str(sampler.path).endswith("v1_replay_buffer")):
        return []
    key = "trainer.v1.sampler.custom_sampler.path"
    message = (
        f"algorithm.filter_groups.enable=true has no effect with {key}={sampler.path}, which does not filter; set the path "
        "to null, and veRL's own replay buffer filters"
    )
    return [Finding.error(key, message)]
