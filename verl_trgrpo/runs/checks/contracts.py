"""veRL's own opinion: its dataclasses and its ``validate_config``."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict

from verl_trgrpo.common.problems import Finding, error

# The actor and the model have checks of their own. veRL reads reward and profiler without building their dataclasses.
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


def build_problem(node: Any) -> str:
    """Why veRL cannot build its dataclass from a node of the configuration; nothing where it can."""
    from verl.utils.config import omega_conf_to_dataclass

    try:
        omega_conf_to_dataclass(node)
    except Exception as problem:  # Hydra wraps whatever a constructor raises
        return _root_cause(problem)
    return ""


def dataclass_findings(config: DictConfig) -> list[Finding]:
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
        roles = {"actor_rollout_ref.ref": need_reference_policy(config), "critic": need_critic(config)}
        nodes = [*_NODES, *(role for role, needed in roles.items() if needed)]
        problems = {key: build_problem(OmegaConf.select(config, key)) for key in nodes}
    return [error(key, f"{key}: {problem}") for key, problem in problems.items() if problem]


def validate_config_findings(config: DictConfig, batches_fit: bool) -> list[Finding]:
    """What veRL's ``validate_config`` refuses.

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
            validate_config(config, need_reference_policy(config), need_critic(config))
    except Exception as problem:  # veRL raises assertions, value errors and others
        return [error("verl.utils.config.validate_config", f"veRL refuses it: {_root_cause(problem)}")]
    return []


def _root_cause(error: BaseException) -> str:
    """What was raised beneath Hydra's own error, with the configuration key that Hydra names."""
    key = next((line for line in str(error).splitlines() if line.startswith("full_key:")), "")
    while isinstance(error, HydraException) and error.__cause__ is not None:
        error = error.__cause__
    text = str(error) or type(error).__name__
    if foreign := _FOREIGN.search(text):
        text = f"{foreign['class']} has no option {foreign['name']!r}; remove it, or correct its name"
    if missing := _NO_MODEL.search(text):
        text = f"no model at {missing['path']!r}, which can be no name on a hub either; give the directory or the name"
    return f"{text} ({key.replace('full_key:', 'at').strip()})" if key else text
