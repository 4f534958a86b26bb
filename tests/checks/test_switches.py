"""One case for each row of the table of settings that another one switches off."""

import copy
from pathlib import Path

import pytest
import torch
from verl.utils.config import omega_conf_to_dataclass

from tests.checks.validation import already_set
from tests.conftest import composed
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import rule_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import DEFAULT_CONFIG, changed_values
from verl_trgrpo.verl_plugin.gradient_probe import Policies, gradient_of
from verl_trgrpo.verl_plugin.loss_names import LOSS_MODES, WEIGHTED

POLICIES = (Policies(old_is_current=True), Policies())

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
CORRECTION, LOSS, OPTIM = "algorithm.rollout_correction", f"{ACTOR}.policy_loss", f"{ACTOR}.optim"
OVERLONG, SAMPLER = "reward.reward_kwargs.overlong_buffer_cfg", "trainer.v1.sampler.sampler_kwargs"
COSINE = f"{OPTIM}.lr_scheduler_type=cosine"
# A setting for nothing, and what it needs (None: nothing helps); by the name of the row.
CASES = {
    "critic": ("critic.ppo_epochs=2", ["algorithm.adv_estimator=gae"]),
    "kl_in_reward": ("algorithm.kl_ctrl.kl_coef=0.1", ["algorithm.use_kl_in_reward=true"]),
    "adaptive_kl": ("algorithm.kl_ctrl.horizon=5", ["algorithm.kl_ctrl.type=adaptive"]),
    "kl_loss": (f"{ACTOR}.kl_loss_coef=0.1", [f"{ACTOR}.use_kl_loss=true"]),
    "reference": ("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=9000", ["algorithm.use_kl_in_reward=true"]),
    "pf_ppo": ("algorithm.pf_ppo.weight_pow=3", ["algorithm.use_pf_ppo=true"]),
    "discount": ("algorithm.gamma=0.95", ["algorithm.adv_estimator=gae"]),
    "lambda": ("algorithm.lam=0.95", ["algorithm.adv_estimator=gae"]),
    "w_reinforce": ("+algorithm.w_reinforce.positive=0.2", ["algorithm.adv_estimator=w_reinforce"]),
    "ha_dw": ("+algorithm.ha_dw.scale=2", ["algorithm.adv_estimator=ha_dw"]),
    "standard_deviation": ("algorithm.norm_adv_by_std_in_grpo=false", ["algorithm.adv_estimator=grpo"]),
    "importance": (f"{CORRECTION}.rollout_is_threshold=3", [f"{CORRECTION}.rollout_is=token"]),
    "rejection": (f"{CORRECTION}.rollout_rs_threshold=3", [f"{CORRECTION}.rollout_rs=token_k1"]),
    "clip_ratio": (f"{ACTOR}.clip_ratio=0.3", [f"{ACTOR}.clip_ratio_low=null"]),
    "clip": (f"{ACTOR}.clip_ratio_high=0.28", [f"{LOSS}.loss_mode=gspo"]),
    "dual_clip": (f"{ACTOR}.clip_ratio_c=10", [f"{LOSS}.loss_mode=vanilla"]),
    "aggregation": (f"{ACTOR}.loss_agg_mode=token-sum", [f"{LOSS}.loss_mode=vanilla"]),
    "correction_of_loss": (f"++{LOSS}.rollout_correction.loss_type=reinforce", [f"{LOSS}.loss_mode=bypass_mode"]),
    "loss_scale": (f"{ACTOR}.loss_scale_factor=512", [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"]),
    "clip_cov": (f"{LOSS}.clip_cov_ratio=0.1", [f"{LOSS}.loss_mode=clip_cov"]),
    "kl_cov": (f"{LOSS}.ppo_kl_coef=0.2", [f"{LOSS}.loss_mode=kl_cov"]),
    "dro": (f"{LOSS}.dro_beta=0.2", [f"{LOSS}.loss_mode=dro"]),
    "sapo": (f"{ACTOR}.tau_neg=1.1", [f"{LOSS}.loss_mode=sapo"]),
    "filter_groups": ("algorithm.filter_groups.metric=acc", ["algorithm.filter_groups.enable=true"]),
    "distillation": ("distillation.distillation_loss.topk=8", ["distillation.enabled=true"]),
    "off_policy": ("trainer.v1.sampler.max_off_policy_strategy=wait", ["trainer.v1.trainer_mode=colocate_async"]),
    "colocate_async": ("trainer.v1.colocate_async.num_warmup_batches=2", ["trainer.v1.trainer_mode=colocate_async"]),
    "separate_async": ("trainer.v1.separate_async.parameter_sync_step=2", ["trainer.v1.trainer_mode=separate_async"]),
    "correct_from": (f"{SAMPLER}.correct_from=0.5", [f"{SAMPLER}.success_rate=true"]),
    "skip_rollout": ("skip.rollout.enable=true", None),
    "fixed_micro_batches": (f"{ACTOR}.ppo_micro_batch_size_per_gpu=8", [f"{ACTOR}.use_dynamic_bsz=false"]),
    "dynamic_micro_batches": (f"{ACTOR}.ppo_max_token_len_per_gpu=8000", [f"{ACTOR}.use_dynamic_bsz=true"]),
    "scheduler_steps": (f"{OPTIM}.total_training_steps=50", None),
    "warmup_ratio": (f"{OPTIM}.lr_warmup_steps_ratio=0.1", [f"{OPTIM}.lr_warmup_steps=-1"]),
    "cosine": (f"{OPTIM}.min_lr_ratio=0.1", [COSINE]),
    "offload_policy": (f"{ACTOR}.fsdp_config.offload_policy=true", [f"{ACTOR}.strategy=fsdp2"]),
    "offload_twice": (f"{ACTOR}.fsdp_config.param_offload=true", [f"{ACTOR}.fsdp_config.offload_policy=false"]),
    "engine_seed": (f"{ACTOR}.fsdp_config.seed=7", [f"{ACTOR}.fsdp_config.full_determinism=true"]),
    "engine_dtype": (f"{ACTOR}.fsdp_config.dtype=float32", None),
    "engine_strategy": (f"{ACTOR}.fsdp_config.strategy=fsdp2", [f"{ACTOR}.strategy=fsdp2"]),
    "torch_compile": (f"{ACTOR}.use_torch_compile=false", [f"{ACTOR}.fsdp_config.use_torch_compile=false"]),
    "remove_padding": (f"{ACTOR}.use_remove_padding=false", [f"{MODEL}.use_remove_padding=false"]),
    "fused_kernels": (f"{ACTOR}.use_fused_kernels=true", [f"{MODEL}.use_fused_kernels=true"]),
    "shuffled_updates": (f"{ACTOR}.data_loader_seed=7", [f"{ACTOR}.shuffle=true"]),
    "engine_turbo": (f"{ACTOR}.fsdp_config.turbo_config.distributed.tensor_parallel_size=2", [f"{ACTOR}.strategy=fsdp_turbo"]),
    "megatron_lora": (f"{MODEL}.lora.dropout=0.1", [f"{ACTOR}.strategy=megatron"]),
    "lora": (f"{MODEL}.lora_alpha=32", [f"{MODEL}.lora_rank=8"]),
    "rollout_gpus": (f"{ROLLOUT}.n_gpus_per_node=4", ["trainer.v1.trainer_mode=separate_async"]),
    "greedy_validation": (f"{ROLLOUT}.val_kwargs.top_p=0.7", [f"{ROLLOUT}.val_kwargs.temperature=1"]),
    "reward_model": ("reward.reward_model.model_path=judge", ["reward.reward_model.enable=true"]),
    "reward_gpus": ("reward.reward_model.nnodes=2", ["reward.reward_model.enable_resource_pool=true"]),
    "sandbox": ("reward.sandbox_fusion.url=http://sandbox", ["reward.custom_reward_function.path=null"]),
    "reward_function": ("+reward.custom_reward_function.reward_kwargs.mine=1", ["reward.custom_reward_function.path=mine.py"]),
    "manager_path": ("reward.reward_manager.module.path=mine.py", ["reward.reward_manager.source=importlib"]),
    "manager_name": ("reward.reward_manager.module.name=Mine", None),
    "overlong": (f"+{OVERLONG}.len=8", [f"+{OVERLONG}.enable=true"]),
    "data_class": ("data.custom_cls.name=Mine", ["data.custom_cls.path=mine.py"]),
    "truncation": ("data.truncation=right", None),
    "data_seed": ("data.seed=7", ["data.shuffle=true"]),
    "filter_workers": ("data.filter_overlong_prompts_workers=4", ["data.filter_overlong_prompts=true"]),
    "saves": ("trainer.max_actor_ckpt_to_keep=2", ["trainer.save_freq=10"]),
    "kept_checkpoints": ("trainer.max_critic_ckpt_to_keep=2", ["++trainer.remove_previous_ckpt_in_save=false"]),
    "loads": (f"{ACTOR}.checkpoint.load_contents=[model]", ["trainer.resume_mode=auto"]),
    "resume_path": ("trainer.resume_from_path=x/global_step_5", ["trainer.resume_mode=resume_path"]),
    "validation": ("trainer.validation_data_dir=x", ["trainer.test_freq=5"]),
    "logged_responses": ("trainer.log_val_generations=5", ["trainer.logger=wandb"]),
    "profiler": ("global_profiler.tool=torch", ["global_profiler.steps=[1]"]),
}  # fmt: skip
# What a case needs so that the row is asked at all.
GIVEN = {
    "algorithm.kl_ctrl.horizon": ["algorithm.use_kl_in_reward=true"],
    "algorithm.norm_adv_by_std_in_grpo": ["algorithm.adv_estimator=rloo"],
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": [f"{ACTOR}.use_dynamic_bsz=true"],
    f"{OPTIM}.lr_warmup_steps_ratio": [f"{OPTIM}.lr_warmup_steps=5"],
    "algorithm.lam": ["algorithm.adv_estimator=reinforce_plus_plus"],
    f"{ACTOR}.clip_ratio_high": [f"{LOSS}.loss_mode=sapo"],
    f"{ACTOR}.clip_ratio_c": [f"{LOSS}.loss_mode=gspo"],
    f"{ACTOR}.loss_agg_mode": [f"{LOSS}.loss_mode=sapo"],
    f"{ACTOR}.fsdp_config.param_offload": [f"{ACTOR}.strategy=fsdp2", f"{ACTOR}.fsdp_config.offload_policy=true"],
    "reward.reward_model.nnodes": ["reward.reward_model.enable=true"],
    "reward.custom_reward_function.reward_kwargs.mine": ["reward.custom_reward_function.path=null"],
    "reward.reward_manager.module.path": ["reward.reward_manager.source=register"],
    "data.seed": ["data.shuffle=false"],
    "trainer.max_critic_ckpt_to_keep": [
        "++trainer.remove_previous_ckpt_in_save=true",
        "algorithm.adv_estimator=gae",
        "trainer.save_freq=1",
    ],
    f"{ACTOR}.checkpoint.load_contents": ["trainer.resume_mode=disable"],
    "trainer.validation_data_dir": ["trainer.test_freq=-1", "trainer.val_before_train=false"],
    "data.filter_overlong_prompts_workers": ["data.filter_overlong_prompts=false"],
}


def found(*overrides, source=DEFAULT_CONFIG):
    return rule_findings(RunView(composed(overrides, source)), SWITCHES)


def test_every_switch_has_a_case():
    assert CASES.keys() == SWITCHES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_setting_that_is_switched_off_is_reported_and_one_that_is_on_is_not(name):
    override, on = CASES[name]
    key, _, value = override.lstrip("+").partition("=")
    given = GIVEN.get(key, [])
    assert SWITCHES[name].covers(key)
    view = RunView(composed([override, *given]))
    [finding] = SWITCHES[name].findings(view)
    assert already_set(finding, view) == []
    assert finding.where == key and finding in found(override, *given)
    assert finding.level is Level.WARNING
    assert finding.message.startswith(f"{key}={value}") and "{" not in finding.message
    if on is not None:
        assert key not in [each.where for each in found(override, *given, *on)]


# Values that change what happens to some of the tokens, where the loss reads them.
OF_THE_LOSS = {
    "clip_ratio_low": 0.95, "clip_ratio_high": 0.01, "clip_ratio_c": 1.01, "loss_agg_mode": "token-sum", "tau_neg": 3.0,
}  # fmt: skip


@pytest.mark.parametrize("mode", sorted({*WEIGHTED, *LOSS_MODES, "geo_mean"}))
def test_a_setting_of_the_actor_is_reported_exactly_where_it_leaves_the_gradient_of_its_loss(mode):
    own = mode in LOSS_MODES
    given = ["algorithm=tr_grpo" if own else "algorithm=grpo", f"{LOSS}.loss_mode={mode}", f"{LOSS}.dro_beta=1"]
    given += [f"{ACTOR}.ppo_micro_batch_size_per_gpu=1", "actor_rollout_ref.rollout.n=8"]
    actor = omega_conf_to_dataclass(composed(given).config.actor_rollout_ref.actor)
    expected = [gradient_of(actor, policies) for policies in POLICIES]
    for name, value in OF_THE_LOSS.items():
        other = copy.copy(actor)
        object.__setattr__(other, name, value)
        alike = all(torch.equal(gradient_of(other, one), each) for one, each in zip(POLICIES, expected, strict=True))
        reported = [each.where for each in found(*given, f"{ACTOR}.{name}={value}")]
        assert (f"{ACTOR}.{name}" in reported) is alike, name


def test_many_settings_of_one_row_are_one_finding():
    [finding] = found(
        *(f"critic.{name}" for name in ("ppo_epochs=2", "shuffle=true", "optim.lr=1e-4", "cliprange_value=1"))
    )
    assert "critic.ppo_epochs=2" in finding.message and "adv_estimator=grpo" in finding.message


def test_a_value_that_asks_for_nothing_agrees_with_the_switch():
    assert found(f"{ACTOR}.kl_loss_coef=0.0", "algorithm.kl_ctrl.kl_coef=0") == []


def test_verls_own_configuration_sets_nothing_in_vain():
    assert found(source="ppo_trainer") == []


def test_the_older_trainer_is_not_known():
    assert found("critic.ppo_epochs=2", "trainer.use_v1=false") == []


def test_a_value_that_is_written_out_or_only_refers_is_not_changed():
    run = composed(["data.max_response_length=100", f"{ACTOR}.clip_ratio=0.2", f"{ACTOR}.rollout_n=8"])
    changed = changed_values(run.config, run.defaults)
    assert changed["data.max_response_length"] == 100
    assert not {f"{ACTOR}.clip_ratio", f"{ACTOR}.rollout_n", f"{ROLLOUT}.response_length"} & changed.keys()


ROOT = Path(__file__).parents[2]
PUZZLES, SEARCHING = (
    str(ROOT / name) for name in ("recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml", "examples/search_demo.yaml")
)
OTHERS = [f"algorithm={name}" for name in ("grpo", "dr_grpo", "dapo", "dppo_kl", "ha_dw", "w_reinforce")]


@pytest.mark.parametrize(("source", "overrides"), [(SEARCHING, []), *((PUZZLES, [other]) for other in OTHERS)])
def test_shipped_configurations_set_nothing_in_vain(source, overrides):
    """With their own algorithms tests/recipes/test_recipes.py validates them."""
    assert found(*overrides, source=source) == []
