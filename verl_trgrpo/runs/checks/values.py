"""Values that cannot be right on their own: of another type than the default, out of range, or no name that veRL has."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.findings import Finding, range_errors
from verl_trgrpo.common.text import as_plain_yaml, as_yaml, choice_hint
from verl_trgrpo.runs.checks.annotations import described, field_types, fits
from verl_trgrpo.runs.checks.sections import TEXT_LISTS

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"

LENGTHS = ("data.max_prompt_length", "data.max_response_length")
# Sizes, without which nothing about batches can be computed.
SIZES = (
    "data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size", f"{_ACTOR}.ppo_epochs", f"{_ROLLOUT}.n",
    "trainer.n_gpus_per_node", "trainer.nnodes", *LENGTHS,
    f"{_ROLLOUT}.tensor_model_parallel_size", f"{_ROLLOUT}.data_parallel_size",
)  # fmt: skip

# null where micro-batches are cut by tokens.
_MICRO_BATCHES = (f"{_ACTOR}.ppo_micro_batch_size_per_gpu", f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu")

# Whole numbers, and the least that makes sense; null is fine where veRL has it as default.
_LEAST = {
    **dict.fromkeys((*SIZES, *_MICRO_BATCHES), 1),
    "trainer.total_epochs": 1,
    "trainer.total_training_steps": 1,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.max_actor_ckpt_to_keep": 1,
    f"{_ROLLOUT}.max_num_seqs": 1,
    f"{_ROLLOUT}.val_kwargs.n": 1,
    f"{_ROLLOUT}.top_k": -1,  # -1 and 0 are off
    f"{_ROLLOUT}.val_kwargs.top_k": -1,
    "actor_rollout_ref.model.lora_rank": 0,
    "data.dataloader_num_workers": 0,
    "data.val_batch_size": 1,
    "data.gen_batch_size": 1,
    "reward.num_workers": 1,
    "ray_kwargs.ray_init.num_cpus": 1,
    "ray_kwargs.ray_init.num_gpus": 0,
}
# Types of keys whose default is null and that no dataclass has, or with another type than PEFT takes.
_TYPES = {
    "data.seed": int | None,
    "reward.custom_reward_function.path": str | None,
    "reward.custom_reward_function.name": str | None,
    "actor_rollout_ref.model.exclude_modules": str | list | None,
}
_RANGES = {
    f"{_ACTOR}.optim.lr": "[0, inf)",
    f"{_ACTOR}.optim.weight_decay": "[0, inf)",
    f"{_ACTOR}.optim.lr_warmup_steps_ratio": "[0, 1]",
    f"{_ACTOR}.optim.clip_grad": "(0, inf)",
    f"{_ACTOR}.grad_clip": "(0, inf)",
    f"{_ACTOR}.kl_loss_coef": "[0, inf)",
    # At 0 all responses to a prompt are the same, and there is nothing to compare.
    f"{_ROLLOUT}.temperature": "(0, inf)",
    f"{_ROLLOUT}.top_p": "(0, 1]",
    f"{_ROLLOUT}.gpu_memory_utilization": "(0, 1]",
    f"{_ROLLOUT}.val_kwargs.temperature": "[0, inf)",
    f"{_ROLLOUT}.val_kwargs.top_p": "(0, 1]",
    "algorithm.gamma": "[0, 1]",
    "algorithm.lam": "[0, 1]",
}
# Values that veRL wants to be given.
_REMEDIES = {f"{_ROLLOUT}.name": "vllm, sglang or trtllm; =vllm is what this package is tested with"}
# Names by pattern of key; a canary test compares them with veRL's registries.
NAMES = {
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
    # Those of veRL's platforms, and of platforms that plugins may bring.
    "trainer.device": ("cuda", "npu", "cpu", "xpu", "hpu", "mlu", "musa"),
    "trainer.v1.trainer_mode": ("sync", "colocate_async", "separate_async"),
    "data.truncation": ("error", "left", "right", "middle"),
    "*.strategy": ("fsdp", "fsdp2", "fsdp_turbo", "megatron", "veomni", "torchtitan", "automodel"),
    "*.rollout.name": ("vllm", "sglang", "trtllm"),
    "*.rollout.mode": ("async",),
    "*.rollout.dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "*.checkpoint.*_contents": ("model", "optimizer", "extra", "hf_model"),
    "algorithm.kl_ctrl.type": ("fixed", "adaptive"),
    "*.loss_agg_mode": (
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    ),
}
# By optimizer dataclass; the others have no schedule of this name.
_SCHEDULES = {
    "AutomodelOptimizerConfig": ("constant", "cosine", "linear", "inverse-square-root"),
    "FSDPOptimizerConfig": ("constant", "cosine"),
    "VeOmniOptimizerConfig": ("constant", "cosine"),
}


def value_findings(config: DictConfig, defaults: DictConfig) -> tuple[list[Finding], DictConfig]:
    """Complaints about values, and the configuration with defaults in place of those that are wrong.

    `config` has no unknown keys; `defaults` are what veRL and this package have for its keys.
    """
    values, findings = _values(config, defaults)
    seen = {finding.where for finding in findings}
    for key, least in _LEAST.items():
        value = values.get(key)
        if key in values and key not in seen and not (value is None and OmegaConf.select(defaults, key) is None):
            findings += _whole_findings(key, value, least)
    findings += [Finding.error(problem.partition("=")[0], problem) for problem in range_errors(values, _RANGES)]
    seen = {finding.where for finding in findings}
    findings += [finding for finding in _name_findings(values, defaults) if finding.where not in seen]
    seen = {finding.where for finding in findings}
    hints = field_types(config) | _TYPES
    for key, value in values.items():
        if key not in seen:
            findings += _type_findings(key, value, _default_of(defaults, key), hints.get(key))
    mended = config.copy()
    OmegaConf.set_struct(mended, False)
    for finding in findings:
        # Without a size and without batches by tokens veRL would have a complaint of its own.
        sound = 1 if finding.where in _MICRO_BATCHES else _default_of(defaults, finding.where)
        OmegaConf.update(mended, finding.where, sound, force_add=True)
    return findings, mended


def _values(config: DictConfig, defaults: DictConfig) -> tuple[dict[str, Any], list[Finding]]:
    """Dotted keys with their resolved values, and complaints about those that are missing or refer to nothing."""
    values: dict[str, Any] = {}
    findings = []

    def visit(node: DictConfig, prefix: str) -> None:
        written: Any = OmegaConf.to_container(node, resolve=False)
        name: Any
        for name in node:
            key = f"{prefix}{name}"
            if OmegaConf.is_missing(node, name):
                default = _default_of(defaults, key)
                if default is not None:  # others belong to parts of veRL that a run may not use
                    findings.append(Finding.error(key, f"{key} has no value; give one ({_REMEDIES.get(key, default)})"))
                continue
            try:
                value = node[name]
            except OmegaConfBaseException as problem:
                text = written[name]
                reason = str(problem).splitlines()[0]
                named = re.search(r"'([^']+)'", reason)
                if named is None or named[1] in text:  # and not what refers to it in turn
                    findings.append(
                        Finding.error(key, f"{key}={text} cannot be resolved ({reason}); correct the reference")
                    )
                continue
            if OmegaConf.is_interpolation(node, name) and key not in _RANGES | _LEAST:
                continue  # what it refers to is looked at
            if isinstance(value, DictConfig) and len(value):
                visit(value, f"{key}.")
            else:
                values[key] = list(value) if isinstance(value, ListConfig) else value

    visit(config, "")
    return values, findings


def _whole_findings(key: str, value: Any, least: int) -> list[Finding]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return []
    return [Finding.error(key, f"{key}={as_yaml(value)} is not a whole number of at least {least}; correct it")]


def _name_findings(values: dict[str, Any], defaults: DictConfig) -> list[Finding]:
    findings = []
    for key, value in values.items():
        names = _names_for(key, values)
        if not names or (value is None and _default_of(defaults, key) is None):
            continue
        for name in value if isinstance(value, list) else [value]:
            if name not in names:
                part = f"has {as_yaml(name)}, which" if isinstance(value, list) else f"={as_yaml(name)}"
                message = f"{key}{' ' * isinstance(value, list)}{part} is unknown; {choice_hint(str(name), names)}"
                findings.append(Finding.error(key, message))
    return findings


def _names_for(key: str, values: dict[str, Any]) -> Sequence[str]:
    """What a key may be; nothing where it is no name, or one that only another machine knows."""
    section, _, last = key.rpartition(".")
    if key == "trainer.logger":
        from verl.utils.tracking import Tracking

        return [*Tracking.supported_backend, "tracking"] if values[key] else ()
    if key == "reward.reward_manager.name" and values.get(f"{section}.source") == "register":
        from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER

        return sorted(REWARD_MANAGER)
    if last == "lr_scheduler_type":
        return _SCHEDULES.get(str(values.get(f"{section}._target_")).rpartition(".")[2], ())
    if last == "optimizer" and (module := values.get(f"{section}.optimizer_impl")):
        return _optimizers(module)
    return next((names for pattern, names in NAMES.items() if fnmatch(key, pattern)), ())


def _optimizers(module: Any) -> list[str]:
    """Classes of a module that has optimizers; none where it is not installed here."""
    try:
        found = vars(importlib.import_module(module))
    except Exception:  # an import raises anything
        return []
    return sorted(name for name, value in found.items() if isinstance(value, type))


def _default_of(defaults: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(defaults, key)
    except OmegaConfBaseException:
        return None


def _type_findings(key: str, value: Any, default: Any, hint: Any) -> list[Finding]:
    """A complaint about a value of another type than its annotation, or the default where there is none, has.

    What is a number or a text by default may be null: there veRL's annotations do not say what its code takes.
    """
    if value is None and (default is None or not isinstance(default, (bool, DictConfig, ListConfig))):
        return []
    if wanted := described(hint):
        fit = fits(value, hint) or type(value) is type(default)
    elif default is None:
        return []
    elif isinstance(default, bool):
        fit, wanted = value in (True, False), "true or false"
    elif isinstance(default, (int, float)):
        fit, wanted = isinstance(value, (int, float)) and not isinstance(value, bool), "a number"
    elif isinstance(default, DictConfig):
        fit, wanted = isinstance(value, DictConfig), "a section with keys of its own"
    elif isinstance(default, str) and hint is None and key not in TEXT_LISTS:
        fit, wanted = not isinstance(value, (DictConfig, list)), "a text"
    else:
        fit, wanted = not isinstance(value, DictConfig), "a single value"
    if fit:
        return []
    shown = as_plain_yaml(default)
    if isinstance(default, DictConfig):
        shown = f"a section with {', '.join(map(str, list(default)[:5]))}" if default else "an empty section"
    return [Finding.error(key, f"{key}={as_yaml(value)} is not {wanted}; the default is {shown}")]
