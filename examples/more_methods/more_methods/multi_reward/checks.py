"""Check what the estimators of several rewards need of a run."""

from __future__ import annotations

from typing import Any

from verl_trgrpo.checks.tables import Rule, rule_findings
from verl_trgrpo.common.findings import Finding, Level

_GDPO = "algorithm.adv_estimator == 'tr_gdpo'"
_CONSTRAINED = "algorithm.adv_estimator == 'constrained_grpo'"
_EITHER = "algorithm.adv_estimator in ('tr_gdpo', 'constrained_grpo')"
_BUFFER = "pkg://more_methods.multi_reward.replay_buffer"

_RULES = {
    "named_parts": Rule(
        "algorithm.adv_estimator", _EITHER,
        "reads neither rewards nor costs by name; use algorithm=gdpo or algorithm=constrained_grpo, or "
        "remove <algorithm._target_>", asked="True", level=Level.WARNING),
    "own_buffer": Rule(
        "algorithm.adv_estimator",
        f"trainer.use_v1 and sampler.custom_sampler.path == {_BUFFER!r} and "
        "sampler.sampler_kwargs.adv_estimator == algorithm.adv_estimator",
        "reads the parts of the reward, which only its own replay buffer hands on, in veRL's v1 trainer, not with "
        "{trainer.use_v1}, {sampler.custom_sampler.path} and {sampler.sampler_kwargs.adv_estimator}; set <trainer.use_v1>=true "
        f"<sampler.custom_sampler.path>={_BUFFER} <sampler.sampler_kwargs.adv_estimator>={{= algorithm.adv_estimator}}",
        asked=_EITHER),
    "group_of_one": Rule(
        "rollout.n", "rollout.n > 1",
        "{algorithm.adv_estimator} compares the responses of a group, and a group of one has none to compare; set <rollout.n>=5 "
        "or more", asked=_EITHER),
    "costs": Rule(
        "algorithm.constrained_grpo", "algorithm.constrained_grpo",
        "{algorithm.adv_estimator} needs its costs; set <algorithm.constrained_grpo.costs>", asked=_CONSTRAINED),
    "kl_in_reward": Rule(
        "algorithm.use_kl_in_reward", "algorithm.adv_estimator != 'tr_gdpo'",
        "has no effect with {algorithm.adv_estimator}, which takes the parts of the reward as they are; set "
        "<algorithm.use_kl_in_reward>=false <actor.use_kl_loss>=true"),
    "overlong_part": Rule(
        "overlong.enable",
        "manager.name != 'dapo' or overlong.log and 'overlong_reward' in (algorithm.gdpo_reward_keys or ())",
        "has no effect with {algorithm.adv_estimator}, which adds up {algorithm.gdpo_reward_keys} alone; set "
        "<overlong.log>=true, and add overlong_reward to <algorithm.gdpo_reward_keys>", asked=f"overlong.enable and {_GDPO}"),
    "filter_groups": Rule(
        "algorithm.filter_groups.enable", f"not ({_EITHER})",
        "also drops groups that differ in other parts than {algorithm.filter_groups.metric}, and with {algorithm.adv_estimator} "
        "what is learned of rewards and costs is that of the groups which stay; set <algorithm.filter_groups.enable>=false",
        level=Level.WARNING),
    "forgets": Rule(
        "trainer.checkpoint_callback_class", "trainer.checkpoint_callback_class",
        "a resumed run would forget what {algorithm.adv_estimator} has learned of past batches; set "
        "<trainer.checkpoint_callback_class>=verl_trgrpo.verl_plugin.estimator_state.EstimatorStateCallback",
        asked=_CONSTRAINED, level=Level.WARNING),
}  # fmt: skip


def findings_of_run(view: Any) -> list[Finding]:
    """Check the settings of a run whose ``algorithm`` node is ``MultiRewardAlgoConfig``.

    Args:
        view: the run, whose settings have passed the checks of single values.
    """
    return rule_findings(view, _RULES)
