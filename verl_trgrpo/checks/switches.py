"""Check settings that another setting switches off, by a table: keys, what they need, and why they have no effect without it.

Every row was read in the code of veRL 0.9.1: the v1 trainer, its workers and its FSDP engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_trgrpo.checks.files import needs_critic
from verl_trgrpo.checks.run_data import RunData
from verl_trgrpo.checks.switched_off import Switch, only_with
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.runs.compose import loggers_of
from verl_trgrpo.runs.keys import ACTOR, CORRECTION, LOSS, MANAGER, MODEL, OVERLONG, REF, REWARD, REWARD_MODEL, ROLLOUT
from verl_trgrpo.tasks.search_qa.search_options import SEARCH_AGENT

_OPTIM = f"{ACTOR}.optim"
_FSDP = ("fsdp", "fsdp2")
_PROFILER_STEPS = "global_profiler.steps"
# Estimators that take no standard deviation, or always the same one, and those that do not discount.
_WITHOUT_STD = (
    "gae", "remax", "rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus", "reinforce_plus_plus_baseline",
    "optimal_token_baseline", "tir_optimal_token_baseline", "reinforce_rej", "w_reinforce",
)  # fmt: skip
_WITHOUT_DISCOUNT = (
    "grpo", "grpo_vectorized", "grpo_passk", "gdpo", "remax", "rloo", "rloo_vectorized", "opo", "gpg",
    "reinforce_plus_plus_baseline", "optimal_token_baseline", "tir_optimal_token_baseline", "tr_grpo", "reinforce_rej", "ha_dw",
    "w_reinforce",
)  # fmt: skip
# Those that read no parts of the reward.
_WITHOUT_PARTS = {*_WITHOUT_STD, *_WITHOUT_DISCOUNT} - {"gdpo"}
# Losses without a clip range, and those with one that do not clip a second time.
_WITHOUT_CLIP = ("gpg", "kl_cov", "dro", "sapo")
_WITHOUT_DUAL_CLIP = (*_WITHOUT_CLIP, "gspo", "clip_cov", "geo_mean", "cispo")
# Loggers that show the responses of a validation.
_TABLES = ("wandb", "swanlab", "mlflow", "trackio", "clearml", "tensorboard", "vemlp_wandb")


def _has_lora(values: RunData) -> bool:
    ranks = (values[f"{MODEL}.lora_rank"], values[f"{MODEL}.lora.rank"])
    return any(rank and rank > 0 for rank in ranks) or values[f"{MODEL}.lora_adapter_path"] is not None


def _has_reference(values: RunData) -> bool:
    return bool(values[f"{ACTOR}.use_kl_loss"] or values["algorithm.use_kl_in_reward"])


def _is_cosine(values: RunData) -> bool:
    kinds = (values[f"{_OPTIM}.lr_scheduler_type"], values[f"{_OPTIM}.warmup_style"])
    return "cosine" in kinds or values[f"{ACTOR}.strategy"] not in _FSDP


def _validates(values: RunData) -> bool:
    return bool(values["trainer.test_freq"] > 0 or values["trainer.val_before_train"])


# One row for each switch; tests/checks/test_switches.py has one case for each.
SWITCHES = (
    Switch(
        ("critic.*", "trainer.max_critic_ckpt_to_keep"),
        lambda v: needs_critic(v.config),
        "have no effect, the run has no critic with {critic.enable} and {algorithm.adv_estimator}; remove them, or set "
        "critic.enable=true",
    ),
    only_with("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.*", "algorithm.kl_penalty", off=(0,)),
    Switch(
        ("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"),
        lambda v: v["algorithm.kl_ctrl.type"] == "adaptive" or not v["algorithm.use_kl_in_reward"],
        "has no effect with {algorithm.kl_ctrl.type}; remove it, or set that to adaptive",
    ),
    only_with(f"{ACTOR}.use_kl_loss", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type", off=(0,)),
    Switch(
        (f"{REF}.*",),
        _has_reference,
        f"has no effect, the run has no reference model with {{{ACTOR}.use_kl_loss}} and {{algorithm.use_kl_in_reward}}; "
        "remove it, or set one of them to true",
        # A recipe may say where a reference model is kept for those algorithms that have one.
        without=("*.strategy", "*.fsdp_config.*"),
    ),
    Switch(
        ("algorithm.pf_ppo.*",),
        lambda v: v["algorithm.use_pf_ppo"],
        "has no effect with {algorithm.use_pf_ppo}; remove it",
    ),
    only_with("algorithm.filter_groups.enable", "algorithm.filter_groups.*"),
    Switch(
        ("algorithm.gamma", "algorithm.lam"),
        lambda v: v["algorithm.adv_estimator"] not in _WITHOUT_DISCOUNT,
        "has no effect with {algorithm.adv_estimator}, which does not discount; remove it",
    ),
    Switch(
        ("algorithm.lam",),
        lambda v: v["algorithm.adv_estimator"] != "reinforce_plus_plus",
        "has no effect with {algorithm.adv_estimator}; remove it",
    ),
    only_with("algorithm.adv_estimator", "algorithm.w_reinforce.*", value="w_reinforce"),
    only_with("algorithm.adv_estimator", "algorithm.ha_dw.*", value="ha_dw"),
    Switch(
        ("algorithm.gdpo_reward_*",),
        lambda v: v["algorithm.adv_estimator"] not in _WITHOUT_PARTS,
        "has no effect with {algorithm.adv_estimator}, which reads the score alone; remove it",
    ),
    Switch(
        ("algorithm.norm_adv_by_std_in_grpo",),
        lambda v: v["algorithm.adv_estimator"] not in _WITHOUT_STD,
        "has no effect with {algorithm.adv_estimator}; remove it",
    ),
    Switch(
        (f"{CORRECTION}.rollout_is_*",),
        lambda v: v[f"{CORRECTION}.rollout_is"],
        f"has no effect with {{{CORRECTION}.rollout_is}}; remove it, or set that to token or sequence",
    ),
    Switch(
        (f"{CORRECTION}.rollout_rs_threshold",),
        lambda v: v[f"{CORRECTION}.rollout_rs"],
        f"has no effect with {{{CORRECTION}.rollout_rs}}; remove it, or set that",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio",),
        lambda v: v[f"{ACTOR}.clip_ratio_low"] is None or v[f"{ACTOR}.clip_ratio_high"] is None,
        f"has no effect, {{{ACTOR}.clip_ratio_low}} and {{{ACTOR}.clip_ratio_high}} are used; set those",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"),
        lambda v: v[f"{LOSS}.loss_mode"] not in _WITHOUT_CLIP,
        f"has no effect with {{{LOSS}.loss_mode}}, which does not clip; remove it",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio_c",),
        lambda v: v[f"{LOSS}.loss_mode"] not in _WITHOUT_DUAL_CLIP,
        f"has no effect with {{{LOSS}.loss_mode}}, which has no dual clip; remove it",
    ),
    only_with(f"{LOSS}.loss_mode", f"{LOSS}.rollout_correction.*", value="bypass_mode"),
    only_with(f"{ACTOR}.loss_agg_mode", f"{ACTOR}.loss_scale_factor", value="seq-mean-token-sum-norm"),
    only_with(f"{LOSS}.loss_mode", f"{LOSS}.clip_cov_*", value="clip_cov"),
    only_with(f"{LOSS}.loss_mode", f"{LOSS}.kl_cov_ratio", f"{LOSS}.ppo_kl_coef", value="kl_cov"),
    only_with(f"{LOSS}.loss_mode", f"{LOSS}.dro_beta", value="dro"),
    only_with(f"{LOSS}.loss_mode", f"{ACTOR}.tau_pos", f"{ACTOR}.tau_neg", value="sapo"),
    Switch(
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
        lambda v: not v[f"{ACTOR}.use_dynamic_bsz"],
        f"has no effect with {{{ACTOR}.use_dynamic_bsz}}, micro-batches are cut by tokens; remove it, or set "
        "ppo_max_token_len_per_gpu",
    ),
    only_with(f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
    Switch(
        (f"{_OPTIM}.total_training_steps", "critic.optim.total_training_steps"),
        lambda v: False,
        "has no effect, the trainer writes its own number of steps there; set trainer.total_training_steps",
    ),
    Switch(
        (f"{_OPTIM}.lr_warmup_steps_ratio",),
        lambda v: not v[f"{_OPTIM}.lr_warmup_steps"] or v[f"{_OPTIM}.lr_warmup_steps"] <= 0,
        f"has no effect, {{{_OPTIM}.lr_warmup_steps}} is used; remove one of them",
    ),
    Switch(
        (f"{_OPTIM}.num_cycles", f"{_OPTIM}.min_lr_ratio", f"{_OPTIM}.zero_indexed_step"),
        _is_cosine,
        f"has no effect with {{{_OPTIM}.lr_scheduler_type}}; remove it, or set that to cosine",
    ),
    Switch(
        (f"{ACTOR}.fsdp_config.use_orig_params",),
        lambda v: v[f"{ACTOR}.strategy"] != "fsdp2",
        f"has no effect with {{{ACTOR}.strategy}}; remove it",
    ),
    Switch(
        (f"{ACTOR}.fsdp_config.offload_policy",),
        lambda v: v[f"{ACTOR}.strategy"] != "fsdp",
        f"has no effect with {{{ACTOR}.strategy}}; set that to fsdp2, or param_offload=true",
    ),
    only_with(f"{ACTOR}.strategy", f"{ACTOR}.fsdp_config.forward_prefetch", value="fsdp"),
    only_with(f"{ACTOR}.fsdp_config.full_determinism", f"{ACTOR}.fsdp_config.seed"),
    Switch(
        (f"{ACTOR}.fsdp_config.dtype", f"{REF}.fsdp_config.dtype"),
        lambda v: False,
        "has no effect, the engine casts to fsdp_config.mixed_precision.param_dtype; set that (on the command line with a plus)",
    ),
    Switch(
        (f"{ACTOR}.fsdp_config.strategy",),
        lambda v: v[f"{ACTOR}.fsdp_config.strategy"] == v[f"{ACTOR}.strategy"],
        f"has no effect, {{{ACTOR}.strategy}} replaces it; set that",
        without=(),
    ),
    Switch(
        (f"{ACTOR}.use_torch_compile",),
        lambda v: v[f"{ACTOR}.fsdp_config.use_torch_compile"] == v[f"{ACTOR}.use_torch_compile"],
        f"has no effect, the engine reads {{{ACTOR}.fsdp_config.use_torch_compile}}; set that",
    ),
    Switch(
        (f"{ACTOR}.use_remove_padding",),
        lambda v: v[f"{MODEL}.use_remove_padding"] == v[f"{ACTOR}.use_remove_padding"],
        f"has no effect, {{{MODEL}.use_remove_padding}} replaces it; set that",
    ),
    Switch(
        (f"{ACTOR}.use_fused_kernels",),
        lambda v: v[f"{MODEL}.use_fused_kernels"] == v[f"{ACTOR}.use_fused_kernels"],
        f"has no effect, {{{MODEL}.use_fused_kernels}} replaces it; set that",
    ),
    Switch(
        (f"{ACTOR}.entropy_from_logits_chunk_size", f"{ACTOR}.fsdp_config.entropy_from_logits_chunk_size"),
        lambda v: v[f"{ACTOR}.fsdp_config.entropy_from_logits_with_chunking"],
        f"has no effect with {{{ACTOR}.entropy_from_logits_with_chunking}}; remove it, or set that to true",
    ),
    Switch(
        (f"{ACTOR}.entropy_checkpointing", f"{ACTOR}.fsdp_config.entropy_checkpointing"),
        lambda v: v[f"{ACTOR}.calculate_entropy"] or v[f"{ACTOR}.entropy_coeff"],
        f"has no effect with {{{ACTOR}.calculate_entropy}} and {{{ACTOR}.entropy_coeff}}, no entropy is computed; remove it",
        off=(False,),
    ),
    Switch(
        (f"{ACTOR}.fsdp_config.pad_to_length_bucket",),
        lambda v: v[f"{ACTOR}.fsdp_config.pad_to_length"],
        f"has no effect with {{{ACTOR}.pad_to_length}}; remove it, or set that to true",
    ),
    Switch(
        (f"{ACTOR}.pad_to_length", f"{ACTOR}.fsdp_config.pad_to_length"),
        lambda v: v[f"{MODEL}.use_remove_padding"],
        f"has no effect with {{{MODEL}.use_remove_padding}}; remove it, or set that to true",
        off=(False,),
    ),
    only_with(f"{ACTOR}.shuffle", f"{ACTOR}.data_loader_seed"),
    Switch(
        (f"{ACTOR}.fsdp_config.param_offload", f"{ACTOR}.fsdp_config.optimizer_offload"),
        lambda v: v[f"{ACTOR}.strategy"] != "fsdp2" or not v[f"{ACTOR}.fsdp_config.offload_policy"],
        f"has no effect with {{{ACTOR}.fsdp_config.offload_policy}}, which moves both; remove it",
    ),
    Switch(
        (f"{ROLLOUT}.layered_summon",
         *(f"{MODEL}.{name}" for name in ("lora_alpha", "target_modules", "exclude_modules", "lora.*"))),
        _has_lora,
        f"has no effect with {{{MODEL}.lora_rank}}; remove it, or set that to the rank of a LoRA adapter",
    ),
    only_with(f"{MODEL}.use_fused_kernels", f"{MODEL}.fused_kernel_options.*"),
    only_with(f"{MODEL}.tiled_mlp.enabled", f"{MODEL}.tiled_mlp.*"),
    only_with(f"{MODEL}.mtp.enable", f"{MODEL}.mtp.*"),
    Switch(
        (f"{ACTOR}.fsdp_config.turbo_config.*",),
        lambda v: v[f"{ACTOR}.strategy"] == "fsdp_turbo",
        f"has no effect with {{{ACTOR}.strategy}}; remove it, or set that to fsdp_turbo",
    ),
    only_with(f"{ACTOR}.fsdp_config.qat.enable", f"{ACTOR}.fsdp_config.qat.*"),
    Switch(
        (f"{ACTOR}.qat.*",),
        lambda v: False,
        f"has no effect, neither actor nor rollout read this section; set {ACTOR}.fsdp_config.qat",
        without=(),
    ),
    Switch(
        (f"{ROLLOUT}.cudagraph_capture_sizes",),
        lambda v: not v[f"{ROLLOUT}.enforce_eager"],
        f"has no effect with {{{ROLLOUT}.enforce_eager}}; remove it, or set that to false",
    ),
    Switch(
        (f"{ROLLOUT}.quantization_config_file",),
        lambda v: v[f"{ROLLOUT}.quantization"] is not None,
        f"has no effect with {{{ROLLOUT}.quantization}}; remove it, or set that",
    ),
    Switch(
        (f"{ROLLOUT}.n_gpus_per_node", f"{ROLLOUT}.nnodes"),
        lambda v: v["trainer.v1.trainer_mode"] == "separate_async",
        "has no effect with {trainer.v1.trainer_mode}, where responses are sampled on the GPUs of the trainer; remove it",
    ),
    Switch(
        (f"{ROLLOUT}.checkpoint_engine.backend",),
        lambda v: v["trainer.v1.trainer_mode"] == "separate_async",
        "has no effect with {trainer.v1.trainer_mode}, where weights go through shared memory; remove it",
    ),
    Switch(
        (f"{ROLLOUT}.val_kwargs.top_p", f"{ROLLOUT}.val_kwargs.top_k"),
        lambda v: v[f"{ROLLOUT}.val_kwargs.temperature"] > 0,
        f"has no effect, {{{ROLLOUT}.val_kwargs.temperature}} makes validation greedy; remove it, or set that to 1.0",
    ),
    Switch(
        (f"{ROLLOUT}.custom.search.*",),
        lambda v: v.may_use(SEARCH_AGENT),
        f"has no effect with {{{ROLLOUT}.agent.default_agent_loop}} and these rows; remove it, or set agent=search_tags",
    ),
    only_with(f"{ROLLOUT}.prometheus.enable", f"{ROLLOUT}.prometheus.*"),
    only_with(f"{ROLLOUT}.disaggregation.enabled", f"{ROLLOUT}.disaggregation.*"),
    Switch(
        (f"{ROLLOUT}.trace.*",),
        lambda v: v[f"{ROLLOUT}.trace.backend"],
        f"has no effect with {{{ROLLOUT}.trace.backend}}; remove it, or set that",
        without=(f"{ROLLOUT}.trace.backend",),
    ),
    only_with(f"{REWARD_MODEL}.enable", f"{REWARD_MODEL}.*"),
    Switch(
        (f"{REWARD_MODEL}.n_gpus_per_node", f"{REWARD_MODEL}.nnodes"),
        lambda v: v[f"{REWARD_MODEL}.enable_resource_pool"] or not v[f"{REWARD_MODEL}.enable"],
        f"has no effect with {{{REWARD_MODEL}.enable_resource_pool}}, it shares the GPUs of the policy; set that to true",
    ),
    Switch(
        ("reward.sandbox_fusion.*",),
        lambda v: v["reward.sandbox_fusion.url"] and not v[f"{REWARD}.path"],
        f"has no effect with {{reward.sandbox_fusion.url}} and {{{REWARD}.path}}, veRL's own rewards alone use it; remove it, or "
        "set those to an address and null",
    ),
    Switch(
        (f"{REWARD}.name", f"{REWARD}.reward_kwargs.*"),
        lambda v: v[f"{REWARD}.path"],
        f"has no effect with {{{REWARD}.path}}; set that to the file of the function",
    ),
    Switch(
        (f"{MANAGER}.module.path",),
        lambda v: v[f"{MANAGER}.source"] == "importlib",
        f"has no effect with {{{MANAGER}.source}}; remove it, or set that to importlib",
        off=(None,),
    ),
    Switch(
        (f"{MANAGER}.module.name",),
        lambda v: False,
        f"has no effect, veRL takes the class that {{{MANAGER}.name}} names; set that",
    ),
    only_with(f"{OVERLONG}.enable", f"{OVERLONG}.*", "reward.reward_kwargs.max_resp_len"),
    Switch(
        ("data.custom_cls.name",),
        lambda v: v["data.custom_cls.path"],
        "has no effect with {data.custom_cls.path}; set that to the file of the class",
    ),
    Switch(
        ("data.truncation",),
        lambda v: False,
        "has no effect, with {data.filter_overlong_prompts} veRL leaves out prompts that are too long if that is true, and else "
        "cuts them from the left; remove it",
        off=("left",),
    ),
    Switch(
        ("data.seed",),
        lambda v: v["data.shuffle"],
        "has no effect with {data.shuffle}, prompts keep the order of the files; remove it, or set that to true",
    ),
    only_with("distillation.enabled", "distillation.*"),
    only_with("data.filter_overlong_prompts", "data.filter_overlong_prompts_workers"),
    Switch(
        ("trainer.max_actor_ckpt_to_keep", "trainer.default_hdfs_dir", f"{ACTOR}.checkpoint.save_contents"),
        lambda v: v["trainer.save_freq"] > 0,
        "has no effect with {trainer.save_freq}, no checkpoint is saved; remove it, or set that to a number of steps",
    ),
    Switch(
        ("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep"),
        lambda v: not v["trainer.remove_previous_ckpt_in_save"],
        "has no effect with {trainer.remove_previous_ckpt_in_save}, one checkpoint is kept; remove one of them",
    ),
    Switch(
        (f"{ACTOR}.checkpoint.load_contents", "trainer.del_local_ckpt_after_load"),
        lambda v: v["trainer.resume_mode"] != "disable",
        "has no effect with {trainer.resume_mode}, nothing is loaded; remove it",
    ),
    Switch(
        (f"{ROLLOUT}.val_kwargs.*", "data.val_max_samples", "data.val_batch_size", "trainer.validation_data_dir",
         "trainer.log_val_generations"),
        _validates,
        "has no effect with {trainer.test_freq} and {trainer.val_before_train}, the run does not validate; set one of them",
    ),
    Switch(
        ("trainer.log_val_generations",),
        lambda v: any(name in _TABLES for name in loggers_of(v.config)) or not _validates(v),
        f"has no effect with {{trainer.logger}}, of which none shows responses ({', '.join(_TABLES)} do); add one, or set "
        "trainer.validation_data_dir",
    ),
    Switch(
        ("global_profiler.*", "*.profiler.*"),
        lambda v: v[_PROFILER_STEPS] is not None,
        f"has no effect with {{{_PROFILER_STEPS}}}, nothing is profiled; remove it, or set that to a list of steps",
        without=(),
    ),
    only_with("skip.rollout_tq.enable", "skip.rollout_tq.*"),
    Switch(
        ("skip.rollout.*", "skip.async_rollout.*"),
        lambda v: False,
        "has no effect, veRL's v1 trainer reads skip.rollout_tq; set its keys",
        without=(),
    ),
    Switch(
        ("trainer.v1.sampler.max_off_policy_threshold", "trainer.v1.sampler.max_off_policy_strategy"),
        lambda v: v["trainer.v1.trainer_mode"] != "sync",
        "has no effect with {trainer.v1.trainer_mode}, whose responses are never of older weights; remove it",
    ),
    Switch(
        ("trainer.resume_from_path",),
        lambda v: v["trainer.resume_mode"] == "resume_path",
        "has no effect with {trainer.resume_mode}; set that to resume_path",
    ),
    only_with("trainer.v1.trainer_mode", "trainer.v1.colocate_async.*", value="colocate_async"),
    only_with("trainer.v1.trainer_mode", "trainer.v1.separate_async.*", value="separate_async"),
)  # fmt: skip


def switch_findings(data: RunData, changed: Mapping[str, Any]) -> list[Finding]:
    """Warn about settings that differ from their defaults for nothing; veRL's older trainer (``use_v1=false``) is not known.

    Args:
        data: of the run, whose configuration has passed the checks of single values.
        changed: see :func:`~verl_trgrpo.runs.compose.changed_values`.
    """
    if not data["trainer.use_v1"]:
        return []
    return [finding for switch in SWITCHES for finding in switch.findings(data, changed)]
