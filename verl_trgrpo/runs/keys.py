"""Name the sections and keys of veRL's configuration, and where its trainer reads what older scripts set elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
MODEL_PATH = f"{MODEL}.path"
LOSS = f"{ACTOR}.policy_loss"
SHAPING = f"{LOSS}.shaping"
AGENT = f"{ROLLOUT}.agent"
CORRECTION = "algorithm.rollout_correction"
# A reward function, a model that judges, and the manager that calls them, with its options.
REWARD = "reward.custom_reward_function"
REWARD_MODEL = "reward.reward_model"
MANAGER = "reward.reward_manager"
MANAGER_OPTIONS = "reward.reward_kwargs"
OVERLONG = f"{MANAGER_OPTIONS}.overlong_buffer_cfg"
GPUS = "trainer.n_gpus_per_node"

# Sections that veRL reads, and which its YAML files do not have: on the command line they take a plus.
ADDED = (MANAGER_OPTIONS, "actor_rollout_ref.actor.policy_loss.rollout_correction")
# Sections of old scripts: they are among veRL's defaults, but its trainer does not read them.
OLD_SECTIONS = ("custom_reward_function", "reward_model", "sandbox_fusion")

_OVERLONG = ("overlong_buffer_cfg", "overlong_buffer")
# What became of old keys, as in veRL's migrate_legacy_reward_impl; the first that begins a key counts.
_MOVED = {
    "reward_model.reward_kwargs": MANAGER_OPTIONS,
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_loop_source": "reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward.reward_manager.name",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.model.path": "reward.reward_model.model_path",
    **{section: f"reward.{section}" for section in OLD_SECTIONS},
    "actor_rollout_ref.actor.grad_clip": "actor_rollout_ref.actor.optim.clip_grad",
    "critic.grad_clip": "critic.optim.clip_grad",
    "data.tokenizer": "actor_rollout_ref.model.tokenizer_path",
}


def place_of(key: str, known: Collection[str] | None = None) -> str:
    """Return the dotted key that veRL reads in place of `key`; "" where it reads `key` itself, or nothing is known of it.

    With `known`, the dotted keys that exist, a place among them, or in a section that only a plus adds.
    """
    parts = key.split(".")
    found = ""
    if name := next((each for each in _OVERLONG if each in parts), ""):
        found = ".".join([MANAGER_OPTIONS, _OVERLONG[0], *parts[parts.index(name) + 1 :]])
    elif parts[-1] == "max_resp_len":
        found = f"{MANAGER_OPTIONS}.max_resp_len"
    elif old := next((old for old in _MOVED if f"{key}.".startswith(f"{old}.")), ""):
        found = _MOVED[old] + key.removeprefix(old)
    exists = known is None or found.startswith(ADDED) or any(f"{each}.".startswith(f"{found}.") for each in known)
    return found if found != key and exists else ""


def selected(config: Any, key: str) -> Any:
    """Return the value of a dotted key; None where it does not exist, has no value, or cannot be resolved."""
    try:
        return OmegaConf.select(config, key, throw_on_missing=False)
    except OmegaConfBaseException:
        return None


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return dotted keys and leaf values of a configuration (unresolved) or of a dictionary; lists count as leaves."""
    container: Any = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    leaves: dict[str, Any] = {}
    for key, value in container.items():
        name = f"{prefix}{key}"
        leaves.update(flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value})
    return leaves
