"""List settings that have no effect unless another one allows it, by name; tests/checks/test_switches.py has a case for each.

Every row was read in the code of veRL 0.9.1: the v1 trainer, its workers and its FSDP engine. Settings of the method, the data,
memory and the record of a run belong here, in which a reader may trust in vain; those of single engines and services do not.
"""

from __future__ import annotations

from verl_trgrpo.checks.estimators import WITHOUT_DISCOUNT, WITHOUT_STD
from verl_trgrpo.checks.tables import HAS_LORA, SEPARATE, Switch
from verl_trgrpo.runs.keys import ACTOR, REWARD_MODEL

# Losses without a clip range, and those with one that do not clip a second time.
_WITHOUT_CLIP = ("gpg", "kl_cov", "dro", "sapo")
_WITHOUT_DUAL_CLIP = (*_WITHOUT_CLIP, "gspo", "clip_cov", "geo_mean", "cispo")
# Losses with a mean of their own.
_OWN_MEAN = ("geo_mean", "sapo")
# The loss has a KL, or is asked for one.
_KL_OF_LOSS = f"actor.use_kl_loss or '{ACTOR}.kl_loss_coef' in changed or '{ACTOR}.kl_loss_type' in changed"
# Loggers that show the responses of a validation.
_TABLES = ("wandb", "swanlab", "mlflow", "trackio", "clearml", "tensorboard", "vemlp_wandb")
_VALIDATES = "(trainer.test_freq > 0 or trainer.val_before_train)"
_OTHER_MODE = "it is of another trainer than {trainer.v1.trainer_mode}"
_SAVED = "trainer.max_actor_ckpt_to_keep trainer.default_hdfs_dir actor.checkpoint.save_contents"


def _replaced(key: str, by: str, without: str = Switch.without) -> Switch:
    """Return the row of a setting in the place of which veRL reads another one."""
    return Switch(key, f"{by} == {key}", f"{{{by}}} replaces it; set <{by}>={{= {key}}}", without=without)


def _of_algorithm(key: str, chosen: str, word: str) -> Switch:
    """Return the row of settings of one algorithm, which has a word of its own."""
    fix = f"; set {{= 'algorithm={word}' if algorithm_name else '<{chosen}>={word}'}}"
    return Switch(key, f"{chosen} == {word!r}", fix)


