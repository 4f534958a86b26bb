"""Check settings that another setting switches off, by a table: keys, what they need, and why they have no effect without it.

Every row was read in the code of veRL 0.9.1: the v1 trainer, its workers and its FSDP engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.checks.batches import ACTOR, ROLLOUT
from verl_trgrpo.runs.checks.files import MANAGER, REWARD, columns_of, needs_critic
from verl_trgrpo.runs.checks.machine import uses_loop
from verl_trgrpo.runs.checks.rules import Values, filled
from verl_trgrpo.runs.compose import flat, loggers_of
from verl_trgrpo.tasks.search_qa.rows import SEARCH_AGENT
from verl_trgrpo.verl_plugin.prompts import DRAFT_AGENT

_MODEL = "actor_rollout_ref.model"
_REF = "actor_rollout_ref.ref"
_LOSS = f"{ACTOR}.policy_loss"
_OPTIM = f"{ACTOR}.optim"
_CORRECTION = "algorithm.rollout_correction"
_FSDP = ("fsdp", "fsdp2")
_REWARD_MODEL = "reward.reward_model"
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
# Losses without a clip range, and those with one that do not clip a second time.
_WITHOUT_CLIP = ("gpg", "kl_cov", "dro", "sapo")
_WITHOUT_DUAL_CLIP = (*_WITHOUT_CLIP, "gspo", "clip_cov", "geo_mean", "cispo")
# Loggers that show the responses of a validation.
_TABLES = ("wandb", "swanlab", "mlflow", "trackio", "clearml", "tensorboard", "vemlp_wandb")
# Keys that a message shows, at most.
_SHOWN = 4


@dataclass(frozen=True)
class Switch:
    """Settings that have an effect only where other settings allow it.

    Args:
        keys: patterns of the settings; those that differ from their defaults are reported together.
        on: returns True for values with which the settings have an effect.
        otherwise: reason and fix. ``{KEY}`` becomes ``KEY=value``.
        without: patterns of settings among `keys` that are never reported.
        off: values that ask for nothing, so that they agree with the switch.
    """

    keys: tuple[str, ...]
    on: Callable[[Values], Any]
    otherwise: str
    without: tuple[str, ...] = ("*.enable", "*.enabled")
    off: tuple[Any, ...] = ()

    def covers(self, key: str) -> bool:
        """Return True for one of the settings."""
        return _matches(key, self.keys) and not _matches(key, self.without)

    def findings(self, values: Values, changed: Mapping[str, Any]) -> list[Finding]:
        """Return a warning that names the settings that are set for nothing."""
        given = [key for key in changed if self.covers(key) and changed[key] not in self.off]
        if not given or self.on(values):
            return []
        shown = ", ".join(f"{key}={as_plain_yaml(changed[key])}" for key in given[:_SHOWN])
        more = f" and {len(given) - _SHOWN} more" if len(given) > _SHOWN else ""
        return [Finding.warning(given[0], f"{shown}{more}: {filled(self.otherwise, values)}")]


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _has_lora(values: Values) -> bool:
    ranks = (values[f"{_MODEL}.lora_rank"], values[f"{_MODEL}.lora.rank"])
    return any(rank and rank > 0 for rank in ranks) or values[f"{_MODEL}.lora_adapter_path"] is not None


def _has_reference(values: Values) -> bool:
    return bool(values[f"{ACTOR}.use_kl_loss"] or values["algorithm.use_kl_in_reward"])


def _is_cosine(values: Values) -> bool:
    kinds = (values[f"{_OPTIM}.lr_scheduler_type"], values[f"{_OPTIM}.warmup_style"])
    return "cosine" in kinds or values[f"{ACTOR}.strategy"] not in _FSDP


def _validates(values: Values) -> bool:
    return bool(values["trainer.test_freq"] > 0 or values["trainer.val_before_train"])


def _may_use(loop: str) -> Callable[[Values], bool]:
    """Return a function that is true for runs whose responses may come from an agent loop: by default, or for some rows."""
    return lambda values: columns_of(values.config, "data.train_files") is None or uses_loop(values.config, loop)


def _only_with(key: str, *settings: str, value: str | None = None, off: tuple[Any, ...] = ()) -> Switch:
    """Return the switch of settings that have an effect with one value of `key`, by default true."""
    return Switch(
        settings,
        lambda v: v[key] if value is None else v[key] == value,
        f"has no effect with {{{key}}}; remove it, or set that to {value or 'true'}",
        off=off,
    )


# One row for each switch; tests/runs/checks/test_switched_off.py has one case for each.
SWITCHES = (
    Switch(
        ("critic.*", "trainer.max_critic_ckpt_to_keep"),
        lambda v: needs_critic(v.config),
        "have no effect, the run has no critic with {critic.enable} and {algorithm.adv_estimator}; remove them, or set "
        "critic.enable=true",
    ),
    _only_with("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.*", "algorithm.kl_penalty", off=(0,)),
    Switch(
        ("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"),
        lambda v: v["algorithm.kl_ctrl.type"] == "adaptive" or not v["algorithm.use_kl_in_reward"],
        "has no effect with {algorithm.kl_ctrl.type}; remove it, or set that to adaptive",
    ),
    _only_with(f"{ACTOR}.use_kl_loss", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type", off=(0,)),
    Switch(
        (f"{_REF}.*",),
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
    _only_with("algorithm.filter_groups.enable", "algorithm.filter_groups.*"),
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
    _only_with("algorithm.adv_estimator", "algorithm.w_reinforce.*", value="w_reinforce"),
    _only_with("algorithm.adv_estimator", "algorithm.ha_dw.*", value="ha_dw"),
    _only_with("algorithm.adv_estimator", "algorithm.constrained_grpo.*", value="constrained_grpo"),
    Switch(
        ("algorithm.gdpo_reward_*",),
        lambda v: v["algorithm.adv_estimator"] in ("tr_gdpo", "gdpo"),
        "has no effect with {algorithm.adv_estimator}; remove it, or set algorithm=gdpo",
    ),
    Switch(
        ("algorithm.norm_adv_by_std_in_grpo",),
        lambda v: v["algorithm.adv_estimator"] not in _WITHOUT_STD,
        "has no effect with {algorithm.adv_estimator}; remove it",
    ),
    Switch(
        (f"{_CORRECTION}.rollout_is_*",),
        lambda v: v[f"{_CORRECTION}.rollout_is"],
        f"has no effect with {{{_CORRECTION}.rollout_is}}; remove it, or set that to token or sequence",
    ),
    Switch(
        (f"{_CORRECTION}.rollout_rs_threshold",),
        lambda v: v[f"{_CORRECTION}.rollout_rs"],
        f"has no effect with {{{_CORRECTION}.rollout_rs}}; remove it, or set that",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio",),
        lambda v: v[f"{ACTOR}.clip_ratio_low"] is None or v[f"{ACTOR}.clip_ratio_high"] is None,
        f"has no effect, {{{ACTOR}.clip_ratio_low}} and {{{ACTOR}.clip_ratio_high}} are used; set those",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio_low", f"{ACTOR}.clip_ratio_high"),
        lambda v: v[f"{_LOSS}.loss_mode"] not in _WITHOUT_CLIP,
        f"has no effect with {{{_LOSS}.loss_mode}}, which does not clip; remove it",
    ),
    Switch(
        (f"{ACTOR}.clip_ratio_c",),
        lambda v: v[f"{_LOSS}.loss_mode"] not in _WITHOUT_DUAL_CLIP,
        f"has no effect with {{{_LOSS}.loss_mode}}, which has no dual clip; remove it",
    ),
    _only_with(f"{_LOSS}.loss_mode", f"{_LOSS}.rollout_correction.*", value="bypass_mode"),
    _only_with(f"{ACTOR}.loss_agg_mode", f"{ACTOR}.loss_scale_factor", value="seq-mean-token-sum-norm"),
    _only_with(f"{_LOSS}.loss_mode", f"{_LOSS}.clip_cov_*", value="clip_cov"),
    _only_with(f"{_LOSS}.loss_mode", f"{_LOSS}.kl_cov_ratio", f"{_LOSS}.ppo_kl_coef", value="kl_cov"),
    _only_with(f"{_LOSS}.loss_mode", f"{_LOSS}.dro_beta", value="dro"),
    _only_with(f"{_LOSS}.loss_mode", f"{ACTOR}.tau_pos", f"{ACTOR}.tau_neg", value="sapo"),
    Switch(
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
        lambda v: not v[f"{ACTOR}.use_dynamic_bsz"],
        f"has no effect with {{{ACTOR}.use_dynamic_bsz}}, micro-batches are cut by tokens; remove it, or set "
        "ppo_max_token_len_per_gpu",
    ),
    _only_with(f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
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
    Switch(
        (f"{ACTOR}.fsdp_config.param_offload", f"{ACTOR}.fsdp_config.optimizer_offload"),
        lambda v: v[f"{ACTOR}.strategy"] != "fsdp2" or not v[f"{ACTOR}.fsdp_config.offload_policy"],
        f"has no effect with {{{ACTOR}.fsdp_config.offload_policy}}, which moves both; remove it",
    ),
    Switch(
        (f"{ROLLOUT}.layered_summon",
         *(f"{_MODEL}.{name}" for name in ("lora_alpha", "target_modules", "exclude_modules", "lora.*"))),
        _has_lora,
        f"has no effect with {{{_MODEL}.lora_rank}}; remove it, or set that to the rank of a LoRA adapter",
    ),
    _only_with(f"{_MODEL}.use_fused_kernels", f"{_MODEL}.fused_kernel_options.*"),
    _only_with(f"{_MODEL}.tiled_mlp.enabled", f"{_MODEL}.tiled_mlp.*"),
    _only_with(f"{_MODEL}.mtp.enable", f"{_MODEL}.mtp.*"),
    Switch(
        (f"{ACTOR}.fsdp_config.turbo_config.*",),
        lambda v: v[f"{ACTOR}.strategy"] == "fsdp_turbo",
        f"has no effect with {{{ACTOR}.strategy}}; remove it, or set that to fsdp_turbo",
    ),
    _only_with(f"{ACTOR}.fsdp_config.qat.enable", f"{ACTOR}.fsdp_config.qat.*"),
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
        _may_use(SEARCH_AGENT),
        f"has no effect with {{{ROLLOUT}.agent.default_agent_loop}} and no row that names another; set agent=search_tags",
    ),
    Switch(
        (f"{ROLLOUT}.custom.igrpo.*",),
        _may_use(DRAFT_AGENT),
        f"has no effect with {{{ROLLOUT}.agent.default_agent_loop}} and no row that names another; set agent=igrpo",
    ),
    _only_with(f"{ROLLOUT}.prometheus.enable", f"{ROLLOUT}.prometheus.*"),
    _only_with(f"{ROLLOUT}.disaggregation.enabled", f"{ROLLOUT}.disaggregation.*"),
    Switch(
        (f"{ROLLOUT}.trace.*",),
        lambda v: v[f"{ROLLOUT}.trace.backend"],
        f"has no effect with {{{ROLLOUT}.trace.backend}}; remove it, or set that",
        without=(f"{ROLLOUT}.trace.backend",),
    ),
    _only_with(f"{_REWARD_MODEL}.enable", f"{_REWARD_MODEL}.*"),
    Switch(
        (f"{_REWARD_MODEL}.n_gpus_per_node", f"{_REWARD_MODEL}.nnodes"),
        lambda v: v[f"{_REWARD_MODEL}.enable_resource_pool"] or not v[f"{_REWARD_MODEL}.enable"],
        f"has no effect with {{{_REWARD_MODEL}.enable_resource_pool}}, it shares the GPUs of the policy; set that to true",
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
    ),
    Switch(
        (f"{MANAGER}.module.name",),
        lambda v: False,
        f"has no effect, veRL takes the class that {{{MANAGER}.name}} names; set that",
    ),
    Switch(
        ("data.custom_cls.name",),
        lambda v: v["data.custom_cls.path"],
        "has no effect with {data.custom_cls.path}; set that to the file of the class",
    ),
    Switch(
        ("data.seed",),
        lambda v: v["data.shuffle"],
        "has no effect with {data.shuffle}, prompts keep the order of the files; remove it, or set that to true",
    ),
    _only_with("distillation.enabled", "distillation.*"),
    _only_with("data.filter_overlong_prompts", "data.filter_overlong_prompts_workers"),
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
    _only_with("skip.rollout_tq.enable", "skip.rollout_tq.*"),
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
    _only_with("trainer.v1.trainer_mode", "trainer.v1.colocate_async.*", value="colocate_async"),
    _only_with("trainer.v1.trainer_mode", "trainer.v1.separate_async.*", value="separate_async"),
)  # fmt: skip


def switch_findings(config: DictConfig, changed: Mapping[str, Any]) -> list[Finding]:
    """Warn about settings that differ from their defaults for nothing; veRL's older trainer (``use_v1=false``) is not known.

    Args:
        config: of the run; it has passed the checks of single values.
        changed: see :func:`changed_values`.
    """
    values = Values(config)
    if not values["trainer.use_v1"]:
        return []
    return [finding for switch in SWITCHES for finding in switch.findings(values, changed)]


def changed_values(config: DictConfig, defaults: DictConfig) -> dict[str, Any]:
    """Return the dotted keys, with their values, that differ from their defaults both as written and as resolved.

    A key that only refers to something that differs is not a difference of its own.
    """
    written, changed = flat(defaults), {}
    for key, own in flat(config).items():
        if key in written and own == written[key]:
            continue
        value = _resolved(config, key, own)
        if key not in written or value != _resolved(defaults, key, written[key]):
            changed[key] = value
    return changed


def _resolved(config: DictConfig, key: str, written: Any) -> Any:
    """Return a value, or what is written in its place if it cannot be resolved."""
    try:
        value = OmegaConf.select(config, key, throw_on_missing=False)
    except OmegaConfBaseException:
        return written
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
