"""Check what the estimators of several rewards need of a run."""

from __future__ import annotations

from typing import Any

from verl_trgrpo.checks.tables import Rule, rule_findings
from verl_trgrpo.common.findings import Finding, Level

_GDPO = "algorithm.adv_estimator == 'tr_gdpo'"
_CONSTRAINED = "algorithm.adv_estimator == 'constrained_grpo'"
_EITHER = "algorithm.adv_estimator in ('tr_gdpo', 'constrained_grpo')"
_BUFFER = "pkg://verl_trgrpo.experimental.multi_reward.replay_buffer"

_RULES = (
    Rule(
        "algorithm.adv_estimator",
        needs=_EITHER,
        otherwise="{algorithm.adv_estimator} reads neither rewards nor costs by name; remove it, or choose another algorithm=",
        asked="True",
        level=Level.WARNING,
    ),
    Rule(
        "algorithm.adv_estimator",
        needs=f"trainer.use_v1 and sampler.custom_sampler.path == {_BUFFER!r} and "
        "sampler.sampler_kwargs.adv_estimator == algorithm.adv_estimator",
        otherwise="reads the parts of the reward, which only its own replay buffer hands on, in veRL's v1 trainer; leave "
        "{trainer.use_v1}, {sampler.custom_sampler.path} and {sampler.sampler_kwargs.adv_estimator} as the algorithm's file has "
        "them",
        asked=_EITHER,
    ),
    Rule(
        "rollout.n",
        needs="rollout.n > 1",
        otherwise="{algorithm.adv_estimator} compares the responses of a group, and a group of one has none to compare; use 5 or "
        "more",
        asked=_EITHER,
    ),
    Rule(
        "algorithm.constrained_grpo",
        needs="algorithm.constrained_grpo",
        otherwise="{algorithm.adv_estimator} needs its costs; set algorithm.constrained_grpo.costs",
        asked=_CONSTRAINED,
    ),
    Rule(
        "algorithm.use_kl_in_reward",
        needs="algorithm.adv_estimator != 'tr_gdpo'",
        otherwise="has no effect with {algorithm.adv_estimator}, which takes the parts of the reward as they are; set "
        "actor_rollout_ref.actor.use_kl_loss instead",
    ),
    Rule(
        "overlong.enable",
        needs="manager.name != 'dapo' or overlong.log and 'overlong_reward' in (algorithm.gdpo_reward_keys or ())",
        otherwise="has no effect with {algorithm.adv_estimator}, which adds up {algorithm.gdpo_reward_keys} alone; add "
        "overlong_reward to them and set reward.reward_kwargs.overlong_buffer_cfg.log=true",
        asked=f"overlong.enable and {_GDPO}",
    ),
    Rule(
        "loss.nthr",
        needs=f"not ({_EITHER})",
        otherwise="does not find groups with {algorithm.adv_estimator}, which labels each response by its own key; "
        "remove it",
    ),
    Rule(
        "algorithm.filter_groups.enable",
        needs=f"not ({_EITHER})",
        otherwise="also drops groups that differ in other parts than {algorithm.filter_groups.metric}, and with "
        "{algorithm.adv_estimator} what is learned of rewards and costs is that of the groups which stay; set it to false",
        level=Level.WARNING,
    ),
    Rule(
        "trainer.checkpoint_callback_class",
        needs="trainer.checkpoint_callback_class",
        otherwise="a resumed run would forget what {algorithm.adv_estimator} has learned of past batches; set it as "
        "run_defaults.yaml does",
        asked=_CONSTRAINED,
        level=Level.WARNING,
    ),
)


def findings_of_run(view: Any) -> list[Finding]:
    """Check the settings of a run whose ``algorithm`` node is ``MultiRewardAlgoConfig``.

    Args:
        view: the run, whose settings have passed the checks of single values.
    """
    return rule_findings(view, _RULES)
