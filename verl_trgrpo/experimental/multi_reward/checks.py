"""Check what the estimators of several rewards need of a run."""

from __future__ import annotations

from typing import Any

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.keys import ACTOR, LOSS, MANAGER, OVERLONG, ROLLOUT

_SAMPLER = "trainer.v1.sampler"


def findings_of_run(view: Any) -> list[Finding]:
    """Check the settings of a run whose ``algorithm`` node is ``MultiRewardAlgoConfig``.

    Args:
        view: the run, whose settings have passed the checks of single values; ``view[key]`` is the value of a dotted key.
    """
    estimator = view["algorithm.adv_estimator"]
    named = f"algorithm.adv_estimator={estimator}"
    if estimator not in ("tr_gdpo", "constrained_grpo"):
        message = f"{named}: reads neither rewards nor costs by name; remove it, or choose another algorithm="
        return [Finding.warning("algorithm.adv_estimator", message)]
    gdpo, metric = estimator == "tr_gdpo", "algorithm.filter_groups.metric"
    errors = {
        "algorithm.adv_estimator": not _gets_parts(view)
        and "reads the parts of the reward, which only its own replay buffer hands on, in veRL's v1 trainer; leave "
        f"{_SAMPLER}.custom_sampler and {_SAMPLER}.sampler_kwargs.adv_estimator as the algorithm's file has them",
        f"{ROLLOUT}.n": view[f"{ROLLOUT}.n"] == 1
        and f"{named} compares the responses of a group, and a group of one has none to compare; use 5 or more",
        "algorithm.constrained_grpo": not gdpo
        and not view["algorithm.constrained_grpo"]
        and f"{named} needs its costs; set algorithm.constrained_grpo.costs",
        "algorithm.use_kl_in_reward": gdpo
        and view["algorithm.use_kl_in_reward"]
        and f"has no effect with {named}, which takes the parts of the reward as they are; set {ACTOR}.use_kl_loss instead",
        f"{OVERLONG}.enable": gdpo
        and _penalizes_overlong(view)
        and f"has no effect with {named}, which adds up algorithm.gdpo_reward_keys alone; add overlong_reward to them and set "
        f"{OVERLONG}.log=true",
        f"{LOSS}.nthr": view[f"{LOSS}.nthr"]
        and f"does not find the groups of responses with {named}, which labels each response by its own key; remove it",
    }
    warnings = {
        "algorithm.filter_groups.enable": view["algorithm.filter_groups.enable"]
        and f"also drops groups that differ in other parts than {metric}={view[metric]}, and with {named} what is learned of "
        "rewards and costs is that of the groups which stay; set it to false",
        "trainer.checkpoint_callback_class": not gdpo
        and not view["trainer.checkpoint_callback_class"]
        and f"a resumed run would forget what {named} has learned of past batches; set it as run_defaults.yaml does",
    }
    return [
        make(key, f"{key}={as_plain_yaml(view[key])}: {message}")
        for make, found in ((Finding.error, errors), (Finding.warning, warnings))
        for key, message in found.items()
        if message
    ]


def _gets_parts(view: Any) -> bool:
    """Return whether the run's replay buffer hands the parts of the reward to the estimator."""
    sampler = str(view[f"{_SAMPLER}.custom_sampler.path"])
    asked = view[f"{_SAMPLER}.sampler_kwargs.adv_estimator"] == view["algorithm.adv_estimator"]
    return bool(view["trainer.use_v1"]) and sampler.endswith("multi_reward.replay_buffer") and asked


def _penalizes_overlong(view: Any) -> bool:
    """Return whether DAPO's penalty for overlong responses is in the score, and not among the rewards that GDPO adds up."""
    if view[f"{MANAGER}.name"] != "dapo" or not view[f"{OVERLONG}.enable"]:
        return False
    return not (view[f"{OVERLONG}.log"] and "overlong_reward" in (view["algorithm.gdpo_reward_keys"] or ()))
