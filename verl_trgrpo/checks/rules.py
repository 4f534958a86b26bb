"""List settings that need other settings, or have no effect unless another one allows it.

Every row was read in the code of veRL 0.9.1: its v1 trainer, workers, FSDP engine and reward loop. tests/checks/test_rules.py
and test_switches.py have one case for each row of the first two tables.
"""

from __future__ import annotations

from functools import partial

from verl_trgrpo.checks.tables import Rule, Switch
from verl_trgrpo.checks.view import OWN_MANAGER, OWN_REWARDS
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.keys import LOSS, MANAGER_OPTIONS
from verl_trgrpo.tasks.answer_form import CUT_OFF
from verl_trgrpo.tasks.registry import Score

_Warning = partial(Rule, level=Level.WARNING)
# Estimators that compare the responses of a group.
_OF_GROUPS = (
    "grpo", "tr_grpo", "reinforce_rej", "ha_dw", "rloo", "opo", "grpo_passk", "gpg", "reinforce_plus_plus_baseline",
    "optimal_token_baseline",
)  # fmt: skip
# Parts of this package's rewards; `reward` is veRL's name for the sum.
_METRICS = ("reward", *Score(0.0, acc=0.0).as_dict(), CUT_OFF, "overlong_reward", "overlong")
# Estimators that read columns which veRL's v1 trainer does not compute (trainer_base.py, _compute_advantage, 0.9.1).
_NOT_ON_V1 = ("remax", "gdpo", "optimal_token_baseline", "tir_optimal_token_baseline")
# Token weights that depend on p, or on the entropy.
_WEIGHS_P = "loss.shaping.name not in (None, 'uniform', 'random_subset')"
_LONGEST = "reward.reward_kwargs.max_resp_len"

