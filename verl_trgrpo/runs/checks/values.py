"""Values that cannot be right on their own: of another type than veRL's default, out of range, or no name that veRL has."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_trgrpo.common.problems import Finding, error, range_problems

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"

# Sizes, without which nothing else about batches and lengths can be computed.
SIZES = (
    "data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size", f"{_ACTOR}.ppo_epochs", f"{_ROLLOUT}.n",
    "trainer.n_gpus_per_node", "trainer.nnodes", "data.max_prompt_length", "data.max_response_length",
    f"{_ROLLOUT}.tensor_model_parallel_size", f"{_ROLLOUT}.data_parallel_size",
)  # fmt: skip

# Whole numbers, and the least that makes sense; null is fine where veRL has it as default.
_LEAST = {
    **dict.fromkeys(SIZES, 1),
    "trainer.total_epochs": 1,
    "trainer.total_training_steps": 1,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.max_actor_ckpt_to_keep": 1,
    f"{_ROLLOUT}.max_num_seqs": 1,
    f"{_ROLLOUT}.val_kwargs.n": 1,
}
_RANGES = {
    f"{_ACTOR}.optim.lr": "[0, inf)",
    f"{_ACTOR}.optim.weight_decay": "[0, inf)",
    f"{_ACTOR}.optim.lr_warmup_steps_ratio": "[0, 1]",
    f"{_ACTOR}.grad_clip": "(0, inf)",
    f"{_ACTOR}.kl_loss_coef": "[0, inf)",
    f"{_ROLLOUT}.temperature": "[0, inf)",
    f"{_ROLLOUT}.top_p": "(0, 1]",
    f"{_ROLLOUT}.gpu_memory_utilization": "(0, 1]",
    f"{_ROLLOUT}.val_kwargs.temperature": "[0, inf)",
    f"{_ROLLOUT}.val_kwargs.top_p": "(0, 1]",
    "algorithm.gamma": "[0, 1]",
    "algorithm.lam": "[0, 1]",
}
# Values that veRL wants to be given.
_REMEDIES = {f"{_ROLLOUT}.name": "vllm, sglang or trtllm; =vllm is what this package is tested with"}
_NAMES = {
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
    "data.truncation": ("error", "left", "right", "middle"),
}


def value_findings(config: DictConfig, defaults: DictConfig) -> tuple[list[Finding], DictConfig]:
    """Complaints about values, and the configuration with defaults in place of those that are wrong.

    `config` has no unknown keys; `defaults` are what veRL and this package have for its keys.
    """
    values, findings = _values(config)
    seen = {finding.where for finding in findings}
    for key, least in _LEAST.items():
        value = values.get(key)
        if key in values and key not in seen and not (value is None and OmegaConf.select(defaults, key) is None):
            findings += _whole_findings(key, value, least)
    findings += [error(problem.partition("=")[0], problem) for problem in range_problems(values, _RANGES)]
    findings += _name_findings(values)
    seen = {finding.where for finding in findings}
    for key, value in values.items():
        if key not in seen:
            findings += _type_findings(key, value, _default_of(defaults, key))
    mended = config.copy()
    OmegaConf.set_struct(mended, False)
    for finding in findings:
        if finding.where not in SIZES:  # a size of another run would only give complaints that are not this run's
            OmegaConf.update(mended, finding.where, _default_of(defaults, finding.where), force_add=True)
    return findings, mended


def _values(config: DictConfig) -> tuple[dict[str, Any], list[Finding]]:
    """Dotted keys with their resolved values, and complaints about those that are missing or refer to nothing."""
    values: dict[str, Any] = {}
    findings = []

    def visit(node: DictConfig, prefix: str) -> None:
        name: Any
        for name in node:
            key = f"{prefix}{name}"
            if OmegaConf.is_missing(node, name):
                if key in _REMEDIES:  # others belong to parts of veRL that a run may not use
                    findings.append(error(key, f"{key} has no value; give one ({_REMEDIES[key]})"))
                continue
            text = OmegaConf.to_container(node, resolve=False)[name]  # type: ignore[call-overload, index]
            try:
                value = node[name]
            except OmegaConfBaseException as problem:
                reason = str(problem).splitlines()[0]
                named = re.search(r"'([^']+)'", reason)
                if named is None or named[1] in text:  # and not what refers to it in turn
                    findings.append(error(key, f"{key}={text} cannot be resolved ({reason}); correct the reference"))
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
    return [error(key, f"{key}={value!r} is not a whole number of at least {least}; correct it")]


def _name_findings(values: dict[str, Any]) -> list[Finding]:
    from verl.utils.tracking import Tracking

    known = list(Tracking.supported_backend)
    findings = [
        error(key, f"{key}={values[key]!r} is unknown; choose one of {', '.join(names)}")
        for key, names in _NAMES.items()
        if key in values and values[key] not in names
    ]
    loggers = values.get("trainer.logger") or []
    unknown = [name for name in ([loggers] if isinstance(loggers, str) else loggers) if name not in known]
    if unknown:
        message = (
            f"trainer.logger has {', '.join(map(str, unknown))}, which veRL does not know; choose from "
            f"{', '.join(known)}"
        )
        findings.append(error("trainer.logger", message))
    return findings


def _default_of(defaults: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(defaults, key)
    except OmegaConfBaseException:
        return None


def _type_findings(key: str, value: Any, default: Any) -> list[Finding]:
    """A complaint about a value that is no switch, no number or no section where the default is one."""
    if value is None or default is None:
        return []
    if isinstance(default, bool):
        fits, wanted = value in (True, False), "true or false"
    elif isinstance(default, (int, float)):
        fits, wanted = isinstance(value, (int, float)) and not isinstance(value, bool), "a number"
    elif isinstance(default, DictConfig):
        fits, wanted = isinstance(value, DictConfig), "a section with keys of its own"
    else:
        fits, wanted = not isinstance(value, DictConfig), "a single value"
    if fits:
        return []
    shown = default if not isinstance(default, DictConfig) else ", ".join(map(str, list(default)[:5]))
    return [error(key, f"{key}={value!r} is not {wanted}; veRL's default is {shown}")]
