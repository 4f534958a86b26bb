"""List settings that need other settings, and sizes and lengths that have to fit each other.

Every row was read in the code of veRL 0.9.1: its v1 trainer, workers, FSDP engine and reward loop. tests/checks/test_rules.py
has one case for each row of the first table.
"""

from __future__ import annotations

from functools import partial

from verl_trgrpo.checks.tables import Rule
from verl_trgrpo.checks.view import OWN_MANAGER, OWN_REWARDS
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.keys import LOSS, MANAGER_OPTIONS, REWARD
from verl_trgrpo.tasks.answer_form import CUT_OFF
from verl_trgrpo.tasks.task import Score

_Warning = partial(Rule, level=Level.WARNING)
# Estimators that compare the responses of a group.
_OF_GROUPS = (
    "grpo", "tr_grpo", "reinforce_rej", "ha_dw", "rloo", "opo", "grpo_passk", "gpg", "reinforce_plus_plus_baseline",
    "optimal_token_baseline",
)  # fmt: skip
# Parts of this package's rewards; `reward` is veRL's name for the sum.
_METRICS = ("reward", *Score(0.0, acc=0.0).as_dict(), CUT_OFF, "overlong_reward", "overlong")
# What veRL's estimators read and its v1 trainer does not give them (trainer_base.py, _compute_advantage, 0.9.1), and what else to
# choose.
_NOT_ON_V1 = {
    "remax": ("the reward of a greedy response to each prompt", "algorithm=rloo"),
    "gdpo": ("the parts of the reward", "algorithm=gdpo, this project's"),
    "optimal_token_baseline": ("the sums of squared probabilities", "algorithm=opo"),
    "tir_optimal_token_baseline": ("the sums of squared probabilities", "algorithm=opo"),
}
# Token weights that depend on p, or on the entropy.
_WEIGHS_P = "loss.shaping.name not in (None, 'uniform', 'random_subset')"
_BUFFER = "'group_metrics_buffer' not in (sampler.custom_sampler.path or '')"
_CALLS_DAPO = "overlong.enable and manager.name == 'dapo'"
_LONGEST = "reward.reward_kwargs.max_resp_len"
_SEPARATE = "trainer.v1.trainer_mode == 'separate_async'"
_HAS_LORA = "(model.lora_rank or 0) > 0"
# Below it the likeliest token alone is nearly always all that is left.
_TINY_TOP_P = 0.1

