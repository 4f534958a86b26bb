"""What the estimators of several rewards need of a run, and the replay buffer that their words bring along."""

import pytest
from more_methods.multi_reward.replay_buffer import RewardParts

from tests.checks.validation import summary
from tests.conftest import composed
from tests.verl_plugin.test_group_metrics_buffer import FILTER, build
from verl_trgrpo.checks.check import check, own_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

ERROR, WARNING = Level.ERROR, Level.WARNING
ROLLOUT, LOSS = "actor_rollout_ref.rollout", "actor_rollout_ref.actor.policy_loss"
OVERLONG = "reward.reward_kwargs.overlong_buffer_cfg"
SAMPLER = "trainer.v1.sampler"
PENALTY = ("reward.reward_manager.name=dapo", f"+{OVERLONG}={{enable: true, len: 8, log: false}}")
# Overrides, the reported key, its level, and what else the message has to name.
CASES = [
    (["algorithm=gdpo", f"{SAMPLER}.sampler_kwargs.adv_estimator=null"], "algorithm.adv_estimator", ERROR, SAMPLER),
    (["algorithm=gdpo", f"{SAMPLER}.custom_sampler.path=mine.py"], "algorithm.adv_estimator", ERROR, SAMPLER),
    (["algorithm=constrained_grpo", "trainer.use_v1=false"], "algorithm.adv_estimator", ERROR, "v1 trainer"),
    (["algorithm=gdpo", f"{ROLLOUT}.n=1"], f"{ROLLOUT}.n", ERROR, "adv_estimator=tr_gdpo"),
    (["algorithm=constrained_grpo", "algorithm.constrained_grpo=null"], "algorithm.constrained_grpo", ERROR, "costs"),
    (["algorithm=gdpo", "algorithm.use_kl_in_reward=true"], "algorithm.use_kl_in_reward", ERROR, "use_kl_loss"),
    (["algorithm=gdpo", *PENALTY, "algorithm.gdpo_reward_keys=[acc,overlong_reward]"], f"{OVERLONG}.enable", ERROR, "log=true"),
    (["algorithm=constrained_grpo", "algorithm.filter_groups.enable=true"],
     "algorithm.filter_groups.enable", WARNING, "adv_estimator=constrained_grpo"),
    (["algorithm=constrained_grpo", "trainer.checkpoint_callback_class=null"],
     "trainer.checkpoint_callback_class", WARNING, "adv_estimator=constrained_grpo"),
    (["algorithm=constrained_grpo", "algorithm.adv_estimator=tr_grpo"], "algorithm.adv_estimator", WARNING, "remove algorithm."),
]  # fmt: skip
SOUND = [
    ["algorithm=gdpo"],
    ["algorithm=constrained_grpo", "algorithm.use_kl_in_reward=true", *PENALTY],
    ["algorithm=gdpo", "reward.reward_manager.name=dapo", f"+{OVERLONG}={{enable: true, len: 8, log: true}}",
     "algorithm.gdpo_reward_keys=[acc,overlong_reward]"],
    ["algorithm=gdpo", "trainer.checkpoint_callback_class=null"],
]  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "key", "level", "part"), CASES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_is_missing_is_reported(overrides, key, level, part):
    found = own_findings(RunView(composed(overrides)))
    assert summary(found) == [(key, level)]
    assert found[0].message.startswith(f"{key}=") and part in found[0].message


@pytest.mark.parametrize("overrides", SOUND, ids=" ".join)
def test_a_run_that_has_it_is_not(overrides):
    assert own_findings(RunView(composed(overrides))) == []


@pytest.mark.parametrize(
    ("overrides", "reported"),
    [
        (["algorithm=gdpo"], []),
        (["algorithm=constrained_grpo", "algorithm.constrained_grpo.costs=[{name: toxic, limit: 0}]"], []),
        (["algorithm=gdpo", "algorithm.gdpo_reward_keys=[]"], ["gdpo_reward_keys=[]"]),
        (["algorithm=constrained_grpo", "algorithm.constrained_grpo.lr=0"], ["lr=0"]),
        (["algorithm=gdpo", f"{ROLLOUT}.n=1"], ["adv_estimator=tr_gdpo compares"]),
    ],
)
def test_the_check_of_a_run_takes_these_words(sound_run, overrides, reported):
    errors = check(composed([*sound_run, *overrides])).messages(ERROR)
    assert len(errors) == len(reported) and all(part in message for part, message in zip(reported, errors, strict=True))


@pytest.mark.parametrize("word", ["gdpo", "constrained_grpo"])
@pytest.mark.parametrize("mode", ["sync", "separate_async"])
def test_the_buffer_is_the_project_s_with_what_the_word_adds(word, mode):
    """tests/cluster/test_all_algorithms.py draws batches from it."""
    buffer = build([f"algorithm={word}", *FILTER, "data.train_batch_size=64"], mode)
    assert isinstance(buffer, RewardParts) and buffer.filter_groups_metric == "reward" and buffer.poll_interval == 2.0
    given = buffer.sampler_kwargs
    assert given.adv_estimator == {"gdpo": "tr_gdpo"}.get(word, word)
    assert ("costs" in (given.get("constrained_grpo") or {})) is (word == "constrained_grpo")
    assert not isinstance(build(["algorithm=grpo"], mode), RewardParts)
