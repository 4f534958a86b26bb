"""Values of the wrong type or out of range."""

from pathlib import Path

import pytest

from tests.conftest import composed
from verl_trgrpo.checks.settings import type_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import verl_defaults
from verl_trgrpo.runs.keys import flat, selected

EXAMPLES = Path(__file__).parents[2] / "examples"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def findings(overrides, source="trgrpo_trainer"):
    return type_findings(RunView(composed(overrides, source)))


@pytest.mark.parametrize(("source", "platform"), [("search_demo.yaml", "accelerator"), ("small_lm.yaml", "cpu_bf16")])
def test_what_ships_has_no_findings(source, platform):
    """The other configurations are validated as a whole by tests/recipes/test_recipes.py."""
    assert findings([f"platform={platform}"], EXAMPLES / source) == []


WRONG = {
    f"{ACTOR}.optim.lr": "abc", f"{ACTOR}.optim.weight_decay": "-1e-6", f"{ROLLOUT}.temperature": "0",
    f"{ROLLOUT}.gpu_memory_utilization": "60", "trainer.total_epochs": "0", "trainer.total_training_steps": "1.5",
    "trainer.save_freq": "x", "trainer.nnodes": "0",
    "algorithm.norm_adv_by_std_in_grpo": "maybe", f"{ACTOR}.use_kl_loss": "1.5", f"{ACTOR}.entropy_coeff": "none",
    f"{ROLLOUT}.max_model_len": "x", f"{ACTOR}.optim.betas": "[0.9]", f"{ACTOR}.fsdp_config.fsdp_size": "x",
    "critic.enable": "maybe", "trainer.val_before_train": "null",
    "actor_rollout_ref.model.override_config": "null", "data.seed": "x", "reward.custom_reward_function.path": "5",
    "data.val_batch_size": "1.5", "data.gen_batch_size": "x", "data.dataloader_num_workers": "-1",
    "ray_kwargs.ray_init.num_cpus": "x", "actor_rollout_ref.model.lora_rank": "-1", f"{ROLLOUT}.top_k": "-2",
    "reward.num_workers": "0", "trainer.test_freq": "???",
    "trainer.project_name": "[a,b]",
    "trainer.experiment_name": "${data.nowhere}", f"{ACTOR}.optim.clip_grad": "-1", f"{ACTOR}.policy_loss.placement": "[a]",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "0", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "0",
    "actor_rollout_ref.model.path": "null", "trainer.default_local_dir": "''", "data.prompt_key": "null",
    "data.train_files": "5", "data.val_files": "[5,null]", f"{ROLLOUT}.top_p": ".nan", f"{ROLLOUT}.n": "true",
    # Numbers that later checks, and veRL, calculate with.
    "trainer.critic_warmup": "null", "algorithm.filter_groups.max_num_gen_batches": "null",
    f"{ACTOR}.ppo_max_token_len_per_gpu": "null", f"{ROLLOUT}.log_prob_max_token_len_per_gpu": "null",
    f"{ACTOR}.ulysses_sequence_parallel_size": "null",
    # Numbers that mean nothing, and that a remedy must not repeat.
    f"{ACTOR}.clip_ratio": "-0.2", "algorithm.kl_ctrl.horizon": "0", "algorithm.kl_ctrl.kl_coef": "-1",
    "trainer.max_actor_ckpt_to_keep": "-2", "algorithm.kl_ctrl.target_kl": "-1",  # veRL divides by it
}  # fmt: skip


def test_all_wrong_values_are_errors_at_once():
    found = {finding.where: finding for finding in findings([f"{key}={value}" for key, value in WRONG.items()])}
    assert found.keys() == WRONG.keys()
    for key, finding in found.items():
        assert finding.level is Level.ERROR and finding.message.startswith(f"{key}=")


def numbers_of_verl() -> list[tuple[str, bool]]:
    """Return the keys of veRL that have a number by default, and whether it is an integer."""
    known = {key: selected(verl_defaults(), key) for key in flat(verl_defaults())}
    kinds = {key: type(value) for key, value in known.items() if type(value) in (int, float)}
    return [(key, kind is int) for key, kind in kinds.items() if selected(composed([]).config, key) is not None]


def test_no_integer_of_verls_is_below_minus_one_and_no_number_is_nan():
    """-1 is veRL's word for all, or for none; a comparison with nan is false on both sides."""
    numbers = numbers_of_verl()
    assert len(numbers) > 100
    for value, keys in {
        "-7": [key for key, is_int in numbers if is_int],
        "nan": [key for key, _ in numbers],
    }.items():
        found = findings([f"++{key}={value}" for key in keys])
        assert {each.where for each in found} == set(keys)


def test_the_message_has_value_reason_and_default():
    [finding] = findings(["data.train_batch_size=0"])
    assert "data.train_batch_size=0: " in finding.message and "1024" in finding.message


def test_all_values_that_verl_takes_as_well_are_right():
    right = [
        f"{ROLLOUT}.temperature=1", f"{ACTOR}.entropy_coeff=0", "trainer.logger=tracking", f"{ACTOR}.clip_ratio_c=5",
        "trainer.max_actor_ckpt_to_keep=0", "trainer.experiment_name=2024", "+trainer.by_step={1:a,2:{3:b}}",
        "data.seed=-1", f"{ROLLOUT}.top_k=0", f"{ACTOR}.optim.betas=[0.9,1]", f"{ACTOR}.optim.optimizer=SGD",
        f"{ACTOR}.clip_ratio_high=null", f"{ACTOR}.optim.lr_warmup_steps=null", "data.train_files=[a,b]",
        "actor_rollout_ref.model.exclude_modules=[a,b]", "actor_rollout_ref.model.target_modules=[a,b]",
        f"{ROLLOUT}.val_kwargs.temperature=0", f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", "trainer.project_name=1",
        f"{ACTOR}.loss_agg_mode=token-sum", f"{ACTOR}.optim.optimizer_impl=nowhere.optim", "critic.enable=null",
        "trainer.total_training_steps=${trainer.total_epochs}", "distillation.distillation_loss.loss_mode=k1",
    ]  # fmt: skip
    assert findings(right) == []


def test_the_engine_that_stock_verl_leaves_open_must_be_given():
    [finding] = findings(["+algorithm=tr_grpo"], "ppo_trainer")
    assert finding.where == f"{ROLLOUT}.name" and "vllm" in finding.message


@pytest.mark.parametrize("source", ["trgrpo_trainer", "ppo_trainer"])
def test_the_default_that_a_message_names_is_verls(source):
    [finding] = [each for each in findings([f"{ROLLOUT}.n=five"], source) if each.where == f"{ROLLOUT}.n"]
    assert finding.message.endswith(f"veRL's default is {verl_defaults().actor_rollout_ref.rollout.n}")
