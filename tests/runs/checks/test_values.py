"""Values of the wrong type, out of range, or of no known name."""

import pytest

from verl_trgrpo.common.problems import Level
from verl_trgrpo.runs.checks.values import value_findings
from verl_trgrpo.runs.compose import compose, defaults_of

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def findings(*overrides, source="trgrpo_trainer"):
    run = compose(source, overrides)
    return value_findings(run.config, defaults_of(run.choices))


@pytest.mark.parametrize("source", ["trgrpo_trainer", "kk_quickstart", "small_lm", "search_demo"])
@pytest.mark.parametrize("platform", ["accelerator", "cpu", "cpu_bf16"])
def test_what_ships_has_no_complaint(source, platform):
    assert findings(f"platform={platform}", source=source)[0] == []


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        (f"{ACTOR}.optim.lr=abc", ["optim.lr='abc'", "not a number"]),
        (f"{ACTOR}.optim.lr=-1e-6", ["optim.lr=-1e-06", "out of range"]),
        (f"{ROLLOUT}.temperature=hot", ["temperature='hot'", "not a number"]),
        (f"{ROLLOUT}.gpu_memory_utilization=60", ["gpu_memory_utilization=60", "(0, 1]"]),
        ("trainer.logger=[console,wandbb]", ["wandbb", "wandb"]),
        ("trainer.logger=tensorbord", ["tensorbord", "tensorboard"]),
        ("trainer.total_epochs=0", ["total_epochs=0", "at least 1"]),
        ("trainer.total_training_steps=1.5", ["total_training_steps=1.5", "whole number"]),
        ("trainer.save_freq=x", ["save_freq='x'", "whole number"]),
        ("trainer.resume_mode=yes", ["resume_mode='yes'", "disable"]),
        ("data.truncation=both", ["truncation='both'", "error, left"]),
        ("algorithm.norm_adv_by_std_in_grpo=maybe", ["norm_adv_by_std_in_grpo='maybe'", "true or false"]),
        (f"{ACTOR}.use_kl_loss=1.5", ["use_kl_loss=1.5", "true or false"]),
        (f"{ACTOR}.entropy_coeff=none", ["entropy_coeff='none'", "a number"]),
        (f"{ACTOR}.optim=adam", ["optim='adam'", "a section"]),
        ("trainer.nnodes=0", ["nnodes=0", "at least 1"]),
        ("trainer.project_name=${data.nowhere}", ["project_name=${data.nowhere}", "cannot be resolved"]),
    ],
)
def test_a_wrong_value_is_an_error_with_value_and_remedy(override, parts):
    [finding], mended = findings(override)
    assert finding.level is Level.ERROR
    assert all(part in finding.message for part in parts), finding.message
    if not override.startswith("trainer.nnodes"):  # a size has no default that another run would share
        assert value_findings(mended, compose().config)[0] == []


def test_all_are_found_at_once():
    found, _ = findings(f"{ACTOR}.optim.lr=abc", "trainer.save_freq=x", f"{ROLLOUT}.top_p=2", "trainer.logger=[x]")
    assert [finding.where for finding in found] == [
        "trainer.save_freq", f"{ACTOR}.optim.lr", f"{ROLLOUT}.top_p", "trainer.logger",
    ]  # fmt: skip


def test_the_missing_engine_is_named_with_what_to_write():
    [finding], _ = findings("+algorithm=tr_grpo", source="ppo_trainer")
    assert finding.where == f"{ROLLOUT}.name" and "=vllm" in finding.message


@pytest.mark.parametrize(
    "override", [f"{ROLLOUT}.temperature=1", f"{ACTOR}.entropy_coeff=0", "trainer.logger=console", f"{ACTOR}.clip_ratio_c=5",
                 "trainer.max_actor_ckpt_to_keep=null", "trainer.experiment_name=2024", "+trainer.by_step={1:a,2:{3:b}}"],
)  # fmt: skip
def test_values_that_verl_takes_as_well(override):
    assert findings(override)[0] == []
