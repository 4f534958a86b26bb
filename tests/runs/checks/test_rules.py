"""One case for each row of the table of rules between settings."""

import pytest

from tests.conftest import composed
from tests.runs.validation import summary
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.rules import RULES, rule_findings

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ERROR, WARNING = Level.ERROR, Level.WARNING
# Overrides, the reported key, its level, and what else the message has to name; in the order of the table.
CASES = (
    (["algorithm.use_pf_ppo=true"], "algorithm.use_pf_ppo", WARNING, "adv_estimator=grpo"),
    (["algorithm.use_pf_ppo=true", "algorithm.adv_estimator=gae"], "algorithm.use_pf_ppo", ERROR, "7956"),
    (
        ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"],
        "algorithm.use_kl_in_reward", WARNING, f"{ACTOR}.use_kl_loss=true",
    ),
    ([f"{ACTOR}.policy_loss.kl=scaled"], f"{ACTOR}.policy_loss.kl", WARNING, "use_kl_loss=false"),
    ([f"{ACTOR}.policy_loss.kl=literal", f"{ACTOR}.use_kl_loss=true"], f"{ACTOR}.policy_loss.kl", WARNING, "literal"),
    ([f"{ROLLOUT}.n=1"], f"{ROLLOUT}.n", ERROR, "adv_estimator=grpo"),
    ([f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=false"],
     f"{ROLLOUT}.log_prob_use_dynamic_bsz", ERROR, "use_dynamic_bsz=true"),
    (
        [f"{ACTOR}.ulysses_sequence_parallel_size=2", "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"],
        f"{ACTOR}.ulysses_sequence_parallel_size", ERROR, "attn_implementation=sdpa",
    ),
    ([f"{ACTOR}.optim.lr=0.02"], f"{ACTOR}.optim.lr", WARNING, "0.02"),
    (["reward.reward_manager.source=register"], "reward.reward_manager.name", WARNING, "source=register"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "case"), list(zip(RULES, CASES, strict=True)), ids=lambda each: getattr(each, "key", "")
)
def test_a_setting_without_what_it_needs_is_reported(rule, case):
    overrides, key, level, part = case
    config = composed(overrides).config
    found = rule_findings(config)
    assert summary(found) == [(key, level)] and rule.key == key
    assert found[0].message.startswith(f"{key}=") and part in found[0].message and "{" not in found[0].message


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["algorithm.use_pf_ppo=true", "algorithm.adv_estimator=gae", "trainer.use_v1=false"],
        ["+algorithm.filter_groups={enable: true}"],
        [f"{ACTOR}.policy_loss.kl=scaled", f"{ACTOR}.use_kl_loss=true"],
        [f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.optim.lr=1"],
        ["reward.reward_manager.name=dapo"],
        ["reward.reward_manager.source=register", "reward.custom_reward_function.path=mine.py"],
    ],
)
def test_settings_that_have_what_they_need_are_not(overrides):
    assert rule_findings(composed(overrides).config) == []
