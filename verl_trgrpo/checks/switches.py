"""List settings that have no effect unless another one allows it; tests/checks/test_switches.py has one case for each row.

Every row was read in the code of veRL 0.9.1: the v1 trainer, its workers and its FSDP engine.
"""

from __future__ import annotations

from verl_trgrpo.checks.tables import Switch

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
# Losses without a clip range, and those with one that do not clip a second time.
_WITHOUT_CLIP = ("gpg", "kl_cov", "dro", "sapo")
_WITHOUT_DUAL_CLIP = (*_WITHOUT_CLIP, "gspo", "clip_cov", "geo_mean", "cispo")
# Loggers that show the responses of a validation.
_TABLES = ("wandb", "swanlab", "mlflow", "trackio", "clearml", "tensorboard", "vemlp_wandb")
_HAS_LORA = "(model.lora_rank or 0) > 0 or (model.lora.rank or 0) > 0 or model.lora_adapter_path is not None"
_VALIDATES = "(trainer.test_freq > 0 or trainer.val_before_train)"
_SEPARATE = "trainer.v1.trainer_mode == 'separate_async'"
_SAVED = "trainer.max_actor_ckpt_to_keep trainer.default_hdfs_dir actor.checkpoint.save_contents"

SWITCHES = (
    Switch("critic.* trainer.max_critic_ckpt_to_keep", "needs_critic",
           "the run has no critic with {critic.enable} and {algorithm.adv_estimator}; remove it, or set critic.enable=true"),
    Switch("algorithm.kl_ctrl.* algorithm.kl_penalty", "algorithm.use_kl_in_reward", off=(0,)),
    Switch("algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl",
           "algorithm.kl_ctrl.type == 'adaptive' or not algorithm.use_kl_in_reward"),
    Switch("actor.kl_loss_coef actor.kl_loss_type", "actor.use_kl_loss", off=(0,)),
    # A recipe may say where a reference model is kept for those algorithms that have one.
    Switch("ref.*", "actor.use_kl_loss or algorithm.use_kl_in_reward",
           "the run has no reference model with {actor.use_kl_loss} and {algorithm.use_kl_in_reward}; remove it, or set "
           "actor_rollout_ref.actor.use_kl_loss=true", without="*.strategy *.fsdp_config.*"),
    Switch("algorithm.pf_ppo.*", "algorithm.use_pf_ppo", "rows are not redrawn; remove it"),
    Switch("algorithm.gamma algorithm.lam", f"algorithm.adv_estimator not in {_WITHOUT_DISCOUNT}",
           "which does not discount"),
    Switch("algorithm.lam", "algorithm.adv_estimator != 'reinforce_plus_plus'"),
    Switch("algorithm.w_reinforce.*", "algorithm.adv_estimator == 'w_reinforce'"),
    Switch("algorithm.ha_dw.*", "algorithm.adv_estimator == 'ha_dw'"),
    Switch("algorithm.norm_adv_by_std_in_grpo", f"algorithm.adv_estimator not in {_WITHOUT_STD}"),
    Switch("correction.rollout_is_*", "correction.rollout_is is not None", "; remove it, or set that to token or sequence"),
    Switch("correction.rollout_rs_threshold", "correction.rollout_rs is not None", "; remove it, or set that"),
    Switch("actor.clip_ratio", "actor.clip_ratio_low is None or actor.clip_ratio_high is None",
           "they are used; set those"),
    Switch("actor.clip_ratio_low actor.clip_ratio_high", f"loss.loss_mode not in {_WITHOUT_CLIP}", "which does not clip"),
    Switch("actor.clip_ratio_c", f"loss.loss_mode not in {_WITHOUT_DUAL_CLIP}", "which has no dual clip"),
    Switch("loss.rollout_correction.*", "loss.loss_mode == 'bypass_mode'"),
    Switch("actor.loss_scale_factor", "actor.loss_agg_mode == 'seq-mean-token-sum-norm'"),
    Switch("loss.clip_cov_*", "loss.loss_mode == 'clip_cov'"),
    Switch("loss.kl_cov_ratio loss.ppo_kl_coef", "loss.loss_mode == 'kl_cov'"),
    Switch("loss.dro_beta", "loss.loss_mode == 'dro'"),
    Switch("actor.tau_pos actor.tau_neg", "loss.loss_mode == 'sapo'"),
    Switch("actor.ppo_micro_batch_size_per_gpu rollout.log_prob_micro_batch_size_per_gpu", "not actor.use_dynamic_bsz",
           "micro-batches are cut by tokens; remove it, or set ppo_max_token_len_per_gpu"),
    Switch("actor.ppo_max_token_len_per_gpu rollout.log_prob_max_token_len_per_gpu", "actor.use_dynamic_bsz"),
    Switch("optim.total_training_steps critic.optim.total_training_steps", "False",
           "the trainer writes its own number of steps there; set trainer.total_training_steps"),
    Switch("optim.lr_warmup_steps_ratio", "(optim.lr_warmup_steps or 0) <= 0", "that is used; remove one of them"),
    Switch("optim.num_cycles optim.min_lr_ratio optim.zero_indexed_step",
           "optim.lr_scheduler_type == 'cosine' or optim.warmup_style == 'cosine' or actor.strategy not in ('fsdp', 'fsdp2')"),
    Switch("engine.use_orig_params", "actor.strategy != 'fsdp2'"),
    Switch("engine.offload_policy", "actor.strategy != 'fsdp'", "; set that to fsdp2, or param_offload=true"),
    Switch("engine.forward_prefetch", "actor.strategy == 'fsdp'"),
    Switch("engine.seed", "engine.full_determinism"),
    Switch("engine.dtype ref.fsdp_config.dtype", "False", "the engine casts to fsdp_config.mixed_precision.param_dtype; set "
           "that (on the command line with a plus)"),
    Switch("engine.strategy", "engine.strategy == actor.strategy", "{actor.strategy} replaces it; set that", without=""),
    Switch("actor.use_torch_compile", "engine.use_torch_compile == actor.use_torch_compile",
           "the engine reads {engine.use_torch_compile}; set that"),
    Switch("actor.use_remove_padding", "model.use_remove_padding == actor.use_remove_padding",
           "{model.use_remove_padding} replaces it; set that"),
    Switch("actor.use_fused_kernels", "model.use_fused_kernels == actor.use_fused_kernels",
           "{model.use_fused_kernels} replaces it; set that"),
    Switch("actor.entropy_from_logits_chunk_size engine.entropy_from_logits_chunk_size",
           "engine.entropy_from_logits_with_chunking"),
    Switch("actor.entropy_checkpointing engine.entropy_checkpointing",
           "actor.calculate_entropy or (actor.entropy_coeff or 0) != 0",
           "no entropy is computed; remove it", off=(False,)),
    Switch("engine.pad_to_length_bucket", "engine.pad_to_length"),
    Switch("actor.pad_to_length engine.pad_to_length", "model.use_remove_padding", off=(False,)),
    Switch("actor.data_loader_seed", "actor.shuffle"),
    Switch("engine.param_offload engine.optimizer_offload", "actor.strategy != 'fsdp2' or not engine.offload_policy",
           "which moves both; remove it"),
    Switch("rollout.layered_summon model.lora_alpha model.target_modules model.exclude_modules model.lora.*",
           _HAS_LORA, "{model.lora_rank} is no LoRA adapter; remove it, or set that to the rank of one"),
    Switch("model.fused_kernel_options.*", "model.use_fused_kernels"),
    Switch("engine.turbo_config.*", "actor.strategy == 'fsdp_turbo'"),
    Switch("actor.qat.*", "False", "neither actor nor rollout read this section; set actor.fsdp_config.qat", without=""),
    Switch("rollout.cudagraph_capture_sizes", "not rollout.enforce_eager"),
    Switch("rollout.quantization_config_file", "rollout.quantization is not None", "; remove it, or set that"),
    Switch("rollout.n_gpus_per_node rollout.nnodes", _SEPARATE,
           "responses are sampled on the GPUs of the trainer; remove it"),
    Switch("rollout.checkpoint_engine.backend", _SEPARATE, "weights go through shared memory; remove it"),
    Switch("validation.top_p validation.top_k", "validation.temperature > 0",
           "validation is greedy; remove it, or set that to 1.0"),
    Switch("rollout.trace.*", "rollout.trace.backend not in (None, '')", "; remove it, or set that",
           without="rollout.trace.backend"),
    Switch("reward_model.n_gpus_per_node reward_model.nnodes",
           "reward_model.enable_resource_pool or not reward_model.enable",
           "it shares the GPUs of the policy"),
    Switch("reward.sandbox_fusion.*",
           "reward.sandbox_fusion.url not in (None, '') and reward_function.path in (None, '')",
           "veRL's own rewards alone use it; remove it, or set those to an address and null"),
    Switch("reward_function.name reward_function.reward_kwargs.*", "reward_function.path not in (None, '')",
           "; set that to the file of the function"),
    Switch("manager.module.path", "manager.source == 'importlib'", off=(None,)),
    Switch("manager.module.name", "False", "veRL takes the class that {manager.name} names; set that"),
    Switch("overlong.* reward.reward_kwargs.max_resp_len", "overlong.enable"),
    Switch("data.custom_cls.name", "data.custom_cls.path not in (None, '')", "; set that to the file of the class"),
    Switch("data.truncation", "False", "with {data.filter_overlong_prompts} veRL leaves out prompts that are too long if that "
           "is true, and else cuts them from the left; remove it", off=("left",)),
    Switch("data.seed", "data.shuffle", "prompts keep the order of the files"),
    Switch("data.filter_overlong_prompts_workers", "data.filter_overlong_prompts"),
    Switch(_SAVED, "trainer.save_freq > 0", "no checkpoint is saved; remove it, or set that to a number of steps"),
    Switch("trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep", "not trainer.remove_previous_ckpt_in_save",
           "one checkpoint is kept; remove one of them"),
    Switch("actor.checkpoint.load_contents trainer.del_local_ckpt_after_load", "trainer.resume_mode != 'disable'",
           "nothing is loaded"),
    Switch("validation.* data.val_max_samples data.val_batch_size trainer.validation_data_dir trainer.log_val_generations",
           _VALIDATES, "the run does not validate; set one of them"),
    Switch("trainer.log_val_generations", f"loggers & {{*{_TABLES}}} or not {_VALIDATES}",
           f"no logger of {{trainer.logger}} shows responses ({', '.join(_TABLES)} do); add one, or set "
           "trainer.validation_data_dir"),
    Switch("global_profiler.* *.profiler.*", "global_profiler.steps is not None",
           "nothing is profiled; remove it, or set that to a list of steps", without=""),
    Switch("skip.rollout.* skip.async_rollout.*", "False", "veRL's v1 trainer reads skip.rollout_tq; set its keys",
           without=""),
    Switch("sampler.max_off_policy_threshold sampler.max_off_policy_strategy", "trainer.v1.trainer_mode != 'sync'",
           "responses are never of older weights; remove it"),
    Switch("trainer.resume_from_path", "trainer.resume_mode == 'resume_path'"),
    Switch("trainer.v1.colocate_async.*", "trainer.v1.trainer_mode == 'colocate_async'"),
    Switch("trainer.v1.separate_async.*", _SEPARATE),
    *(Switch(f"{section}.*", f"{section}.enable") for section in (
        "algorithm.filter_groups", "engine.qat", "model.mtp", "reward_model", "rollout.prometheus", "skip.rollout_tq")),
    *(Switch(f"{section}.*", f"{section}.enabled") for section in (
        "distillation", "rollout.disaggregation")),
)  # fmt: skip
