"""veRL's own opinion: its dataclasses and its ``validate_config``."""

from __future__ import annotations

import warnings

from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.common.problems import Finding, error
from verl_trgrpo.runs.launch.configuration import host_problems, root_cause

# The actor and the model have checks of their own. veRL reads reward and profiler without building their dataclasses.
_NODES = ("algorithm", "actor_rollout_ref.rollout", "distillation", "skip")

# What veRL's worker renames in the options of the reference model before it builds them.
_REFERENCE_NAMES = {
    "log_prob_micro_batch_size": "ppo_micro_batch_size",
    "log_prob_micro_batch_size_per_gpu": "ppo_micro_batch_size_per_gpu",
    "log_prob_use_dynamic_bsz": "use_dynamic_bsz",
    "log_prob_max_token_len_per_gpu": "ppo_max_token_len_per_gpu",
}


def dataclass_findings(config: DictConfig) -> list[Finding]:
    """Build every dataclass that veRL's driver and workers build, those of reference and critic only if there is one."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass

    config = _with_reference_names(config)
    findings = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        roles = {"actor_rollout_ref.ref": need_reference_policy(config), "critic": need_critic(config)}
        for key in (*_NODES, *(role for role, needed in roles.items() if needed)):
            try:
                omega_conf_to_dataclass(OmegaConf.select(config, key))
            except Exception as problem:  # Hydra wraps whatever a constructor raises
                findings.append(error(key, f"{key}: {root_cause(problem)}"))
    return findings


def host_findings(config: DictConfig, batches_fit: bool) -> list[Finding]:
    """What veRL's ``validate_config`` refuses.

    It stops at the first complaint, and batch sizes come first; where those are already known not to fit, sizes that do are
    put in their place, so that it says what else is wrong.
    """
    if not batches_fit:
        config = config.copy()
        config.trainer.n_gpus_per_node = config.trainer.nnodes = 1
        config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = 1
    key = "verl.utils.config.validate_config"
    return [error(key, f"veRL refuses it: {problem}") for problem in host_problems(config)]


def _with_reference_names(config: DictConfig) -> DictConfig:
    config = config.copy()
    ref = config.actor_rollout_ref.ref
    with open_dict(ref):
        for old, new in _REFERENCE_NAMES.items():
            ref[new] = ref.pop(old, None)
        ref.use_dynamic_bsz = bool(ref.use_dynamic_bsz)
    return config