RULES = (
    _Warning("algorithm.use_pf_ppo", "algorithm.adv_estimator == 'gae'", "has no effect; set it to false"),
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
    *(Rule("algorithm.adv_estimator", "False",
           f"veRL's v1 trainer does not give it {column}, the first step would fail; use {other}, or trainer.use_v1=false",
           asked=f"algorithm.adv_estimator == {name!r}", v1=True)
      for name, (column, other) in _NOT_ON_V1.items()),
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
    Rule("correction.rollout_rs",
         "correction.rollout_rs_threshold is not None or correction.bypass_mode or not rollout.calculate_log_probs",
         "{correction.rollout_rs_threshold} ends the run at its first step; set that"),
    _Warning("correction.loss_type", "loss.loss_mode == 'bypass_mode'",
             f"veRL's v1 trainer does not read it; set {LOSS}.loss_mode=bypass_mode and {LOSS}.rollout_correction.loss_type "
             "(on the command line with a plus)", asked="correction.loss_type not in (None, 'ppo_clip')", v1=True),
    Rule("correction.bypass_mode", "rollout.calculate_log_probs",
         "takes the log-probabilities of the rollout, which does not compute them: the first step fails"),
    Rule("ray_init.num_gpus", "ray_init.num_gpus >= trainer.n_gpus_per_node * trainer.nnodes",
         "Ray would have fewer GPUs than these nodes, and veRL fails; raise it, or leave it out and start the nodes with "
         "`ray start`", asked="ray_init.num_gpus is not None"),
    _Warning("ray_init.dashboard_host", "ray_init.dashboard_host in ('127.0.0.1', '::1', 'localhost')",
             "Ray's dashboard, which runs code for whoever has its token, is open to other machines; leave it out"),
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
    Rule("overlong.len", f"0 < (overlong.len or 0) and (overlong.len or 0) <= ({_LONGEST} or overlong.len)",
         "veRL's reward workers fail unless it is at least 1 and at most max_resp_len; correct it", asked=_CALLS_DAPO),
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
    Rule("algorithm.filter_groups.enable", "reward_model.enable_resource_pool or not reward_model.enable",
         "needs rewards before a batch is complete", v1=True),
    _Warning("data.gen_batch_size", "not algorithm.filter_groups.enable",
             "has no effect, prompts are drawn one by one; remove it", asked="data.gen_batch_size not in (None, 1)", v1=True),
    Rule("algorithm.filter_groups.enable", f"{_BUFFER} or sampler.sampler_kwargs.filter_groups.enable",
         "has no effect with {sampler.sampler_kwargs.filter_groups.enable}, from which the replay buffer takes it; make "
         "sampler_kwargs.filter_groups an interpolation of algorithm.filter_groups"),
    _Warning("trainer.checkpoint_callback_class", "trainer.checkpoint_callback_class not in (None, '')",
             "a resumed run would forget what {algorithm.adv_estimator} has learned of past batches; set it as run_defaults.yaml "
             "does", asked="algorithm.adv_estimator == 'ha_dw'"),
    Rule("trainer.use_v1", "trainer.use_v1 or trainer.save_freq <= 0 or trainer.resume_mode == 'disable'",
         "a run that resumes would forget the history of {algorithm.adv_estimator}, which only veRL's v1 trainer saves; set it "
         "to true, or trainer.resume_mode to disable", asked="algorithm.adv_estimator == 'ha_dw'"),
    Rule("data.gen_batch_size", "data.train_batch_size % data.gen_batch_size == 0",
         "veRL draws whole batches of this size and fails at step 1 with {data.train_batch_size}; set data.gen_batch_size to a "
         "divisor of data.train_batch_size",
         asked="data.gen_batch_size is not None and trainer.v1.trainer_mode == 'sync' and not algorithm.filter_groups.enable",
         v1=True),
    *(Rule(f"rollout.{name}_length", f"rollout.{name}_length == data.max_{name}_length",
           "with {data.max_" + name + "_length} veRL's rollout cuts at another length than the rest of the run; set that, and "
           "remove this", asked="True")
      for name in ("prompt", "response")),
    *(Rule(f"rollout.{name}", sensible, "all responses to a prompt are nearly alike, and there is nothing to compare; set it to "
           f"{off}", asked="True")
      for name, sensible, off in (("top_k", "rollout.top_k != 1", -1), ("top_p", f"rollout.top_p > {_TINY_TOP_P}", 1.0))),
    *(_Warning(f"rollout.{name}", "False", "responses come from another distribution than the one whose probabilities the loss "
               f"takes, so ratios and token weights are biased; set it to {off} unless you study this", asked=asked)
      for name, asked, off in (("top_k", "rollout.top_k > 1", -1), ("top_p", f"{_TINY_TOP_P} < rollout.top_p < 1", 1.0))),
    # These shapings leave out tokens themselves.
    _Warning("actor.clip_ratio_high", "actor.clip_ratio_high <= 1",
             "a probability may grow {= 1 + actor.clip_ratio_high}-fold before it is clipped; 0.2 to 0.28 is usual",
             asked="actor.clip_ratio_high and loss.loss_mode in ('vanilla', 'tr_grpo') and "
             "loss.shaping.name not in ('cppo', 'ipo_mask')"),
    _Warning("optim.lr", "False", "updates change nothing; raise it", asked="optim.lr == 0"),
    _Warning("optim.lr_warmup_steps_ratio", "optim.lr_warmup_steps_ratio < 1",
             "the warm-up takes the whole run, so {optim.lr} is never reached; lower it",
             asked="(optim.lr_warmup_steps or -1) < 0"),
    _Warning("engine.model_dtype", "optim.lr > 1e-5", "with {optim.lr} most updates are smaller than the spacing of bfloat16 "
             "weights, and are lost; set it to fp32", asked="engine.model_dtype in ('bf16', 'bfloat16')"),
    Rule("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.horizon > 0", "it adapts within that many steps; set it to 10000",
         asked="algorithm.use_kl_in_reward and algorithm.kl_ctrl.type == 'adaptive'"),
    Rule("reward_model.enable", "reward_model.model_path not in (None, '')", "there is no model to load; set model_path, or "
         f"{REWARD}.path to a function"),
    Rule("model.lora_alpha", "model.lora_alpha != 0", "the adapter is multiplied by 0 and learns nothing; set it to lora_rank or "
         "twice that", asked=_HAS_LORA),
    Rule("trainer.v1.trainer_mode",
         "data.train_batch_size == trainer.v1.separate_async.parameter_sync_step * actor.ppo_mini_batch_size",
         "veRL takes {data.train_batch_size} only if it is {trainer.v1.separate_async.parameter_sync_step} times "
         "{actor.ppo_mini_batch_size}; correct one of them", asked=_SEPARATE, v1=True),
    Rule("rollout.nnodes", "rollout.nnodes > 0 and rollout.n_gpus_per_node > 0",
         "separate_async samples on GPUs of the rollout alone; set actor_rollout_ref.rollout.nnodes and "
         "actor_rollout_ref.rollout.n_gpus_per_node to 1 or more", asked=_SEPARATE, v1=True),
    Rule("rollout.checkpoint_engine.backend", "rollout.checkpoint_engine.backend != 'naive'",
         "it carries no weights to other GPUs; set "
         "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl", asked=_SEPARATE, v1=True),
    Rule("reward_model.enable_resource_pool", "reward_model.enable_resource_pool",
         "a rollout of its own never leaves GPUs to the reward model", asked=f"{_SEPARATE} and reward_model.enable", v1=True),
    Rule("trainer.v1.trainer_mode", "model.lora.merge",
         "a rollout of its own gets the weights of the base model and no adapter, so it never samples from what is trained "
         "(veRL issue 7495)", asked=f"{_SEPARATE} and {_HAS_LORA}", v1=True),
    _Warning("trainer.v1.trainer_mode", "correction.rollout_is is not None or correction.rollout_rs is not None",
             "responses come from older weights than those that are trained, which is not corrected; set "
             "algorithm.rollout_correction.rollout_is=token", asked="trainer.v1.trainer_mode != 'sync'", v1=True),
    _Warning("rollout.ignore_eos", "False", "every response goes on to data.max_response_length; set it to false",
             asked="rollout.ignore_eos"),
    _Warning("rollout.logprobs_mode", "rollout.temperature == 1 and rollout.top_p == 1 and rollout.top_k in (-1, 0)",
             "the rollout logs probabilities before temperature and top-p, which are compared with those of the trainer behind "
             "them; set it to processed_logprobs", asked="rollout.logprobs_mode not in (None, 'processed_logprobs')"),
    _Warning("rollout.repetition_penalty", "False", "has no effect, veRL's agent loop sends 1.0 with each request; remove it",
             asked="rollout.repetition_penalty not in (None, 1)"),
    _Warning("actor.use_kl_loss", "actor.kl_loss_coef != 0",
             "with {actor.kl_loss_coef} the reference model is paid for and has no effect; set it to false, unless a shaping of "
             "your own takes ref_log_prob"),
    _Warning("actor.entropy_coeff", "0 <= actor.entropy_coeff <= 0.1",
             "below 0 it rewards certainty, above 0.1 noise outweighs the reward; choose between 0 and 0.01",
             asked="actor.entropy_coeff"),
    _Warning("actor.kl_loss_coef", "0 <= actor.kl_loss_coef <= 1",
             "the loss is mostly the distance from the reference model; choose between 0 and 0.1", asked="actor.use_kl_loss"),
    _Warning("actor.ppo_epochs", "actor.ppo_epochs <= 10",
             "later passes over a batch are clipped nearly everywhere; 1 to 4 are usual", asked="True"),
    Rule("optim.min_lr_ratio", "optim.min_lr_ratio <= 1",
         "the learning rate would end above {optim.lr}; choose between 0 and 1", asked="optim.min_lr_ratio"),
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
_HEADS, _GROUPS = "decoder['num_attention_heads']", "decoder['num_key_value_heads']"

SIZES = (
    Rule("data.train_batch_size", "rows is None or rows >= data.train_batch_size",
         "data.train_files has {= rows} rows, less than one step; add rows, or lower it"),
    _Warning("trainer.total_training_steps", "not steps_of_epochs or trainer.total_training_steps <= steps_of_epochs",
             "{trainer.total_epochs} of {= rows} rows has {= steps_of_epochs} steps, after which veRL stops, without the "
             "validation and checkpoint of a last step; set trainer.total_epochs="
             "{= -(-trainer.total_training_steps // (rows // data.train_batch_size))}, or "
             "trainer.total_training_steps={= steps_of_epochs}"),
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
    *(Rule(key, f"{_HEADS} % {size} == 0 and (not {_GROUPS} or {_GROUPS} % {size} == 0 or {size} % {_GROUPS} == 0)",
           "{= " + size + "} GPUs cannot share {= " + _HEADS + "} attention heads with {= " + _GROUPS + " or 'as many'} "
           "key-value heads: it has to divide both, or to be a multiple of the latter; choose a divisor",
           asked=f"{_HEADS} and {_KNOWN}")
      for key, size in (("rollout.tensor_model_parallel_size", "rollout.tensor_model_parallel_size"),
                        ("actor.ulysses_sequence_parallel_size", "sequence_parallel"))),
    _Warning("optim.lr_warmup_steps", "updates is None or optim.lr_warmup_steps < updates",
             "the run has {= updates} steps, so {optim.lr} is never reached; lower it"),
)  # fmt: skip

# Lengths against the model, the micro-batches and each other.
_CONTEXT, _VOCABULARY = "decoder['max_position_embeddings']", "decoder['vocab_size']"
# Bytes of logits and their gradients, both in bfloat16, for each token; they may take most of a GPU with 80 GB.
_BYTES, _MOST_BYTES = f"{_VOCABULARY} * 2 * 2", 60 * 2**30

LENGTHS = (
    Rule("rollout.max_model_len", "longest <= rollout.max_model_len",
         "less than {data.max_prompt_length} + {data.max_response_length}, so responses to long prompts would silently be cut; "
         "set it to {= longest}"),
    Rule("data.max_response_length", f"not {_CONTEXT} or longest <= {_CONTEXT}",
         "with {data.max_prompt_length} more than the model's max_position_embeddings={= " + _CONTEXT + "}; shorten one of them"),
    Rule("rollout.max_model_len", f"not {_CONTEXT} or rollout.max_model_len <= {_CONTEXT}",
         "more than the model's max_position_embeddings={= " + _CONTEXT + "}; set it to at most that, {= longest} is enough"),
    *(Rule(f"{key}_max_token_len_per_gpu", f"{key}_max_token_len_per_gpu * sequence_parallel >= longest",
           "times sequence parallel {= sequence_parallel} does not hold one sequence of {= longest} tokens (prompt plus "
           "response); set it to {= -(-longest // sequence_parallel)} or more", asked=used)
      for key, used in (
          ("actor.ppo", "actor.use_dynamic_bsz"), ("rollout.log_prob", "rollout.log_prob_use_dynamic_bsz"),
          ("ref.log_prob", "ref.log_prob_use_dynamic_bsz and (actor.use_kl_loss or algorithm.use_kl_in_reward)"))),
    *(Rule(key, f"not {_VOCABULARY} or {tokens} * {_BYTES} <= {_MOST_BYTES}",
           "the logits of up to {= " + tokens + "} tokens and their gradients take "
           "{= " + f"{tokens} * {_BYTES} // 2**30" + "} GiB with a vocabulary of {= " + _VOCABULARY + "}; lower it, or set "
           "actor_rollout_ref.model.use_fused_kernels=true",
           level=Level.WARNING, asked=f"{key} and {used} and actor.strategy != 'megatron' and not model.use_fused_kernels")
      for key, tokens, used in (
          ("actor.ppo_max_token_len_per_gpu", "actor.ppo_max_token_len_per_gpu", "actor.use_dynamic_bsz"),
          ("actor.ppo_micro_batch_size_per_gpu",
           "(actor.ppo_micro_batch_size_per_gpu * longest // sequence_parallel)", "not actor.use_dynamic_bsz"))),
)  # fmt: skip
