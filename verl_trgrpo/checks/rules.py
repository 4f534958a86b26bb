"""List settings that need other settings, by name.

Every row was read in the code of veRL 0.9.1: its v1 trainer, workers, FSDP engine and reward loop. tests/checks/test_rules.py
has a case for each name.
"""

from __future__ import annotations

from functools import partial

from verl_trgrpo.checks.estimators import OF_GROUPS
from verl_trgrpo.checks.tables import HAS_LORA, SEPARATE, Rule
from verl_trgrpo.checks.view import OWN_MANAGER, OWN_REWARDS
from verl_trgrpo.common.findings import Level
from verl_trgrpo.core.off_policy_shapings import COEFFICIENTS
from verl_trgrpo.data.rows import CUT_OFF
from verl_trgrpo.tasks.task import Score

_Warning = partial(Rule, level=Level.WARNING)
# Parts of this package's rewards; `reward` is veRL's name for the sum.
_METRICS = ("reward", *Score(0.0, acc=0.0).as_dict(), CUT_OFF, "overlong_reward", "overlong")
# Token weights that depend on p, or on the entropy.
_WEIGHS_P = "loss.shaping.name not in (None, 'uniform', 'random_subset')"
_BUFFER = "'group_metrics_buffer' not in (sampler.custom_sampler.path or '')"
_LONGEST = "reward.reward_kwargs.max_resp_len"
# Below it the likeliest token alone is nearly always all that is left.
_TINY_TOP_P = 0.1
_PLAIN_KL = "set {= 'algorithm=tr_grpo' if algorithm_name == 'tr_grpo_published' else '<loss.kl>=plain'}"
_ADDED_MEANS = "veRL adds up the means of micro-batches, so the gradient grows with their number"
_WHOLE_UPDATE = "{= -(-actor.ppo_mini_batch_size * rollout.n // data_parallel)}"
# Log-probabilities in micro-batches of a fixed size.
_FIXED = (
    "<rollout.log_prob_use_dynamic_bsz>=false <rollout.log_prob_micro_batch_size_per_gpu>="
    "{= rollout.log_prob_micro_batch_size_per_gpu or 1}{= ' <ref.log_prob_use_dynamic_bsz>=false "
    "<ref.log_prob_micro_batch_size_per_gpu>=%s' % (ref.log_prob_micro_batch_size_per_gpu or 1) if has_reference else ''}"
)
_OPO = "use algorithm=opo <actor.ppo_mini_batch_size>={= data.train_batch_size} in its place"
_OWN_GPUS = "separate_async samples on GPUs of the rollout alone"
_ALIKE = "all responses to a prompt are nearly alike, so the advantages have no signal; set"
_BIASED = (
    "responses are not sampled from the distribution whose probabilities the loss uses, so ratios and token weights are "
    "biased; set"
)


def _not_on_v1(estimator: str, lacks: str, remedy: str) -> Rule:
    """Return the rule of an estimator that reads what veRL's v1 trainer does not give it (`_compute_advantage`)."""
    reason = f"veRL's v1 trainer does not compute {lacks}, so the first step would fail"
    asked = f"algorithm.adv_estimator == {estimator!r}"
    return Rule("algorithm.adv_estimator", "False", f"{reason}; {remedy}, or set trainer.use_v1=false", asked, v1=True)


def _not_corrected(key: str) -> Rule:
    """Return the rule of a correction for which veRL lacks the probabilities of the rollout, or of a second old policy.

    With bypass_mode the trainer before v1 sets another loss, in the configuration of its driver, which no worker reads.
    """
    return _Warning(key, "rollout.calculate_log_probs and not correction.bypass_mode",
                    "has no effect, responses are not corrected")  # fmt: skip


def _replaced_size(key: str, used: str = "True") -> Rule:
    """Return the rule of a size of all GPUs together, in the place of which veRL reads that of one GPU."""
    reason = "veRL's v1 trainer does not read this key and fails; set <KEY_per_gpu>={= KEY // data_parallel or 1}, a GPU's share"
    reason = reason.replace("KEY", key)
    return Rule(key, f"{key}_per_gpu is not None or actor.use_dynamic_bsz", reason, f"{key} and ({used})", v1=True)


