"""Trainers of veRL with GPUs of their own for the rollout: what they need, and the rules of others that hold there."""

from dataclasses import replace
from functools import cache

import pytest

from tests.checks import test_rules
from tests.checks.validation import summary
from verl_trgrpo.checks.apart import APART
from verl_trgrpo.checks.constructed import constructed_findings
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.settings import key_findings, type_findings
from verl_trgrpo.checks.sizes import LENGTHS, SIZES, micro_batch_findings, token_findings
from verl_trgrpo.checks.tables import full, rule_findings
from verl_trgrpo.checks.unread import unread_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.keys import flat
from verl_trgrpo.runs.readers import key_table
from verl_trgrpo.runs.trainers import other_trainer

ACTOR, ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout"))
MODULES = {
    "one_step": "verl.experimental.one_step_off_policy.main_ppo",
    "fully_async": "verl.experimental.fully_async_policy.fully_async_main",
}
# 4 GPUs that train, 4 of the rollout, and what the programs' own examples set.
SOUND = {
    "one_step": ["data.train_batch_size=64"],
    "fully_async": ["data.train_batch_size=0", "async_training.require_batches=2", "rollout.total_rollout_steps=512"],
}
SHARED = [
    "actor_rollout_ref.hybrid_engine=false", "trainer.n_gpus_per_node=4", "rollout.n_gpus_per_node=4", f"{ROLLOUT}.n=8",
    f"{ACTOR}.ppo_mini_batch_size=32", f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=true",
    f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.name=vllm", "algorithm.adv_estimator=grpo", "trainer.save_freq=5",
]  # fmt: skip


@cache
def view_of(name, *overrides):
    trainer = other_trainer(MODULES[name])
    source = trainer.folder / f"{trainer.config}.yaml"
    return RunView(replace(compose(source, [*SHARED, *SOUND[name], *overrides]), trainer=trainer), need_files=False)


def findings(view):
    tables = rule_findings(view, RULES | APART | SIZES | LENGTHS)
    own = [*key_findings(view), *type_findings(view), *unread_findings(view)]
    return [*tables, *own, *micro_batch_findings(view), *token_findings(view)]


@pytest.mark.parametrize("name", MODULES)
def test_a_sound_run_has_no_findings(name):
    assert findings(view_of(name)) == []
    assert name in {each for trainers in key_table()["unread"].values() for each in trainers}


PLANTS = [
    (f"{ACTOR}.optim.lr=1.0", f"{ACTOR}.optim.lr", Level.WARNING),
    (f"{ROLLOUT}.n=1", f"{ROLLOUT}.n", Level.ERROR),
    (f"{ROLLOUT}.max_model_len=512", f"{ROLLOUT}.max_model_len", Level.ERROR),
    (f"{ROLLOUT}.log_prob_use_dynamic_bsz=false", f"{ROLLOUT}.log_prob_use_dynamic_bsz", Level.ERROR),
    (f"{ACTOR}.ulysses_sequence_parallel_size=3", f"{ACTOR}.ulysses_sequence_parallel_size", Level.ERROR),
    (f"{ACTOR}.grad_clip=-1", f"{ACTOR}.grad_clip", Level.ERROR),
    ("+max_turns=4", "max_turns", Level.WARNING),
    ("actor_rollout_ref.hybrid_engine=true", "actor_rollout_ref.hybrid_engine", Level.ERROR),
    ("rollout.nnodes=0", "rollout.nnodes", Level.ERROR),
    ("rollout.n_gpus_per_node=0", "rollout.n_gpus_per_node", Level.ERROR),
    (f"{ROLLOUT}.tensor_model_parallel_size=8", f"{ROLLOUT}.tensor_model_parallel_size", Level.ERROR),
    (f"{ROLLOUT}.checkpoint_engine.backend=naive", f"{ROLLOUT}.checkpoint_engine.backend", Level.ERROR),
    (f"{ROLLOUT}.mode=sync", f"{ROLLOUT}.mode", Level.ERROR),
]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("plant", "where", "level"), PLANTS)
def test_a_planted_mistake_is_named(name, plant, where, level):
    assert (where, level) in summary(findings(view_of(name, plant)))


REFUSED = [
    "data.train_batch_size=64", "data.gen_batch_size=2", "async_training.staleness_threshold=-1",
    "async_training.trigger_parameter_sync_step=0", f"{ROLLOUT}.calculate_log_probs=false",
]  # fmt: skip


@pytest.mark.parametrize("plant", REFUSED)
def test_what_the_rollouter_of_the_fully_asynchronous_trainer_refuses_is_an_error(plant):
    assert (plant.partition("=")[0], Level.ERROR) in summary(findings(view_of("fully_async", plant)))


def test_verls_validation_of_sizes_is_asked_where_the_trainer_asks_it():
    """It wants batch sizes, of which the fully asynchronous trainer has none."""
    given = [
        "model_engine=megatron",
        *(f"{ACTOR}.{each}" for each in ("use_dynamic_bsz=false", "ppo_micro_batch_size_per_gpu=4")),
    ]
    assert constructed_findings(view_of("fully_async", *given)) == []
    [found] = constructed_findings(view_of("one_step", *given))
    assert found.level is Level.ERROR and "log_prob_micro_batch_size_per_gpu" in found.message


def test_a_reward_model_beside_the_fully_asynchronous_trainer_has_gpus_of_its_own():
    given = ["reward.reward_model.enable=true", "reward.reward_model.model_path=judge"]
    key = "reward.reward_model.enable_resource_pool"
    assert (key, Level.ERROR) in summary(findings(view_of("fully_async", *given)))
    assert (key, Level.ERROR) not in summary(findings(view_of("one_step", *given)))


def test_what_a_trainer_does_not_read_is_named_as_such():
    key = "algorithm.filter_groups.metric"
    [found] = [each for each in findings(view_of("one_step", f"{key}=acc")) if each.where == key]
    assert "one-step-off trainer" in found.message


@pytest.mark.parametrize("name", MODULES)
def test_rules_that_are_no_matter_of_the_trainer_hold(name, tiny_run):
    held, own = set(), flat(view_of(name).run.trainer.settings)
    shared = [f"++{key}={value}" for key, value in own.items() if key.startswith(("actor_rollout_ref.", "algorithm."))]
    shared = [each.replace("None", "null") for each in shared if "standalone" not in each]
    for row, (overrides, *_) in test_rules.CASES.items():
        rule, given = RULES[row], [each.replace("{train}", f"{tiny_run}/train.parquet") for each in overrides]
        try:
            stock = RunView(compose("ppo_trainer", [*shared, *given]))
            view = view_of(name, *given)
        except ValueError:  # the configurations of this package alone have the key
            continue
        if rule.holds(view) and not rule.v1 and rule.findings(stock):
            held.add(row)
            assert full(rule.key) in {each.where for each in rule.findings(view)}, row
    assert len(held) > 15