SWITCHES = {
    # The method.
    "critic": Switch(
        "critic.* trainer.max_critic_ckpt_to_keep", "needs_critic",
        "the run has no critic with {critic.enable} and {algorithm.adv_estimator}; set <critic.enable>=true"),
    # A run takes one KL: where both are asked for, that of the loss is proposed.
    "kl_in_reward": Switch(
        "algorithm.kl_ctrl.* algorithm.kl_penalty", "algorithm.use_kl_in_reward",
        f"; {{= '' if {_KL_OF_LOSS} else 'set algorithm.use_kl_in_reward=true' + size_of_reference}}",
        without="*.enable *.enabled algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl", off=(0,)),
    "adaptive_kl": Switch(
        "algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl",
        "algorithm.use_kl_in_reward and algorithm.kl_ctrl.type == 'adaptive'",
        "; {= 'set algorithm.kl_ctrl.type=adaptive' if algorithm.use_kl_in_reward else ''}"
        f"{{= '' if algorithm.use_kl_in_reward or {_KL_OF_LOSS} else "
        f"'set algorithm.use_kl_in_reward=true algorithm.kl_ctrl.type=adaptive' + size_of_reference}}"),
    "kl_loss": Switch(
        "actor.kl_loss_coef actor.kl_loss_type", "actor.use_kl_loss",
        f"; {{= '' if algorithm.use_kl_in_reward else 'set {ACTOR}.use_kl_loss=true' + size_of_reference}}", off=(0,)),
    # A recipe may say where a reference model is kept for those algorithms that have one.
    "reference": Switch(
        "ref.*", "actor.use_kl_loss or algorithm.use_kl_in_reward",
        "the run has no reference model with {actor.use_kl_loss} and {algorithm.use_kl_in_reward}; set "
        "<actor.use_kl_loss>=true{= size_of_reference}", without="*.strategy *.fsdp_config.*"),
    "pf_ppo": Switch("algorithm.pf_ppo.*", "algorithm.use_pf_ppo", "rows are not redrawn; "),
    "discount": Switch(
        "algorithm.gamma algorithm.lam", f"algorithm.adv_estimator not in {WITHOUT_DISCOUNT}", "it does not discount"),
    "lambda": Switch("algorithm.lam", "algorithm.adv_estimator != 'reinforce_plus_plus'"),
    "w_reinforce": _of_algorithm("algorithm.w_reinforce.*", "algorithm.adv_estimator", "w_reinforce"),
    "ha_dw": _of_algorithm("algorithm.ha_dw.*", "algorithm.adv_estimator", "ha_dw"),
    "standard_deviation": Switch("algorithm.norm_adv_by_std_in_grpo", f"algorithm.adv_estimator not in {WITHOUT_STD}"),
    "importance": Switch(
        "correction.rollout_is_*", "correction.rollout_is is not None", "; set <correction.rollout_is>=token or sequence"),
    "rejection": Switch(
        "correction.rollout_rs_threshold", "correction.rollout_rs is not None", "; set <correction.rollout_rs>=token_k1"),
    "clip_ratio": Switch(
        "actor.clip_ratio",
        f"actor.clip_ratio_low is None or actor.clip_ratio_high is None or loss.loss_mode in {_WITHOUT_CLIP}",
        "{actor.clip_ratio_low} and {actor.clip_ratio_high} override it; set <actor.clip_ratio_low>={= actor.clip_ratio} "
        "<actor.clip_ratio_high>={= actor.clip_ratio} in its place"),
    "clip": Switch(
        "actor.clip_ratio actor.clip_ratio_low actor.clip_ratio_high", f"loss.loss_mode not in {_WITHOUT_CLIP}",
        "this loss does not clip"),
    "dual_clip": Switch("actor.clip_ratio_c", f"loss.loss_mode not in {_WITHOUT_DUAL_CLIP}", "this loss has no dual clip"),
    "aggregation": Switch(
        "actor.loss_agg_mode", f"loss.loss_mode not in {_OWN_MEAN}", "this loss takes the mean of the responses",
        off=("seq-mean-token-mean",)),
    "correction_of_loss": Switch(
        "loss.rollout_correction.*", "loss.loss_mode == 'bypass_mode'",
        "; {= '' if algorithm_name else 'set <loss.loss_mode>=bypass_mode'}"),
    "loss_scale": Switch(
        "actor.loss_scale_factor", "actor.loss_agg_mode == 'seq-mean-token-sum-norm'",
        f"; {{= '' if loss.loss_mode in {_OWN_MEAN} else 'set {ACTOR}.loss_agg_mode=seq-mean-token-sum-norm'}}"),
    "clip_cov": _of_algorithm("loss.clip_cov_*", "loss.loss_mode", "clip_cov"),
    "kl_cov": _of_algorithm("loss.kl_cov_ratio loss.ppo_kl_coef", "loss.loss_mode", "kl_cov"),
    "dro": _of_algorithm("loss.dro_beta", "loss.loss_mode", "dro"),
    "sapo": _of_algorithm("actor.tau_pos actor.tau_neg", "loss.loss_mode", "sapo"),
    "filter_groups": Switch("algorithm.filter_groups.*", "algorithm.filter_groups.enable"),
    "distillation": Switch(
        "distillation.*", "distillation.enabled", "; name a teacher in <distillation.teacher_models> and enable <distillation>"),
    "off_policy": Switch(
        "sampler.max_off_policy_threshold sampler.max_off_policy_strategy", "trainer.v1.trainer_mode != 'sync'",
        "responses are never of older weights"),
    "colocate_async": Switch(
        "trainer.v1.colocate_async.*", "trainer.v1.trainer_mode == 'colocate_async'", f"{_OTHER_MODE}; "),
    "separate_async": Switch(
        "trainer.v1.separate_async.* actor_rollout_ref.hybrid_engine", SEPARATE, f"{_OTHER_MODE}; "),
    "correct_from": Switch(
        "sampler.sampler_kwargs.correct_from", "sampler.sampler_kwargs.success_rate", "; use a shaping that takes success_rate"),
    "skip_rollout": Switch(
        "skip.rollout.*", "False",
        "this is of the trainer before v1; {= 'set <skip.rollout_tq.enable>=true in its place' if skip.rollout.enable else ''}",
        without=""),
    # How a step is computed.
    "fixed_micro_batches": Switch(
        "actor.ppo_micro_batch_size_per_gpu rollout.log_prob_micro_batch_size_per_gpu", "not actor.use_dynamic_bsz",
        "micro-batches are cut by tokens, {actor.ppo_max_token_len_per_gpu}; "),
    "dynamic_micro_batches": Switch(
        "actor.ppo_max_token_len_per_gpu rollout.log_prob_max_token_len_per_gpu",
        # Padded micro-batches, and those of a mean of whole updates, have a fixed size whatever a recipe says of tokens.
        "actor.use_dynamic_bsz or not model.use_remove_padding or loss.loss_mode == 'geo_mean'",
        f"; {{= '' if actor.ppo_micro_batch_size_per_gpu or longest > actor.ppo_max_token_len_per_gpu * sequence_parallel else "
        f"'set {ACTOR}.use_dynamic_bsz=true <rollout.log_prob_use_dynamic_bsz>=true'}}"),
    "scheduler_steps": Switch(
        "optim.total_training_steps critic.optim.total_training_steps", "False",
        "the trainer writes its own number of steps there; set <trainer.total_training_steps> to the steps of the run"),
    "warmup_ratio": Switch(
        "optim.lr_warmup_steps_ratio", "(optim.lr_warmup_steps or 0) <= 0",
        "{optim.lr_warmup_steps} is used; set <optim.lr_warmup_steps>=-1"),
    "cosine": Switch(
        "optim.num_cycles optim.min_lr_ratio optim.zero_indexed_step",
        "optim.lr_scheduler_type == 'cosine' or optim.warmup_style == 'cosine' or actor.strategy not in ('fsdp', 'fsdp2')"),
    "offload_policy": Switch(
        "engine.offload_policy", "actor.strategy != 'fsdp'", "; set <actor.strategy>=fsdp2 or <engine.param_offload>=true"),
    "offload_twice": Switch(
        "engine.param_offload engine.optimizer_offload", "actor.strategy != 'fsdp2' or not engine.offload_policy",
        "{engine.offload_policy} moves both; "),
    "engine_seed": Switch("engine.seed", "engine.full_determinism"),
    "engine_dtype": Switch(
        "engine.dtype ref.fsdp_config.dtype", "False",
        "the engine casts to fsdp_config.mixed_precision.param_dtype; set +<engine.mixed_precision.param_dtype>=fp32 in its "
        "place, or bf16"),
    "engine_strategy": _replaced("engine.strategy", "actor.strategy", without=""),
    "torch_compile": _replaced("actor.use_torch_compile", "engine.use_torch_compile"),
    "remove_padding": Switch(
        "actor.use_remove_padding", "model.use_remove_padding == actor.use_remove_padding",
        "{model.use_remove_padding} replaces it; "),
    "fused_kernels": _replaced("actor.use_fused_kernels", "model.use_fused_kernels"),
    "shuffled_updates": Switch("actor.data_loader_seed", "actor.shuffle"),
    "engine_turbo": Switch(
        "engine.turbo_config.* ref.fsdp_config.turbo_config.* critic.fsdp.turbo_config.*", "actor.strategy == 'fsdp_turbo'",
        "; "),
    "megatron_lora": Switch(
        "model.lora.* critic.model.lora.*", "actor.strategy == 'megatron'", "; ", without="*.lora.rank *.lora.merge"),
    "lora": Switch(
        "rollout.layered_summon model.lora_alpha model.target_modules model.exclude_modules", HAS_LORA,
        "there is no adapter ({model.lora_rank}); set <model.lora_rank> to the adapter's rank"),
    # Rollouts, data and rewards.
    "rollout_gpus": Switch(
        "rollout.n_gpus_per_node rollout.nnodes", SEPARATE, "responses are sampled on the GPUs of the trainer; "),
    "greedy_validation": Switch(
        "validation.top_p validation.top_k", "validation.temperature > 0",
        "validation is greedy; set <validation.temperature>=1.0 <validation.do_sample>=true"),
    "reward_model": Switch(
        "reward_model.*", "reward_model.enable",
        "; set <reward_model.enable>=true"
        f"{{= ' {REWARD_MODEL}.enable_resource_pool=true' if algorithm.filter_groups.enable else ''}}",
        without="*.enable *.enabled reward_model.n_gpus_per_node reward_model.nnodes"),
    "reward_gpus": Switch(
        "reward_model.n_gpus_per_node reward_model.nnodes", "reward_model.enable_resource_pool and reward_model.enable",
        "no reward model has GPUs of its own; "),
    "sandbox": Switch(
        "reward.sandbox_fusion.*", "reward.sandbox_fusion.url not in (None, '') and reward_function.path in (None, '')",
        "only veRL's own rewards use a sandbox, at an address; set <reward_function.path>=null "
        "<reward.sandbox_fusion.url>=ADDRESS"),
    "reward_function": Switch(
        "reward_function.name reward_function.reward_kwargs.*", "reward_function.path not in (None, '')",
        "; set <reward_function.path> to the function's file"),
    "manager_path": Switch("manager.module.path", "manager.source == 'importlib'", off=(None,)),
    "manager_name": Switch("manager.module.name", "False", "veRL takes the class that {manager.name} names; "),
    "overlong": Switch(
        "overlong.* reward.reward_kwargs.max_resp_len", "overlong.enable",
        "; set <manager.name>=dapo <overlong.enable>=true <reward.reward_kwargs.max_resp_len>={= data.max_response_length}"),
    "data_class": Switch(
        "data.custom_cls.name", "data.custom_cls.path not in (None, '')", "; set <data.custom_cls.path> to the class's file"),
    "truncation": Switch(
        "data.truncation", "False",
        "veRL does not read this key: long prompts are dropped with filter_overlong_prompts=true, and cut on the left without",
        off=("left",)),
    "data_seed": Switch("data.seed", "data.shuffle", "prompts keep the order of the files"),
    "filter_workers": Switch("data.filter_overlong_prompts_workers", "data.filter_overlong_prompts"),
    # Checkpoints, validation and the record of a run.
    "saves": Switch(_SAVED, "trainer.save_freq > 0", "no checkpoint is saved; set <trainer.save_freq> to a number of steps"),
    "kept_checkpoints": Switch(
        "trainer.max_actor_ckpt_to_keep trainer.max_critic_ckpt_to_keep", "not trainer.remove_previous_ckpt_in_save",
        "one checkpoint is kept; set <trainer.remove_previous_ckpt_in_save>=false"),
    "loads": Switch(
        "actor.checkpoint.load_contents trainer.del_local_ckpt_after_load", "trainer.resume_mode != 'disable'",
        "nothing is loaded; set <trainer.resume_mode>=auto"),
    "resume_path": Switch("trainer.resume_from_path", "trainer.resume_mode == 'resume_path'"),
    "validation": Switch(
        "validation.* data.val_max_samples data.val_batch_size trainer.validation_data_dir trainer.log_val_generations",
        _VALIDATES, "the run does not validate; set <trainer.test_freq>=10 or <trainer.val_before_train>=true"),
    "logged_responses": Switch(
        "trainer.log_val_generations", f"loggers & {{*{_TABLES}}} or not {_VALIDATES}",
        f"no logger of {{trainer.logger}} shows responses; add one of {', '.join(_TABLES)} to <trainer.logger>"),
    "profiler": Switch(
        "global_profiler.* *.profiler.*", "global_profiler.steps is not None",
        "nothing is profiled; set <global_profiler.steps> to a list of steps", without=""),
}  # fmt: skip