def _saved(section: str, used: str) -> Rule:
    """Return a rule for what a checkpoint of a model has to have; of weights for Hugging Face, veRL reads none back with FSDP."""
    asked, there = (f"{section}.checkpoint.{which}_contents" for which in ("load", "save"))
    kinds, held = (f"{{*({key} if {key} is not None else ('model', 'optimizer', 'extra'))}}" for key in (asked, there))
    return Rule(
        asked, f"{kinds} - {{'hf_model'}} <= {held}",
        f"a checkpoint has {{{there}}} alone, so a run that resumes fails; set <{asked}>={{= {there}}}, or save what is loaded",
        asked=f"trainer.resume_mode != 'disable' and trainer.save_freq > 0 and {used}")  # fmt: skip


def _same_length(rollout: str, data: str) -> Rule:
    """Return the rule of a length that veRL reads in two places."""
    reason = "with {DATA} veRL's rollout cuts at another length than the rest of the run; set <DATA>={= KEY}, and remove <KEY>"
    return Rule(rollout, f"{rollout} == {data}", reason.replace("DATA", data).replace("KEY", rollout), asked="True")


RULES = {
    "pf_ppo_without_critic": _Warning(
        "algorithm.use_pf_ppo", "algorithm.adv_estimator == 'gae'", "has no effect; set <algorithm.use_pf_ppo>=false"),
    "pf_ppo_with_critic": Rule(
        "algorithm.use_pf_ppo", "algorithm.adv_estimator != 'gae'",
        "veRL's v1 trainer gives the advantages of redrawn rows to other responses (veRL issue 7956); set "
        "<algorithm.use_pf_ppo>=false", v1=True),
    "kl_twice": _Warning("algorithm.use_kl_in_reward", "not actor.use_kl_loss", "the KL counts twice"),
    "kl_form_without_kl": _Warning(
        "loss.kl", "actor.use_kl_loss", f"has no effect; {_PLAIN_KL}", asked="loss.kl not in (None, 'plain')"),
    "kl_literal": _Warning(
        "loss.kl", "not actor.use_kl_loss",
        f"pushes the policy away from the reference where w > 1; {_PLAIN_KL}, unless you study this form",
        asked="loss.kl == 'literal'"),
    # The sources' own scripts sample at 0.6 to 1.0.
    "temperature_of_weights": _Warning(
        "rollout.temperature", "0.6 <= rollout.temperature <= 1.5",
        "token weights use probabilities at this temperature, and the constants of the weights were chosen for temperatures near "
        "1 (docs/shapings.md); set <rollout.temperature>=1.0, or tune the constants of the shaping", asked=_WEIGHS_P),
    "remax_on_v1": _not_on_v1("remax", "the reward of a greedy response to each prompt", "use algorithm=rloo in its place"),
    "gdpo_on_v1": _not_on_v1(
        "gdpo", "the parts of the reward", "use algorithm=gdpo of examples/more_methods in its place"),
    "otb_on_v1": _not_on_v1("optimal_token_baseline", "the sums of squared probabilities", _OPO),
    "tir_otb_on_v1": _not_on_v1("tir_optimal_token_baseline", "the sums of squared probabilities", _OPO),
    "geo_mean_dynamic_batches": _Warning(
        "loss.loss_mode", "not actor.use_dynamic_bsz",
        f"{_ADDED_MEANS}; set <actor.use_dynamic_bsz>=false <actor.ppo_micro_batch_size_per_gpu>={_WHOLE_UPDATE} {_FIXED}",
        asked="loss.loss_mode == 'geo_mean'"),
    "geo_mean_micro_batches": _Warning(
        "loss.loss_mode",
        "(actor.ppo_micro_batch_size_per_gpu or 0) * data_parallel >= actor.ppo_mini_batch_size * rollout.n",
        f"{_ADDED_MEANS}; set <actor.ppo_micro_batch_size_per_gpu>={_WHOLE_UPDATE}",
        asked="loss.loss_mode == 'geo_mean' and not actor.use_dynamic_bsz"),
    "dro_without_penalty": Rule(
        "loss.loss_mode", "loss.dro_beta not in (None, 0)",
        "there is no penalty; set <loss.dro_beta>=1.0, or another number above 0", asked="loss.loss_mode == 'dro'"),
    "group_of_one": Rule(
        "rollout.n", f"algorithm.adv_estimator not in {OF_GROUPS}",
        "{algorithm.adv_estimator} compares the responses of a group, and a group of one has none to compare; set <rollout.n>=5 "
        "or more", asked="rollout.n == 1"),
    "coefficient_beside_a_ratio": Rule(
        "loss.shaping.name", "loss.loss_mode in ('gpg', 'tr_gpg')",
        "is the whole coefficient of A log p, and loss_mode={loss.loss_mode} multiplies by the ratio once more; set "
        "{= 'algorithm=reinforce' if algorithm_name else '<loss.loss_mode>=gpg'}",
        asked=f"loss.shaping.name in {COEFFICIENTS!r}"),
    "dynamic_batches_differ": Rule(
        "rollout.log_prob_use_dynamic_bsz", "rollout.log_prob_use_dynamic_bsz == actor.use_dynamic_bsz",
        "both must be equal; set <rollout.log_prob_use_dynamic_bsz>={= actor.use_dynamic_bsz}", asked="True"),
    "padded_micro_batches": _Warning(
        "actor.use_dynamic_bsz", "model.use_remove_padding or trainer.device == 'cpu'",
        "micro-batches are cut by tokens without padding, and each is padded to its longest sequence, to several times "
        "{actor.ppo_max_token_len_per_gpu}; set <actor.use_dynamic_bsz>=false <actor.ppo_micro_batch_size_per_gpu>=1 "
        f"{_FIXED}"),
    "loads_what_is_not_saved": _saved("actor", "True"),
    "critic_loads_what_is_not_saved": _saved("critic", "needs_critic"),
    "attention_of_parts": Rule(
        "actor.ulysses_sequence_parallel_size", "model.override_config.attn_implementation in (None, 'flash_attention_2')",
        "this attention does not split sequences, so the loss would silently be wrong; set "
        "<model.override_config.attn_implementation>=flash_attention_2, or <actor.ulysses_sequence_parallel_size>=1",
        asked="sequence_parallel > 1 and actor.strategy in ('fsdp', 'fsdp2')"),
    "large_lr": _Warning(
        "optim.lr", "'dam' not in (optim.optimizer or optim.name or '')",  # its names of engines: AdamW, adamw, adam
        "Adam moves every weight by about that much in a step; set <optim.lr>=1e-6, as is usual", asked="optim.lr > 0.01"),
    "manager_without_prompts": _Warning(
        "manager.name", f"manager.source == 'importlib' and manager.module.path == {OWN_MANAGER!r}",
        "the rewards may not get the prompt, so an answer may be read in the wrong place",
        asked=f"reward_function.path == {OWN_REWARDS!r}"),
    "importance_not_corrected": _not_corrected("correction.rollout_is"),
    "rejection_not_corrected": _not_corrected("correction.rollout_rs"),
    "importance_without_threshold": _Warning(
        "correction.rollout_is", "correction.rollout_is_threshold is not None",
        "has no effect; set <correction.rollout_is_threshold>=2.0, or another bound of the weights"),
    "rejection_without_threshold": Rule(
        "correction.rollout_rs",
        "correction.rollout_rs_threshold is not None or correction.bypass_mode",
        "{correction.rollout_rs_threshold} ends the run at the first step that corrects; set "
        "<correction.rollout_rs_threshold>=2.0, or another bound"),
    "correction_of_another_loss": _Warning(
        "correction.loss_type", "loss.loss_mode == 'bypass_mode'",
        "veRL's trainers do not hand this key to the loss; remove <correction.loss_type>{= '' if algorithm_name else ', or set "
        "<loss.loss_mode>=bypass_mode ++<loss.rollout_correction.loss_type>=%s' % correction.loss_type}",
        asked="correction.loss_type not in (None, 'ppo_clip')"),
    "bypass_without_log_probs": Rule(
        "correction.bypass_mode", "rollout.calculate_log_probs",
        "takes the log-probabilities of the rollout, which computes none, so the first step fails"),
    "ray_with_fewer_gpus": Rule(
        "ray_init.num_gpus", "ray_init.num_gpus >= trainer.n_gpus_per_node * trainer.nnodes",
        "Ray would have fewer GPUs than these nodes, and veRL fails; set <ray_init.num_gpus>="
        "{= trainer.n_gpus_per_node * trainer.nnodes}, or remove <ray_init.num_gpus> and start the nodes with `ray start`",
        asked="ray_init.num_gpus is not None"),
    "file_logger_without_name": Rule(
        "trainer.logger", "trainer.project_name is not None",
        "veRL's file logger joins {trainer.project_name} to a path, and fails when all workers are up; set "
        "<trainer.project_name>=verl_examples, or another name", asked="'file' in loggers"),
    "open_dashboard": _Warning(
        "ray_init.dashboard_host", "ray_init.dashboard_host in ('127.0.0.1', '::1', 'localhost')",
        "Ray's dashboard, which runs code for whoever has its token, is open to other machines; remove "
        "<ray_init.dashboard_host>"),
    "async_save": _Warning(
        "actor.checkpoint.async_save", "actor.strategy == 'megatron'",
        "has no effect, but veRL then does not record which checkpoint is the latest; set <actor.checkpoint.async_save>=false",
        v1=True),
    "val_only_trains": Rule(
        "trainer.val_only", "trainer.val_before_train", "the run would train instead of validating"),
    "warmup_of_no_critic": Rule(
        "trainer.critic_warmup", "needs_critic",
        "the run has no critic, and the policy would not be updated before that step; set <trainer.critic_warmup>=0",
        asked="trainer.critic_warmup > 1"),
    "greedy_sampling": _Warning(
        "validation.do_sample", "validation.temperature > 0",
        "has no effect, validation is greedy; set <validation.temperature>=1.0, or <validation.do_sample>=false", v1=True),
    "temperature_without_sampling": _Warning(
        "validation.temperature", "validation.do_sample",
        "validation samples at this temperature, because veRL's v1 trainer does not read do_sample; set "
        "<validation.do_sample>=true, or <validation.temperature>=0 for greedy responses",
        asked="validation.temperature > 0", v1=True),
    "equal_validation_responses": _Warning(
        "validation.n", "validation.temperature > 0",
        "all responses to a prompt are equal; set <validation.n>=1, or <validation.temperature>=1.0 <validation.do_sample>=true",
        asked="validation.n > 1", v1=True),
    "multi_turn_in_one_turn": _Warning(
        "rollout.multi_turn.enable", "may_call_tools",
        "has no effect with {rollout.agent.default_agent_loop} and no row that names another loop, responses have one turn; set "
        "<rollout.agent.default_agent_loop>=tool_agent", v1=True),
    "overlong_of_another_manager": _Warning("overlong.enable", "manager.name == 'dapo'",
        f"{{manager.name}} does not read it; set <manager.name>=dapo ++{_LONGEST}={{= data.max_response_length}}"),
    "overlong_without_longest": Rule(
        "overlong.enable", f"{_LONGEST} is not None or manager.name != 'dapo'",
        f"veRL's reward workers fail without {_LONGEST}; set +<{_LONGEST}>={{= data.max_response_length}}"),
    "overlong_length": Rule(
        "overlong.len", f"0 < (overlong.len or 0) and (overlong.len or 0) <= ({_LONGEST} or overlong.len)",
        f"veRL's reward workers fail unless it is at least 1 and at most {{{_LONGEST}}}; set "
        f"<overlong.len>={{= ({_LONGEST} or data.max_response_length) // 5 or 1}}, a fifth of max_resp_len",
        asked="overlong.enable and manager.name == 'dapo'"),
    "overlong_never_reached": _Warning(
        _LONGEST, f"({_LONGEST} or 0) - (overlong.len or 0) < data.max_response_length",
        "no response is penalized, because max_resp_len - len is not below max_response_length; set "
        f"<{_LONGEST}>={{= data.max_response_length}}", asked="overlong.enable"),
    "sum_norm_of_micro_batches": _Warning(
        "actor.loss_agg_mode", "actor.loss_scale_factor is not None",
        "with {actor.loss_scale_factor} veRL divides by the longest response of a micro-batch, so the loss depends on how a "
        "batch is cut; set <actor.loss_scale_factor>={= data.max_response_length}",
        asked="actor.loss_agg_mode == 'seq-mean-token-sum-norm'"),
    "micro_batch_of_all_gpus": _replaced_size("actor.ppo_micro_batch_size"),
    "log_prob_batch_of_all_gpus": _replaced_size("rollout.log_prob_micro_batch_size"),
    "ref_log_prob_batch_of_all_gpus": _replaced_size(
        "ref.log_prob_micro_batch_size", used="actor.use_kl_loss or algorithm.use_kl_in_reward"),
    "filter_without_end": _Warning(
        "algorithm.filter_groups.max_num_gen_batches", "False",
        "veRL's v1 trainer does not stop after that many batches; remove <algorithm.filter_groups.max_num_gen_batches>, or set "
        "<algorithm.filter_groups.max_inflight_gen_batches> to how many may be drawn at a time",
        asked="algorithm.filter_groups.enable and algorithm.filter_groups.max_num_gen_batches > 0", v1=True),
    "filter_metric": Rule(
        "algorithm.filter_groups.metric",
        f"algorithm.filter_groups.metric in {_METRICS} or reward_function.path != {OWN_REWARDS!r} or may_call_tools",
        "no reward of this package reports this metric, and veRL fails at the first step; set <algorithm.filter_groups.metric> "
        f"to one of {', '.join(_METRICS)}", asked="algorithm.filter_groups.enable", v1=True),
    "filter_with_reward_model": Rule(
        "algorithm.filter_groups.enable", "reward_model.enable_resource_pool or not reward_model.enable",
        "needs rewards before a batch is complete", v1=True),
    "gen_batch_of_filter": _Warning(
        "data.gen_batch_size", "not algorithm.filter_groups.enable",
        "has no effect, prompts are drawn one by one; remove <data.gen_batch_size>",
        asked="data.gen_batch_size not in (None, 1)", v1=True),
    "filter_not_in_buffer": Rule(
        "algorithm.filter_groups.enable", f"{_BUFFER} or sampler.sampler_kwargs.filter_groups.enable",
        "has no effect with {sampler.sampler_kwargs.filter_groups.enable}, which the replay buffer reads; set "
        "<sampler.sampler_kwargs.filter_groups>='${algorithm.filter_groups}'"),
    "ha_dw_forgets": _Warning(
        "trainer.checkpoint_callback_class", "trainer.checkpoint_callback_class not in (None, '')",
        "a resumed run would forget what {algorithm.adv_estimator} has learned of past batches; set "
        "<trainer.checkpoint_callback_class>=verl_trgrpo.verl_plugin.estimator_state.EstimatorStateCallback",
        asked="algorithm.adv_estimator == 'ha_dw'"),
    "ha_dw_on_older_trainer": Rule(
        "trainer.use_v1", "trainer.use_v1 or trainer.save_freq <= 0 or trainer.resume_mode == 'disable'",
        "a run that resumes would forget the history of {algorithm.adv_estimator}, which only veRL's v1 trainer saves; set "
        "<trainer.use_v1>=true, or <trainer.resume_mode>=disable", asked="algorithm.adv_estimator == 'ha_dw'"),
    "gen_batch_divides": Rule(
        "data.gen_batch_size", "data.train_batch_size % data.gen_batch_size == 0",
        "veRL draws whole batches of this size and fails at step 1 with {data.train_batch_size}; set <data.gen_batch_size> to a "
        "divisor of {= data.train_batch_size}",
        asked="data.gen_batch_size is not None and trainer.v1.trainer_mode == 'sync' and not algorithm.filter_groups.enable",
        v1=True),
    "prompt_length": _same_length("rollout.prompt_length", "data.max_prompt_length"),
    "response_length": _same_length("rollout.response_length", "data.max_response_length"),
    "top_k_of_one": Rule("rollout.top_k", "rollout.top_k != 1", f"{_ALIKE} <rollout.top_k>=-1", asked="True"),
    "tiny_top_p": Rule("rollout.top_p", f"rollout.top_p > {_TINY_TOP_P}", f"{_ALIKE} <rollout.top_p>=1.0", asked="True"),
    "top_k": _Warning(
        "rollout.top_k", "False", f"{_BIASED} <rollout.top_k>=-1 unless you study this", asked="rollout.top_k > 1"),
    "top_p": _Warning(
        "rollout.top_p", "False", f"{_BIASED} <rollout.top_p>=1.0 unless you study this",
        asked=f"{_TINY_TOP_P} < rollout.top_p < 1"),
    # The shapings that are excepted leave out tokens themselves.
    "wide_clip": _Warning(
        "actor.clip_ratio_high", "actor.clip_ratio_high <= 1",
        "a probability may grow {= 1 + actor.clip_ratio_high}-fold before it is clipped; set <actor.clip_ratio_high>=0.28, or "
        "0.2 as for a symmetric range",
        asked="actor.clip_ratio_high and loss.loss_mode == 'vanilla' and "
        "loss.shaping.name not in ('cppo', 'ipo_mask')"),
    "lr_of_zero": _Warning(
        "optim.lr", "False", "updates change nothing; set <optim.lr>=1e-6, as is usual", asked="optim.lr == 0"),
    "warmup_of_whole_run": _Warning(
        "optim.lr_warmup_steps_ratio", "optim.lr_warmup_steps_ratio < 1",
        "the warm-up takes the whole run, so {optim.lr} is never reached; set <optim.lr_warmup_steps_ratio>=0.1, or another "
        "share below 1", asked="(optim.lr_warmup_steps or -1) < 0"),
    "bf16_weights": _Warning(
        "engine.model_dtype", "optim.lr > 1e-5",
        "with {optim.lr} most updates are smaller than the spacing of bfloat16 weights, and are lost; set "
        "<engine.model_dtype>=fp32", asked="engine.model_dtype in ('bf16', 'bfloat16')"),
    "reward_model_without_path": Rule(
        "reward_model.enable", "reward_model.model_path not in (None, '')",
        "there is no model to load; set <reward_model.model_path> to a model, or <reward_model.enable>=false"),
    "lora_alpha_of_zero": Rule(
        "model.lora_alpha", "model.lora_alpha != 0",
        "the adapter is multiplied by 0 and learns nothing; set <model.lora_alpha>={= 2 * model.lora_rank}, twice its rank",
        asked="(model.lora_rank or 0) > 0"),
    "separate_batches": Rule(
        "trainer.v1.trainer_mode",
        "data.train_batch_size == trainer.v1.separate_async.parameter_sync_step * actor.ppo_mini_batch_size",
        "veRL takes {data.train_batch_size} only if it is {trainer.v1.separate_async.parameter_sync_step} times "
        "{actor.ppo_mini_batch_size}; set <data.train_batch_size>="
        "{= trainer.v1.separate_async.parameter_sync_step * actor.ppo_mini_batch_size}", asked=SEPARATE, v1=True),
    "separate_nodes": Rule(
        "rollout.nnodes", "rollout.nnodes > 0", f"{_OWN_GPUS}; set <rollout.nnodes>=1 or more", asked=SEPARATE, v1=True),
    "separate_gpus": Rule(
        "rollout.n_gpus_per_node", "rollout.n_gpus_per_node > 0",
        f"{_OWN_GPUS}; set <rollout.n_gpus_per_node>=1 or more", asked=SEPARATE, v1=True),
    "separate_weights": Rule(
        "rollout.checkpoint_engine.backend", "rollout.checkpoint_engine.backend != 'naive'",
        "this backend carries no weights to other GPUs; set <rollout.checkpoint_engine.backend>=nccl",
        asked=SEPARATE, v1=True),
    "separate_reward_model": Rule(
        "reward_model.enable_resource_pool", "reward_model.enable_resource_pool",
        "a rollout of its own never leaves GPUs to the reward model", asked=f"{SEPARATE} and reward_model.enable", v1=True),
    "separate_lora": Rule(
        "trainer.v1.trainer_mode", "model.lora.merge",
        "a rollout of its own gets the weights of the base model and no adapter, so it never samples from what is trained "
        "(veRL issue 7495)", asked=f"{SEPARATE} and {HAS_LORA}", v1=True),
    "older_weights": _Warning(
        "trainer.v1.trainer_mode", "correction.rollout_is is not None or correction.rollout_rs is not None",
        "responses come from older weights than those that are trained, which is not corrected; set "
        "<correction.rollout_is>=token", asked="trainer.v1.trainer_mode != 'sync'", v1=True),
    "ignore_eos": _Warning(
        "rollout.ignore_eos", "False", "every response goes on to data.max_response_length; set <rollout.ignore_eos>=false",
        asked="rollout.ignore_eos"),
    "raw_logprobs": _Warning(
        "rollout.logprobs_mode", "rollout.temperature == 1 and rollout.top_p == 1 and rollout.top_k in (-1, 0)",
        "the rollout reports probabilities before temperature and top-p, and the trainer compares its own after them; set "
        "<rollout.logprobs_mode>=processed_logprobs", asked="rollout.logprobs_mode not in (None, 'processed_logprobs')"),
    "repetition_penalty": _Warning(
        "rollout.repetition_penalty", "False",
        "has no effect, veRL's agent loop sends 1.0 with each request; remove <rollout.repetition_penalty>",
        asked="rollout.repetition_penalty not in (None, 1)"),
    "kl_loss_of_zero": _Warning(
        "actor.use_kl_loss", "actor.kl_loss_coef != 0",
        "with {actor.kl_loss_coef} the reference model takes time and has no effect; set <actor.use_kl_loss>=false, unless a "
        "shaping of your own takes ref_log_prob"),
    "negative_entropy": _Warning(
        "actor.entropy_coeff", "actor.entropy_coeff >= 0",
        "the loss rewards certainty, so responses become alike; set <actor.entropy_coeff>=0", asked="actor.entropy_coeff"),
    "large_entropy": _Warning(
        "actor.entropy_coeff", "actor.entropy_coeff <= 0.1",
        "noise outweighs the reward; set <actor.entropy_coeff>=0.01 or less", asked="actor.entropy_coeff"),
    "large_kl_loss": _Warning(
        "actor.kl_loss_coef", "actor.kl_loss_coef <= 1",
        "the loss is mostly the distance from the reference model; set <actor.kl_loss_coef>=0.001, or another number up to 0.1",
        asked="actor.use_kl_loss"),
    "many_epochs": _Warning(
        "actor.ppo_epochs", "actor.ppo_epochs <= 10",
        "later passes over a batch are clipped nearly everywhere; set <actor.ppo_epochs>=1, or up to 4", asked="True"),
    "rising_lr": Rule(
        "optim.min_lr_ratio", "optim.min_lr_ratio <= 1",
        "the learning rate would end above {optim.lr}; set <optim.min_lr_ratio>=0.1, or another share up to 1",
        asked="optim.min_lr_ratio"),
}  # fmt: skip
