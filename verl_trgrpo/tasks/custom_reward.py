"""Load the reward function of a run as its reward workers do."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from omegaconf import DictConfig, OmegaConf


def reward_function(config: DictConfig) -> Callable[..., Any]:
    """Return the function that a run's reward workers call, with its options; it returns a score, or a dict with one."""
    from verl.utils.reward_score import default_compute_score

    chosen = OmegaConf.select(config, "reward.custom_reward_function")
    if not chosen or not chosen.path:
        return default_compute_score
    options: Any = OmegaConf.to_container(chosen.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    return partial(_loaded_reward(chosen.path, chosen.name), **options)


@lru_cache
def _loaded_reward(path: str, name: str) -> Callable[..., Any]:
    """Load a reward function once; veRL would run its file again at each call, which fails if it registers a reward."""
    from verl.utils.import_utils import load_extern_object

    found: Any = load_extern_object(module_path=path, object_name=name)
    return found