RULES = (
    Rule("algorithm.use_pf_ppo", "algorithm.adv_estimator != 'gae'",
         "veRL's v1 trainer gives the advantages of redrawn rows to other responses (veRL issue 7956); set it to false", v1=True),
    _Warning("algorithm.use_kl_in_reward", "not actor.use_kl_loss", "the KL counts twice; set one of them to false"),
    _Warning("loss.kl", "actor.use_kl_loss", "has no effect; set it to plain", asked="loss.kl not in (None, 'plain')"),
    _Warning("loss.kl", "not actor.use_kl_loss",
             "pushes the policy away from the reference where w > 1; use plain or scaled unless you study this form",
             asked="loss.kl == 'literal'"),
    # The sources' own scripts sample at 0.6 to 1.0.
    _Warning("rollout.temperature", "0.6 <= rollout.temperature <= 1.5",
             "token weights take p at this temperature, where constants found near 1 act otherwise (docs/shapings.md); choose "
             "them for it, or sample nearer to 1", asked=_WEIGHS_P),
    Rule("algorithm.adv_estimator", f"algorithm.adv_estimator not in {_NOT_ON_V1}",
         "veRL's v1 trainer does not give it what it reads, the first step would fail; use rloo or opo, or trainer.use_v1=false",
         asked="True", v1=True),
    _Warning("loss.loss_mode",
             "not actor.use_dynamic_bsz and actor.ppo_micro_batch_size_per_gpu is not None and "
             "actor.ppo_micro_batch_size_per_gpu * (trainer.n_gpus_per_node * trainer.nnodes // sequence_parallel) "
             ">= actor.ppo_mini_batch_size * rollout.n",
             "with {actor.use_dynamic_bsz} and {actor.ppo_micro_batch_size_per_gpu} veRL adds up the means of micro-batches, so "
             "the gradient grows with their number; set use_dynamic_bsz to false and ppo_micro_batch_size_per_gpu to a GPU's "
             "share of ppo_mini_batch_size times rollout.n", asked="loss.loss_mode == 'geo_mean'"),
    Rule("loss.loss_mode", "loss.dro_beta not in (None, 0)", "has no penalty; set dro_beta to a number above 0, such as 1.0",
         asked="loss.loss_mode in ('dro', 'tr_dro')"),
    Rule("rollout.n", f"algorithm.adv_estimator not in {_OF_GROUPS}",
         "{algorithm.adv_estimator} compares the responses of a group, and a group of one has none to compare; use 5 or more",
         asked="rollout.n == 1"),
    Rule("rollout.log_prob_use_dynamic_bsz", "rollout.log_prob_use_dynamic_bsz == actor.use_dynamic_bsz",
         "both must be equal; set them to the same value", asked="True"),
    Rule("actor.ulysses_sequence_parallel_size", "model.override_config.attn_implementation in (None, 'flash_attention_2')",
         "it does not split sequences, so the loss would silently be wrong; use flash_attention_2, or a size of 1",
         asked="sequence_parallel > 1"),
    _Warning("optim.lr", "'Adam' not in (optim.optimizer or '')",
             "moves every weight by about that much in a step; 1e-6 is usual", asked="optim.lr > 0.01"),
    _Warning("manager.name", f"manager.source == 'importlib' and manager.module.path == {OWN_MANAGER!r}",
             "the rewards may not get the prompt, so an answer may be read in the wrong place",
             asked=f"reward_function.path == {OWN_REWARDS!r}"),
    *(_Warning(f"correction.{name}", "rollout.calculate_log_probs and not correction.bypass_mode",
               "has no effect, responses are not corrected", v1=True)
      for name in ("rollout_is", "rollout_rs")),
    _Warning("correction.rollout_is", "correction.rollout_is_threshold is not None",
             "has no effect; set the threshold to 2.0, or another bound of the weights"),
    _Warning("correction.loss_type", "loss.loss_mode == 'bypass_mode'",
             f"veRL's v1 trainer does not read it; set {LOSS}.loss_mode=bypass_mode and {LOSS}.rollout_correction.loss_type "
             "(on the command line with a plus)", asked="correction.loss_type not in (None, 'ppo_clip')", v1=True),
    _Warning("actor.checkpoint.async_save", "actor.strategy == 'megatron'",
             "has no effect, but veRL then does not record which checkpoint is the latest; set it to false", v1=True),
    Rule("trainer.val_only", "trainer.val_before_train", "the run would train instead of validating"),
    Rule("trainer.critic_warmup", "needs_critic",
         "the run has no critic, and the policy would not be updated before that step; set it to 0",
         asked="trainer.critic_warmup > 1"),
    _Warning("validation.do_sample", "validation.temperature > 0",
             "has no effect, validation is greedy; set the temperature to 1.0, or do_sample to false", v1=True),
    _Warning("validation.temperature", "validation.do_sample",
             "validation samples at it, veRL's v1 trainer does not read do_sample; set that to true, or the temperature to 0 for "
             "greedy responses", asked="validation.temperature > 0", v1=True),
    _Warning("validation.n", "validation.temperature > 0",
             "all responses to a prompt are equal; set n to 1, or the temperature to 1.0", asked="validation.n > 1", v1=True),
    _Warning("rollout.multi_turn.enable", "may_call_tools",
             "has no effect with {rollout.agent.default_agent_loop} and no row that names another, responses have one turn; set "
             "that to tool_agent", v1=True),
    _Warning("overlong.enable", "manager.name == 'dapo'", "has no effect"),
    Rule("overlong.enable", f"manager.name != 'dapo' or {_LONGEST} is not None",
         f"needs {MANAGER_OPTIONS}.max_resp_len, and veRL's reward workers fail without it; set that (on the command line with "
         "a plus) to {data.max_response_length}"),
    _Warning(_LONGEST, f"({_LONGEST} or 0) - (overlong.len or 0) < data.max_response_length",
             "max_resp_len - len must be smaller than data.max_response_length, otherwise nothing is penalized; set max_resp_len "
             "to data.max_response_length", asked="overlong.enable"),
    _Warning("actor.loss_agg_mode", "actor.loss_scale_factor is not None",
             "with {actor.loss_scale_factor} veRL divides by the longest response of a micro-batch, so the loss depends on how a "
             "batch is cut; set that to {data.max_response_length}", asked="actor.loss_agg_mode == 'seq-mean-token-sum-norm'"),
    *(Rule(name, f"actor.use_dynamic_bsz or {name}_per_gpu is not None",
           "veRL's v1 trainer does not read it and fails; set " + "{" + f"{name}_per_gpu" + "} to a number instead", v1=True)
      for name in ("actor.ppo_micro_batch_size", "rollout.log_prob_micro_batch_size")),
    _Warning("algorithm.filter_groups.max_num_gen_batches", "False",
             "veRL's v1 trainer does not stop after that many batches; remove it, max_inflight_gen_batches bounds how many are "
             "drawn at a time",
             asked="algorithm.filter_groups.enable and algorithm.filter_groups.max_num_gen_batches > 0", v1=True),
    Rule("algorithm.filter_groups.metric",
         f"algorithm.filter_groups.metric in {_METRICS} or reward_function.path != {OWN_REWARDS!r} or may_call_tools",
         f"no reward of this package reports it, and veRL fails at the first step; set it to one of {', '.join(_METRICS)}",
         asked="algorithm.filter_groups.enable", v1=True),
    Rule("trainer.use_v1", "trainer.use_v1 or trainer.save_freq <= 0 or trainer.resume_mode == 'disable'",
         "a run that resumes would forget the history of {algorithm.adv_estimator}, which only veRL's v1 trainer saves; set it "
         "to true, or trainer.resume_mode to disable", asked="algorithm.adv_estimator == 'ha_dw'"),
    *(Rule(f"rollout.{name}_length", f"rollout.{name}_length == data.max_{name}_length",
           "with {data.max_" + name + "_length} veRL's rollout cuts at another length than the rest of the run; set that, and "
           "remove this", asked="True")
      for name in ("prompt", "response")),
    *(_Warning(f"rollout.{name}", "False", "responses come from another distribution than the one whose probabilities the loss "
               f"takes, so ratios and token weights are biased; set it to {off} unless you study this", asked=asked)
      for name, asked, off in (("top_k", "rollout.top_k > 0", -1), ("top_p", "rollout.top_p < 1", 1.0))),
    # These shapings leave out tokens themselves.
    _Warning("actor.clip_ratio_high", "actor.clip_ratio_high <= 1",
             "a probability may grow {= 1 + actor.clip_ratio_high}-fold before it is clipped; 0.2 to 0.28 is usual",
             asked="actor.clip_ratio_high and loss.loss_mode in ('vanilla', 'tr_grpo') and "
             "loss.shaping.name not in ('cppo', 'ipo_mask')"),
    _Warning("optim.lr", "False", "updates change nothing; raise it", asked="optim.lr == 0"),
    _Warning("engine.model_dtype", "optim.lr > 1e-5", "with {optim.lr} most updates are smaller than the spacing of bfloat16 "
             "weights, and are lost; set it to fp32", asked="engine.model_dtype in ('bf16', 'bfloat16')"),
)  # fmt: skip

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
_HAS_LORA = "(model.lora_rank or 0) > 0 or (model.lora.rank or 0) > 0 or model.lora_adapter_path is not None"
_VALIDATES = "(trainer.test_freq > 0 or trainer.val_before_train)"
_SEPARATE = "trainer.v1.trainer_mode == 'separate_async'"
_SAVED = "trainer.max_actor_ckpt_to_keep trainer.default_hdfs_dir actor.checkpoint.save_contents"

