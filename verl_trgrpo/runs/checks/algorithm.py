"""Whether a run still is what its algorithm's name says, and what veRL's estimators cannot do."""

from __future__ import annotations

from omegaconf import DictConfig

from verl_trgrpo.common.problems import Finding, error, warning
from verl_trgrpo.runs.compose import defaults_of, flat

# The algorithms that others are made from.
_BASES = ("grpo", "tr_grpo")


def algorithm_findings(config: DictConfig, algorithm: str | None) -> list[Finding]:
    """Complaints about the advantage estimator and about settings that make an algorithm another one again.

    `algorithm` is what was chosen of the group of that name, if anything was.
    """
    findings = _preference_findings(config) + _filter_findings(config)
    values = flat(config)
    own = flat(defaults_of({"algorithm": algorithm})) if algorithm else {}
    for base in reversed(_BASES):
        if not algorithm or algorithm == base:
            continue
        plain = flat(defaults_of({"algorithm": base}))
        for key, value in own.items():
            if key in plain and value != plain[key] and values.get(key) == plain[key]:
                message = (
                    f"algorithm={algorithm} means {key}={value}, but the run has {plain[key]}, as {base} has; drop the "
                    f"setting, or choose algorithm={base}"
                )
                findings.append(warning(key, message))
    return list({finding.where: finding for finding in findings}.values())  # of grpo, where both have it


def _preference_findings(config: DictConfig) -> list[Finding]:
    """``use_pf_ppo`` draws rows anew; veRL's v1 trainer writes their advantages back in the order before (veRL #7956)."""
    key = "algorithm.use_pf_ppo"
    if not config.algorithm.get("use_pf_ppo", False):
        return []
    if config.algorithm.adv_estimator != "gae":
        message = (
            f"{key}=true has no effect with algorithm.adv_estimator={config.algorithm.adv_estimator}, only with gae"
        )
        return [warning(key, message)]
    if not config.trainer.use_v1:
        return []
    message = (
        f"{key}=true: veRL's trainer draws rows anew and gives their advantages to other responses (veRL issue 7956); set "
        "it to false"
    )
    return [error(key, message)]


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
    return [error(key, message)]
