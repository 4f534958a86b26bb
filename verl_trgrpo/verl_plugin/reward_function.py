"""The reward function of a run, for what scores responses outside of veRL's reward workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from omegaconf import DictConfig, OmegaConf


def reward_function(config: DictConfig) -> Callable[..., Any]:
    """The function that a run's reward workers would call, with its options; it gives a score, or a dict with one."""
    from verl.utils.import_utils import load_extern_object
    from verl.utils.reward_score import default_compute_score

    chosen = OmegaConf.select(config, "reward.custom_reward_function")
    if not chosen or not chosen.path:
        return default_compute_score
    options: Any = OmegaConf.to_container(chosen.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    function: Any = load_extern_object(module_path=chosen.path, object_name=chosen.name)
    return partial(function, **options)