SWITCHES = (
    Switch("critic.* trainer.max_critic_ckpt_to_keep", "needs_critic",
           "the run has no critic with {critic.enable} and {algorithm.adv_estimator}; remove it, or set critic.enable=true"),
    Switch("algorithm.kl_ctrl.horizon algorithm.kl_ctrl.target_kl",
           "algorithm.kl_ctrl.type == 'adaptive' or not algorithm.use_kl_in_reward"),
    Switch("actor.kl_loss_coef actor.kl_loss_type", "actor.use_kl_loss", off=(0,)),
    # A recipe may say where a reference model is kept for those algorithms that have one.
    Switch("ref.*", "actor.use_kl_loss or algorithm.use_kl_in_reward",
           "the run has no reference model; remove it, or set one of them to true", without="*.strategy *.fsdp_config.*"),
    Switch("algorithm.gamma algorithm.lam", f"algorithm.adv_estimator not in {_WITHOUT_DISCOUNT}",
           "which does not discount"),
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
    Switch("engine.offload_policy", "actor.strategy != 'fsdp'", "; set that to fsdp2, or param_offload=true"),
    Switch("engine.strategy", "engine.strategy == actor.strategy", "{actor.strategy} replaces it; set that", without=""),
    Switch("actor.use_torch_compile", "engine.use_torch_compile == actor.use_torch_compile",
           "the engine reads {engine.use_torch_compile}; set that"),
    Switch("actor.use_remove_padding", "model.use_remove_padding == actor.use_remove_padding",
           "{model.use_remove_padding} replaces it; set that"),
    Switch("actor.use_fused_kernels", "model.use_fused_kernels == actor.use_fused_kernels",
           "{model.use_fused_kernels} replaces it; set that"),
    Switch("actor.entropy_from_logits_chunk_size engine.entropy_from_logits_chunk_size",
           "engine.entropy_from_logits_with_chunking"),
    Switch("engine.param_offload engine.optimizer_offload", "actor.strategy != 'fsdp2' or not engine.offload_policy",
           "which moves both; remove it"),
    Switch("rollout.layered_summon model.lora_alpha model.target_modules model.exclude_modules model.lora.*",
           _HAS_LORA, "{model.lora_rank} is no LoRA adapter; remove it, or set that to the rank of one"),
    Switch("rollout.n_gpus_per_node rollout.nnodes", _SEPARATE,
           "responses are sampled on the GPUs of the trainer; remove it"),
    Switch("rollout.checkpoint_engine.backend", _SEPARATE, "weights go through shared memory; remove it"),
    Switch("validation.top_p validation.top_k", "validation.temperature > 0",
           "validation is greedy; remove it, or set that to 1.0"),
    Switch("rollout.custom.search.*", "may_search",
           "no response searches with {rollout.agent.default_agent_loop} and these rows; remove it, or set agent=search_tags"),
    Switch("reward_function.name reward_function.reward_kwargs.*", "reward_function.path not in (None, '')",
           "; set that to the file of the function"),
    Switch("manager.module.path", "manager.source == 'importlib'", off=(None,)),
    Switch("data.truncation", "False", "with {data.filter_overlong_prompts} veRL leaves out prompts that are too long if that "
           "is true, and else cuts them from the left; remove it", off=("left",)),
    Switch("data.seed", "data.shuffle", "prompts keep the order of the files"),
    Switch(_SAVED, "trainer.save_freq > 0", "no checkpoint is saved; remove it, or set that to a number of steps"),
    Switch("actor.checkpoint.load_contents trainer.del_local_ckpt_after_load", "trainer.resume_mode != 'disable'",
           "nothing is loaded"),
    Switch("validation.* data.val_max_samples data.val_batch_size trainer.validation_data_dir trainer.log_val_generations",
           _VALIDATES, "the run does not validate; set one of them"),
    Switch("global_profiler.* *.profiler.*", "global_profiler.steps is not None",
           "nothing is profiled; remove it, or set that to a list of steps", without=""),
    Switch("trainer.resume_from_path", "trainer.resume_mode == 'resume_path'"),
    Switch("trainer.v1.separate_async.*", _SEPARATE),
    Switch("rollout.do_sample", "False", "training samples at {rollout.temperature}; remove it"),
    Switch("algorithm.kl_ctrl.* algorithm.kl_penalty", "algorithm.use_kl_in_reward", off=(0,)),
    Switch("overlong.* reward.reward_kwargs.max_resp_len", "overlong.enable"),
    Switch("algorithm.pf_ppo.*", "algorithm.use_pf_ppo"),
    Switch("model.fused_kernel_options.*", "model.use_fused_kernels"),
    *(Switch(f"{section}.*", f"{section}.enable") for section in (
        "algorithm.filter_groups", "engine.qat", "model.mtp", "reward_model", "rollout.prometheus", "skip.rollout_tq")),
    *(Switch(f"{section}.*", f"{section}.enabled") for section in (
        "distillation", "model.tiled_mlp", "rollout.disaggregation")),
)  # fmt: skip

