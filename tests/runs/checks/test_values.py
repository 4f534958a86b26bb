"""Values of the wrong type, out of range, or of no known name."""

import pytest

from tests.runs.validation import validate
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.values import value_findings
from verl_trgrpo.runs.compose import compose, defaults_of

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def findings(*overrides, source="trgrpo_trainer"):
    run = compose(source, overrides)
    return value_findings(run.config, defaults_of(run.choices))


@pytest.mark.parametrize("source", ["trgrpo_trainer", "kk_quickstart", "small_lm", "small_lm_puzzles", "search_demo"])
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
        (f"{ROLLOUT}.max_model_len=x", ["max_model_len='x'", "a whole number or null"]),
        (f"{ACTOR}.optim.betas=0.9", ["betas=0.9", "a list of 2 values, each a number"]),
        (f"{ACTOR}.optim.betas=[0.9]", ["betas=[0.9]", "2 values"]),
        (f"{ACTOR}.fsdp_config.fsdp_size=x", ["fsdp_size='x'", "a whole number"]),
        (f"{ROLLOUT}.engine_kwargs=5", ["engine_kwargs=5", "a section"]),
        ("critic.enable=maybe", ["enable='maybe'", "true or false or null"]),
        ("trainer.val_before_train=null", ["val_before_train=null", "default is true"]),
        ("actor_rollout_ref.model.override_config=null", ["override_config=null", "a section"]),
        ("data.seed=x", ["seed='x'", "whole number"]),
        ("reward.custom_reward_function.path=5", ["path=5", "a text or null"]),
        ("data.val_batch_size=1.5", ["val_batch_size=1.5", "whole number"]),
        ("data.gen_batch_size=x", ["gen_batch_size='x'", "whole number"]),
        ("data.dataloader_num_workers=-1", ["num_workers=-1", "at least 0"]),
        ("ray_kwargs.ray_init.num_cpus=x", ["num_cpus='x'", "whole number"]),
        ("actor_rollout_ref.model.lora_rank=-1", ["lora_rank=-1", "at least 0"]),
        (f"{ROLLOUT}.top_k=-2", ["top_k=-2", "at least -1"]),
        ("reward.num_workers=0", ["num_workers=0", "at least 1"]),
        ("trainer.save_freq=???", ["save_freq has no value", "-1"]),
        (f"{ROLLOUT}.name=vlm", ["name='vlm'", "did you mean vllm?"]),
        (f"{ROLLOUT}.mode=asynch", ["mode='asynch'", "did you mean async?"]),
        (f"{ROLLOUT}.dtype=bf16", ["dtype='bf16'", "bfloat16"]),
        (f"{ACTOR}.strategy=fdsp", ["strategy='fdsp'", "did you mean fsdp?"]),
        ("trainer.device=gpu", ["device='gpu'", "choose one of cuda"]),
        ("trainer.v1.trainer_mode=colocated", ["trainer_mode='colocated'", "colocate_async"]),
        (f"{ACTOR}.optim.optimizer=AdmW", ["optimizer='AdmW'", "did you mean AdamW?"]),
        (f"{ACTOR}.optim.lr_scheduler_type=cosin", ["lr_scheduler_type='cosin'", "did you mean cosine?"]),
        (f"{ACTOR}.checkpoint.save_contents=[model,optim]", ["save_contents has 'optim'", "optimizer"]),
        ("algorithm.kl_ctrl.type=adaptiv", ["type='adaptiv'", "did you mean adaptive?"]),
        ("reward.reward_manager.name=naiv", ["name='naiv'", "did you mean naive?"]),
        ("trainer.project_name=[a,b]", ["project_name=['a', 'b']", "a text"]),
        ("trainer.experiment_name=[x]", ["experiment_name=['x']", "a text"]),
        ("data.prompt_key=[a]", ["prompt_key=['a']", "a text"]),
        (f"{ROLLOUT}.temperature=0", ["temperature=0", "(0, inf)"]),
        (f"{ACTOR}.optim.clip_grad=-1", ["clip_grad=-1", "(0, inf)"]),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu=0", ["ppo_micro_batch_size_per_gpu=0", "at least 1"]),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=0", ["log_prob_micro_batch_size_per_gpu=0", "at least 1"]),
        (f"{ACTOR}.loss_agg_mode=token_mean", ["loss_agg_mode='token_mean'", "did you mean token-mean?"]),
        ("trainer.nnodes=0", ["nnodes=0", "at least 1"]),
        ("trainer.project_name=${data.nowhere}", ["project_name=${data.nowhere}", "cannot be resolved"]),
    ],
)
def test_a_wrong_value_is_an_error_with_value_and_remedy(override, parts):
    [finding], mended = findings(override)
    assert finding.level is Level.ERROR
    assert all(part in finding.message for part in parts), finding.message
    assert value_findings(mended, compose().config)[0] == []


def test_all_are_found_at_once():
    found, _ = findings(f"{ACTOR}.optim.lr=abc", "trainer.save_freq=x", f"{ROLLOUT}.top_p=2", "trainer.logger=[x]")
    assert [finding.where for finding in found] == [
        "trainer.save_freq", f"{ACTOR}.optim.lr", f"{ROLLOUT}.top_p", "trainer.logger",
    ]  # fmt: skip


def test_a_constant_of_this_package_is_not_called_verl_s():
    [finding], _ = findings(f"{ACTOR}.policy_loss.shaping.tau=[a]")
    assert "default is 9.0" in finding.message and "veRL" not in finding.message


def test_a_wrong_micro_batch_size_is_one_mistake_where_batches_are_not_cut_by_tokens(sound_run):
    overrides = [*sound_run, f"{ACTOR}.use_dynamic_bsz=false", f"{ACTOR}.ppo_micro_batch_size_per_gpu=0"]
    [problem] = validate("trgrpo_trainer", overrides).messages(Level.ERROR)
    assert "ppo_micro_batch_size_per_gpu=0" in problem


def test_the_missing_engine_is_named_with_what_to_write():
    [finding], _ = findings("+algorithm=tr_grpo", source="ppo_trainer")
    assert finding.where == f"{ROLLOUT}.name" and "=vllm" in finding.message


@pytest.mark.parametrize(
    "override", [f"{ROLLOUT}.temperature=1", f"{ACTOR}.entropy_coeff=0", "trainer.logger=console", f"{ACTOR}.clip_ratio_c=5",
                 "trainer.max_actor_ckpt_to_keep=null", "trainer.experiment_name=2024", "+trainer.by_step={1:a,2:{3:b}}",
                 "trainer.logger=tracking", "data.seed=-1", f"{ROLLOUT}.top_k=0", f"{ACTOR}.optim.betas=[0.9,1]",
                 f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.clip_ratio_high=null", f"{ACTOR}.optim.lr_warmup_steps=null",
                 "actor_rollout_ref.model.exclude_modules=[a,b]", "actor_rollout_ref.model.target_modules=[a,b]",
                 "algorithm.rollout_correction=null", f"{ROLLOUT}.val_kwargs.temperature=0",
                 f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", f"{ACTOR}.loss_agg_mode=token-sum", "trainer.project_name=1",
                 f"{ACTOR}.optim.optimizer_impl=nowhere.optim"],
)  # fmt: skip
def test_values_that_verl_takes_as_well(override):
    assert findings(override)[0] == []
