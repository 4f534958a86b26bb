"""The reward function of a run, for what scores responses outside of veRL's reward workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from omegaconf import DictConfig, OmegaConf


def reward_function(config: DictConfig) -> Callable[..., Any]:
    """The function that a run's reward workers would call, with its options; it gives a score, or a dict with one."""
    from verl.utils.reward_score import default_compute_score

    chosen = OmegaConf.select(config, "reward.custom_reward_function")
    if not chosen or not chosen.path:
        return default_compute_score
    options: Any = OmegaConf.to_container(chosen.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    return partial(_loaded(chosen.path, chosen.name), **options)


@lru_cache
def _loaded(path: str, name: str) -> Callable[..., Any]:
    """veRL would run the file again at each call, which may load a model, and cannot register a reward twice."""
    from verl.utils.import_utils import load_extern_object

    found: Any = load_extern_object(module_path=path, object_name=name)
    return found