# How a step is split into updates, micro-batches and GPUs, some of which veRL meets at step 1.
_KNOWN = "actor.strategy != 'megatron'"
# Without a data-parallel size the rest cannot be computed.
_SPLIT = f"{_KNOWN} and gpus % sequence_parallel == 0"
_WHOLE = f"{_SPLIT} and actor.ppo_mini_batch_size * rollout.n % data_parallel == 0"
# Responses of one data-parallel group: of an update, and of a step, which veRL fills up to a multiple of an update.
_UPDATE = "actor.ppo_mini_batch_size * rollout.n // data_parallel"
_STEP = (
    "-(-data.train_batch_size // actor.ppo_mini_batch_size) * actor.ppo_mini_batch_size * rollout.n // data_parallel"
)
_REFERENCE = "(actor.use_kl_loss or algorithm.use_kl_in_reward) and not ref.log_prob_use_dynamic_bsz"

SIZES = (
    Rule("data.train_batch_size", "rows is None or rows >= data.train_batch_size",
         "data.train_files has {= rows} rows, less than one step; add rows, or lower it"),
    _Warning("trainer.total_training_steps", "not steps_of_epochs or trainer.total_training_steps <= steps_of_epochs",
             "{trainer.total_epochs} of {= rows} rows has {= steps_of_epochs} steps, after which veRL stops, without the "
             "validation and checkpoint of a last step; set trainer.total_epochs="
             "{= -(-trainer.total_training_steps // (rows // data.train_batch_size))}, or it to {= steps_of_epochs}"),
    Rule("actor.strategy", _KNOWN, "how it splits a model over GPUs is not known here", level=Level.NOT_CHECKED),
    Rule("rollout.tensor_model_parallel_size",
         "gpus % (rollout.tensor_model_parallel_size * rollout.data_parallel_size) == 0",
         "times {rollout.data_parallel_size} does not divide the {= gpus} GPUs (trainer.n_gpus_per_node x trainer.nnodes); "
         "choose a divisor", asked=_KNOWN),
    Rule("actor.ulysses_sequence_parallel_size", "gpus % sequence_parallel == 0",
         "{= sequence_parallel}, which share a sequence, do not divide the {= gpus} GPUs; choose a divisor", asked=_KNOWN),
    Rule("actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size <= data.train_batch_size",
         "more than {data.train_batch_size} (both count prompts); choose a divisor", asked=_SPLIT),
    _Warning("actor.ppo_mini_batch_size", "data.train_batch_size % actor.ppo_mini_batch_size == 0",
             "does not divide {data.train_batch_size}, so veRL fills the last update with empty responses; choose a divisor",
             asked=f"{_SPLIT} and actor.ppo_mini_batch_size < data.train_batch_size"),
    Rule("actor.ppo_mini_batch_size", "actor.ppo_mini_batch_size * rollout.n % data_parallel == 0",
         "times {rollout.n} = {= actor.ppo_mini_batch_size * rollout.n} responses of an update cannot be split over "
         "{= data_parallel} data-parallel groups; change it, or the number of GPUs", asked=_SPLIT),
    *(Rule(key, f"not {key} or ({whole}) % {key} == 0",
           "does not divide the {= " + whole + "} responses of one data-parallel group; choose a divisor",
           asked=f"{_WHOLE} and {used}")
      for key, whole, used in (
          ("rollout.log_prob_micro_batch_size_per_gpu", _STEP, "not rollout.log_prob_use_dynamic_bsz"),
          ("actor.ppo_micro_batch_size_per_gpu", _UPDATE, "not actor.use_dynamic_bsz"),
          ("ref.log_prob_micro_batch_size_per_gpu", _STEP, _REFERENCE))),
    _Warning("optim.lr_warmup_steps", "steps is None or optim.lr_warmup_steps < steps",
             "the run has {= steps} steps, so {optim.lr} is never reached; lower it",
             asked="optim.lr_warmup_steps and trainer.v1.trainer_mode != 'separate_async'"),
)  # fmt: skip

# Lengths against the model, the micro-batches and each other.
_CONTEXT = "decoder['max_position_embeddings']"

LENGTHS = (
    Rule("rollout.max_model_len", "longest <= rollout.max_model_len",
         "less than {data.max_prompt_length} + {data.max_response_length}, so responses to long prompts would silently be cut; "
         "set it to {= longest}"),
    Rule("data.max_response_length", f"not {_CONTEXT} or longest <= {_CONTEXT}",
         "with {data.max_prompt_length} more than the model's max_position_embeddings={= " + _CONTEXT + "}; shorten one of them"),
    *(Rule(f"{key}_max_token_len_per_gpu", f"{key}_max_token_len_per_gpu * sequence_parallel >= longest",
           "times sequence parallel {= sequence_parallel} does not hold one sequence of {= longest} tokens (prompt plus "
           "response); set it to {= -(-longest // sequence_parallel)} or more", asked=used)
      for key, used in (
          ("actor.ppo", "actor.use_dynamic_bsz"), ("rollout.log_prob", "rollout.log_prob_use_dynamic_bsz"),
          ("ref.log_prob", "ref.log_prob_use_dynamic_bsz and (actor.use_kl_loss or algorithm.use_kl_in_reward)"))),
)  # fmt: skip
