"""One case for each row of the table of rules between settings."""

import inspect
import itertools
import re

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer import main_ppo_v0
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

from tests.checks.validation import already_set, summary
from tests.conftest import composed
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.tables import full, rule_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
ERROR, WARNING = Level.ERROR, Level.WARNING
CORRECTION, VALIDATION = "algorithm.rollout_correction", f"{ROLLOUT}.val_kwargs"
OVERLONG = "reward.reward_kwargs.overlong_buffer_cfg"
DAPO = ("reward.reward_manager.name=dapo",)
HA_DW = ("algorithm=ha_dw", "trainer.use_v1=false")
FILTER = ("algorithm.filter_groups.enable=true",)
SEPARATE = ("trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=2",
            "data.train_batch_size=64", f"{ACTOR}.ppo_mini_batch_size=32", f"{ROLLOUT}.nnodes=1",
            f"{ROLLOUT}.n_gpus_per_node=1", f"{ROLLOUT}.checkpoint_engine.backend=nccl",
            f"{CORRECTION}.rollout_is=token")  # fmt: skip
# Overrides, the reported key, its level, and what else the message has to name; by the name of the rule.
CASES = {
    "pf_ppo_without_critic": (["algorithm.use_pf_ppo=true"], "algorithm.use_pf_ppo", WARNING, "adv_estimator=grpo"),
    "pf_ppo_with_critic": (["algorithm.use_pf_ppo=true", "algorithm.adv_estimator=gae"], "algorithm.use_pf_ppo", ERROR, "7956"),
    "kl_twice": (
        ["algorithm.use_kl_in_reward=true", f"{ACTOR}.use_kl_loss=true"],
        "algorithm.use_kl_in_reward", WARNING, f"{ACTOR}.use_kl_loss=true",
    ),
    "kl_form_without_kl": ([f"{ACTOR}.policy_loss.kl=scaled"], f"{ACTOR}.policy_loss.kl", WARNING, "use_kl_loss=false"),
    "kl_literal":
        ([f"{ACTOR}.policy_loss.kl=literal", f"{ACTOR}.use_kl_loss=true"], f"{ACTOR}.policy_loss.kl", WARNING, "literal"),
    "temperature_of_weights": ([f"{ROLLOUT}.temperature=0.5"], f"{ROLLOUT}.temperature", WARNING, "token weights"),
    "remax_on_v1":
        (["algorithm.adv_estimator=remax"], "algorithm.adv_estimator", ERROR,
         "algorithm=rloo in its place, or set trainer.use_v1=false"),
    "gdpo_on_v1": (["algorithm.adv_estimator=gdpo"],
     "algorithm.adv_estimator", ERROR, "algorithm=gdpo of examples/more_methods in its place, or set trainer.use_v1=false"),
    "otb_on_v1": (["algorithm.adv_estimator=optimal_token_baseline"],
     "algorithm.adv_estimator", ERROR, "in its place, or set trainer.use_v1=false"),
    "tir_otb_on_v1": (["algorithm.adv_estimator=tir_optimal_token_baseline"],
     "algorithm.adv_estimator", ERROR, "in its place, or set trainer.use_v1=false"),
    "geo_mean_dynamic_batches": (
        ["algorithm=gmpo", f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=true",
         f"{ACTOR}.ppo_micro_batch_size_per_gpu=2048"],
        f"{ACTOR}.policy_loss.loss_mode", WARNING, "use_dynamic_bsz=false",
    ),
    "geo_mean_micro_batches": (["algorithm=gmpo", f"{ACTOR}.ppo_micro_batch_size_per_gpu=2"],
     f"{ACTOR}.policy_loss.loss_mode", WARNING, "ppo_micro_batch_size_per_gpu"),
    "dro_without_penalty":
        (["algorithm=dro", f"{ACTOR}.policy_loss.dro_beta=null"], f"{ACTOR}.policy_loss.loss_mode", ERROR, "dro_beta"),
    "group_of_one": ([f"{ROLLOUT}.n=1"], f"{ROLLOUT}.n", ERROR, "adv_estimator=grpo"),
    "coefficient_beside_a_ratio": (
        ["algorithm=grpo", "shaping=topr"], f"{ACTOR}.policy_loss.shaping.name", ERROR, "loss_mode=vanilla",
    ),
    "dynamic_batches_differ": ([f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=false"],
     f"{ROLLOUT}.log_prob_use_dynamic_bsz", ERROR, "use_dynamic_bsz=true"),
    "padded_micro_batches": (
        [f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=true", "trainer.device=cuda",
         "actor_rollout_ref.model.use_remove_padding=false"],
        f"{ACTOR}.use_dynamic_bsz", WARNING, "ppo_micro_batch_size_per_gpu=1",
    ),
    "loads_what_is_not_saved": (
        ["trainer.save_freq=1", f"{ACTOR}.checkpoint.save_contents=[model]",
         f"{ACTOR}.checkpoint.load_contents=[model,optimizer]"],
        f"{ACTOR}.checkpoint.load_contents", ERROR, "load_contents=[model],",
    ),
    "critic_loads_what_is_not_saved": (
        ["algorithm.adv_estimator=gae", "trainer.save_freq=1", "critic.checkpoint.save_contents=[model]",
         "critic.checkpoint.load_contents=[extra]"],
        "critic.checkpoint.load_contents", ERROR, "load_contents=[model],",
    ),
    "attention_of_parts": (
        [f"{ACTOR}.ulysses_sequence_parallel_size=2", "+actor_rollout_ref.model.override_config.attn_implementation=sdpa"],
        f"{ACTOR}.ulysses_sequence_parallel_size", ERROR, "attn_implementation=sdpa",
    ),
    "large_lr": ([f"{ACTOR}.optim.lr=0.02"], f"{ACTOR}.optim.lr", WARNING, "0.02"),
    "manager_without_prompts":
        (["reward.reward_manager.source=register"], "reward.reward_manager.name", WARNING, "source=register"),
    "importance_not_corrected": ([f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.bypass_mode=true"],
     f"{CORRECTION}.rollout_is", WARNING, "bypass_mode=true"),
    "rejection_not_corrected": (
        [f"{CORRECTION}.rollout_rs=token_k1", f"{CORRECTION}.rollout_rs_threshold=2.0", f"{ROLLOUT}.calculate_log_probs=false"],
     f"{CORRECTION}.rollout_rs", WARNING, "calculate_log_probs=false"),
    "importance_without_threshold": ([f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.rollout_is_threshold=null"],
     f"{CORRECTION}.rollout_is", WARNING, "rollout_is_threshold=null"),
    "rejection_without_threshold":
        ([f"{CORRECTION}.rollout_rs=token_k1"], f"{CORRECTION}.rollout_rs", ERROR, "rollout_rs_threshold=null"),
    "correction_of_another_loss": ([f"{CORRECTION}.loss_type=reinforce", f"{CORRECTION}.bypass_mode=true"],
     f"{CORRECTION}.loss_type", WARNING, "loss_mode=tr_grpo"),
    "bypass_without_log_probs": ([f"{CORRECTION}.bypass_mode=true", f"{ROLLOUT}.calculate_log_probs=false"],
     f"{CORRECTION}.bypass_mode", ERROR, "calculate_log_probs=false"),
    "ray_with_fewer_gpus": (["+ray_kwargs.ray_init.num_gpus=4", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"],
     "ray_kwargs.ray_init.num_gpus", ERROR, "trainer.nnodes=2"),
    "file_logger_without_name": (["trainer.logger=[console,file]", "trainer.project_name=null"],
     "trainer.logger", ERROR, "project_name=null"),
    "open_dashboard": (
        ["+ray_kwargs.ray_init.dashboard_host=0.0.0.0"],
        "ray_kwargs.ray_init.dashboard_host", WARNING, "open to other machines",
    ),
    "async_save": ([f"{ACTOR}.checkpoint.async_save=true"], f"{ACTOR}.checkpoint.async_save", WARNING, "strategy=fsdp"),
    "val_only_trains":
        (["trainer.val_only=true", "trainer.val_before_train=false"], "trainer.val_only", ERROR, "val_before_train=false"),
    "warmup_of_no_critic": (["trainer.critic_warmup=20"], "trainer.critic_warmup", ERROR, "20"),
    "greedy_sampling": ([f"{VALIDATION}.do_sample=true"], f"{VALIDATION}.do_sample", WARNING, "temperature=0"),
    "temperature_without_sampling": ([f"{VALIDATION}.temperature=0.6"], f"{VALIDATION}.temperature", WARNING, "do_sample=false"),
    "equal_validation_responses": ([f"{VALIDATION}.n=4"], f"{VALIDATION}.n", WARNING, "temperature=0"),
    "multi_turn_in_one_turn": ([f"{ROLLOUT}.multi_turn.enable=true", "data.train_files={train}", "data.val_files={train}"],
     f"{ROLLOUT}.multi_turn.enable", WARNING, "default_agent_loop=single_turn_agent"),
    "overlong_of_another_manager":
        ([f"+{OVERLONG}={{enable: true, len: 8}}"], f"{OVERLONG}.enable", WARNING, "reward.reward_manager.name=naive"),
    "overlong_without_longest":
        ([*DAPO, f"+{OVERLONG}={{enable: true, len: 8}}"], f"{OVERLONG}.enable", ERROR, "max_resp_len=512"),
    "overlong_length": ([*DAPO, f"+{OVERLONG}={{enable: true, len: 600}}", "+reward.reward_kwargs.max_resp_len=512"],
     f"{OVERLONG}.len", ERROR, "max_resp_len=512"),
    "overlong_never_reached": ([*DAPO, f"+{OVERLONG}={{enable: true, len: 8}}", "+reward.reward_kwargs.max_resp_len=1024"],
     "reward.reward_kwargs.max_resp_len", WARNING, "max_response_length=512"),
    "sum_norm_of_micro_batches":
        ([f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"], f"{ACTOR}.loss_agg_mode", WARNING, "loss_scale_factor=null"),
    "micro_batch_of_all_gpus":
        ([f"{ACTOR}.ppo_micro_batch_size=8", "trainer.n_gpus_per_node=4"],
         f"{ACTOR}.ppo_micro_batch_size", ERROR, "ppo_micro_batch_size_per_gpu=2,"),
    "log_prob_batch_of_all_gpus": ([f"{ROLLOUT}.log_prob_micro_batch_size=8", "trainer.n_gpus_per_node=16"],
     f"{ROLLOUT}.log_prob_micro_batch_size", ERROR, "log_prob_micro_batch_size_per_gpu=1,"),
    "ref_log_prob_batch_of_all_gpus":
        ([f"{ACTOR}.use_kl_loss=true", "actor_rollout_ref.ref.log_prob_micro_batch_size=8", "trainer.n_gpus_per_node=4"],
         "actor_rollout_ref.ref.log_prob_micro_batch_size", ERROR, "log_prob_micro_batch_size_per_gpu=2,"),
    "filter_without_end": ([*FILTER, "algorithm.filter_groups.max_num_gen_batches=10"],
     "algorithm.filter_groups.max_num_gen_batches", WARNING, "max_inflight_gen_batches"),
    "filter_metric":
        ([*FILTER, "algorithm.filter_groups.metric=seq_final_reward", "data.train_files={train}", "data.val_files={train}"],
     "algorithm.filter_groups.metric", ERROR, "reward, score, acc"),
    "filter_with_reward_model": ([*FILTER, "reward.reward_model.enable=true", "reward.reward_model.model_path=/m"],
     "algorithm.filter_groups.enable", ERROR, "enable_resource_pool=true"),
    "gen_batch_of_filter": ([*FILTER, "+data.gen_batch_size=96"], "data.gen_batch_size", WARNING, "enable=true"),
    "filter_not_in_buffer": (["algorithm.filter_groups.enable=true", "trainer.v1.sampler.sampler_kwargs.filter_groups=null"],
     "algorithm.filter_groups.enable", ERROR, "sampler_kwargs"),
    "ha_dw_forgets": (["algorithm=ha_dw", "trainer.checkpoint_callback_class=null"],
     "trainer.checkpoint_callback_class", WARNING, "adv_estimator=ha_dw"),
    "ha_dw_on_older_trainer": ([*HA_DW, "trainer.save_freq=5"], "trainer.use_v1", ERROR, "adv_estimator=ha_dw"),
    "gen_batch_divides":
        (["+data.gen_batch_size=96", "data.train_batch_size=64"], "data.gen_batch_size", ERROR, "train_batch_size=64"),
    "prompt_length": ([f"{ROLLOUT}.prompt_length=32"], f"{ROLLOUT}.prompt_length", ERROR, "data.max_prompt_length=512"),
    "response_length": ([f"{ROLLOUT}.response_length=64"], f"{ROLLOUT}.response_length", ERROR, "data.max_response_length=512"),
    "top_k_of_one": ([f"{ROLLOUT}.top_k=1"], f"{ROLLOUT}.top_k", ERROR, "top_k=1"),
    "tiny_top_p": ([f"{ROLLOUT}.top_p=0.05"], f"{ROLLOUT}.top_p", ERROR, "0.05"),
    "top_k": ([f"{ROLLOUT}.top_k=20"], f"{ROLLOUT}.top_k", WARNING, "20"),
    "top_p": ([f"{ROLLOUT}.top_p=0.7"], f"{ROLLOUT}.top_p", WARNING, "0.7"),
    "wide_clip": ([f"{ACTOR}.clip_ratio_high=5"], f"{ACTOR}.clip_ratio_high", WARNING, "6-fold"),
    "lr_of_zero": ([f"{ACTOR}.optim.lr=0"], f"{ACTOR}.optim.lr", WARNING, "nothing"),
    "warmup_of_whole_run":
        ([f"{ACTOR}.optim.lr_warmup_steps_ratio=1.0"], f"{ACTOR}.optim.lr_warmup_steps_ratio", WARNING, "optim.lr=1e-06"),
    "bf16_weights": ([f"{ACTOR}.fsdp_config.model_dtype=bf16"], f"{ACTOR}.fsdp_config.model_dtype", WARNING, "optim.lr=1e-06"),
    "reward_model_without_path": (["reward.reward_model.enable=true"], "reward.reward_model.enable", ERROR, "model_path"),
    "lora_alpha_of_zero": (["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=0"],
     "actor_rollout_ref.model.lora_alpha", ERROR, "lora_alpha=16"),
    "separate_batches": ([*SEPARATE, "trainer.v1.separate_async.parameter_sync_step=3"],
     "trainer.v1.trainer_mode", ERROR, "parameter_sync_step=3"),
    "separate_nodes": ([*SEPARATE, f"{ROLLOUT}.nnodes=0"], f"{ROLLOUT}.nnodes", ERROR, "nnodes=0"),
    "separate_gpus": ([*SEPARATE, f"{ROLLOUT}.n_gpus_per_node=0"], f"{ROLLOUT}.n_gpus_per_node", ERROR, "=1 or more"),
    "separate_weights": ([*SEPARATE, f"{ROLLOUT}.checkpoint_engine.backend=naive"],
     f"{ROLLOUT}.checkpoint_engine.backend", ERROR, "nccl"),
    "separate_reward_model": ([*SEPARATE, "reward.reward_model.enable=true", "reward.reward_model.model_path=/m"],
     "reward.reward_model.enable_resource_pool", ERROR, "enable_resource_pool=true"),
    "separate_lora": ([*SEPARATE, "actor_rollout_ref.model.lora_rank=8"],
     "trainer.v1.trainer_mode", ERROR, "actor_rollout_ref.model.lora.merge=true"),
    "older_weights":
        ([*SEPARATE, f"{CORRECTION}.rollout_is=null"], "trainer.v1.trainer_mode", WARNING, f"{CORRECTION}.rollout_is=token"),
    "ignore_eos": ([f"{ROLLOUT}.ignore_eos=true"], f"{ROLLOUT}.ignore_eos", WARNING, "ignore_eos=false"),
    "raw_logprobs": ([f"{ROLLOUT}.logprobs_mode=raw_logprobs", f"{ROLLOUT}.temperature=0.7"],
     f"{ROLLOUT}.logprobs_mode", WARNING, "processed_logprobs"),
    "repetition_penalty": ([f"+{ROLLOUT}.repetition_penalty=1.2"], f"{ROLLOUT}.repetition_penalty", WARNING, "1.2"),
    "kl_loss_of_zero":
        ([f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=0"], f"{ACTOR}.use_kl_loss", WARNING, "kl_loss_coef=0"),
    "negative_entropy": ([f"{ACTOR}.entropy_coeff=-0.01"], f"{ACTOR}.entropy_coeff", WARNING, "=0"),
    "large_entropy": ([f"{ACTOR}.entropy_coeff=0.5"], f"{ACTOR}.entropy_coeff", WARNING, "=0.01 or less"),
    "large_kl_loss": ([f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=10"], f"{ACTOR}.kl_loss_coef", WARNING, "up to 0.1"),
    "many_epochs": ([f"{ACTOR}.ppo_epochs=50"], f"{ACTOR}.ppo_epochs", WARNING, "=1, or up to 4"),
    "rising_lr": ([f"{ACTOR}.optim.min_lr_ratio=1.5"], f"{ACTOR}.optim.min_lr_ratio", ERROR, "=0.1"),
}  # fmt: skip
# Settings that have what they need.
RIGHT = (
    [],
    ["algorithm.use_pf_ppo=true", "algorithm.adv_estimator=gae", "trainer.use_v1=false"],
    ["+algorithm.filter_groups={enable: true}"],
    [f"{ACTOR}.policy_loss.kl=scaled", f"{ACTOR}.use_kl_loss=true"],
    [f"{ACTOR}.optim.optimizer=SGD", f"{ACTOR}.optim.lr=1"],
    ["reward.reward_manager.name=dapo"],
    ["reward.reward_manager.source=register", "reward.custom_reward_function.path=mine.py"],
    [f"{CORRECTION}.rollout_is=token", f"{CORRECTION}.rollout_rs=token_k1", f"{CORRECTION}.rollout_rs_threshold=2"],
    [f"{CORRECTION}.bypass_mode=true"],
    [f"{CORRECTION}.loss_type=reinforce", f"{ACTOR}.policy_loss.loss_mode=bypass_mode"],
    ["+ray_kwargs.ray_init.num_gpus=8", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"],
    ["+ray_kwargs.ray_init.dashboard_host=localhost"],
    ["trainer.val_only=true"],
    ["trainer.critic_warmup=20", "algorithm.adv_estimator=gae"],
    ["algorithm.adv_estimator=remax", "trainer.use_v1=false"],
    [f"{VALIDATION}={{do_sample: true, temperature: 0.6, n: 4}}"],
    [f"{ROLLOUT}.multi_turn.enable=true", f"{ROLLOUT}.agent.default_agent_loop=tool_agent"],
    [f"{ROLLOUT}.multi_turn.enable=true", "data.train_files=/no/such/file.parquet"],
    [*DAPO, f"+{OVERLONG}={{enable: true, len: 8}}", "+reward.reward_kwargs.max_resp_len=512"],
    [f"+{OVERLONG}={{enable: false}}"],
    [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm", f"{ACTOR}.loss_scale_factor=512"],
    SEPARATE,
    [*SEPARATE, "actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora.merge=true"],
    [f"{ROLLOUT}.logprobs_mode=raw_logprobs"],
    [
        f"{ACTOR}.use_kl_loss=true",
        f"{ACTOR}.kl_loss_coef=0.001",
        f"{ACTOR}.entropy_coeff=0.001",
        f"{ACTOR}.ppo_epochs=4",
    ],
    ["algorithm=cispo", f"{ACTOR}.clip_ratio_high=5"],
    ["algorithm=cppo"],
    [f"{ACTOR}.clip_ratio_high=1"],
    ["+data.gen_batch_size=32", "data.train_batch_size=64"],
    [f"{ACTOR}.ppo_micro_batch_size=8", f"{ACTOR}.ppo_micro_batch_size_per_gpu=8"],
    [f"{ROLLOUT}.temperature=0.6"],
    ["shaping=uniform", f"{ROLLOUT}.temperature=0.1"],
    [*HA_DW, "trainer.save_freq=5", "trainer.resume_mode=disable"],
)


def test_every_rule_has_a_case():
    assert CASES.keys() == RULES.keys()


@pytest.mark.parametrize("trainer", ["trainer.use_v1=true", "trainer.use_v1=false"])
@pytest.mark.parametrize("word", ["tis", "mis", "icepop"])
def test_a_word_of_mismatch_that_a_bypass_silences_is_named_in_both_trainers(trainer, word):
    """The trainer before v1 sets another loss in its driver, after the workers were built."""
    view = RunView(composed([f"mismatch={word}", f"{CORRECTION}.bypass_mode=true", trainer]))
    assert [each.where for each in RULES["importance_not_corrected"].findings(view)] == [f"{CORRECTION}.rollout_is"]
    assert inspect.getsource(RayPPOTrainer.fit).count("apply_bypass_mode(") == 1
    started = inspect.getsource(main_ppo_v0)
    assert started.index("trainer.init_workers()") < started.index("trainer.fit()")


@pytest.mark.parametrize("name", CASES)
def test_a_setting_without_what_it_needs_is_reported(name, tiny_run):
    overrides, key, level, part = CASES[name]
    view = RunView(composed([each.replace("{train}", f"{tiny_run}/train.parquet") for each in overrides]))
    found = rule_findings(view, RULES)
    assert summary(found) == [(key, level)] and found == RULES[name].findings(view) and full(RULES[name].key) == key
    assert found[0].message.startswith(f"{key}=") and part in found[0].message
    assert already_set(found[0], view) == []
    assert not re.search(r"(?<!\$)\{|<", found[0].message)


@pytest.mark.parametrize("overrides", RIGHT)
def test_settings_that_have_what_they_need_are_not(overrides):
    assert rule_findings(RunView(composed(overrides)), RULES) == []


@pytest.mark.parametrize("section", [ACTOR, "critic"])
def test_what_is_loaded_has_to_be_saved_for_every_pair(section, monkeypatch):
    """Against veRL's own class; of a checkpoint in the format of Hugging Face, FSDP reads nothing back."""
    kinds = ("model", "optimizer", "extra", "hf_model")
    contents = [None, *(list(some) for size in range(5) for some in itertools.combinations(kinds, size))]
    run = composed(["trainer.save_freq=1", "algorithm.adv_estimator=gae"])
    for asked in ("get_rank", "get_world_size"):
        monkeypatch.setattr(torch.distributed, asked, lambda: 0)
    rules = [rule for name, rule in RULES.items() if "loads_what_is_not_saved" in name]
    for save, load in itertools.product(contents, contents):
        checkpoint = {"save_contents": save, "load_contents": load}
        OmegaConf.update(run.config, f"{section}.checkpoint", checkpoint)
        found = {finding.where for rule in rules for finding in rule.findings(RunView(run))}
        manager = BaseCheckpointManager(torch.nn.Linear(1, 1), None, checkpoint_config=checkpoint)
        fails = any(
            getattr(manager, f"should_load_{kind}") and not getattr(manager, f"should_save_{kind}")
            for kind in kinds[:3]
        )
        assert (f"{section}.checkpoint.load_contents" in found) == fails, checkpoint
