"""Load reward functions as veRL does, and extend its reward managers: they hand the prompt to the reward, check its result, and
report responses that are cut off.

veRL's own give a reward the row's `extra_info` alone. For ``reward.reward_manager`` with ``source: importlib``, which asks for
``getattr(module, name)``: each of veRL's managers (`naive`, `dapo`, ...) is found here, extended, under its own name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, lru_cache, partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.utils.import_utils import load_extern_object
from verl.utils.reward_score import default_compute_score

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.prompts import ends_of, opens_thinking, template_options
from verl_trgrpo.data.rows import CUT_OFF, PROMPT
from verl_trgrpo.tasks.reward_input import reward_input


def reward_function(config: DictConfig) -> Callable[..., Any]:
    """Return the function that a run's reward workers call, with its options; it returns a score, or a dict with one."""
    chosen = OmegaConf.select(config, "reward.custom_reward_function")
    if not chosen or not chosen.path:
        return default_compute_score
    options: Any = OmegaConf.to_container(chosen.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    return partial(_loaded_reward(chosen.path, chosen.name), **options)


@lru_cache
def _loaded_reward(path: str, name: str) -> Callable[..., Any]:
    """Load a reward function once; veRL would run its file again at each call, which fails if it registers a reward."""
    found: Any = load_extern_object(module_path=path, object_name=name)
    return found


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reward function, a coroutine function if `function` is one, that raises for a result without a score.

    Raises:
        TypeError: by the returned function, for anything but a number and a dict with a number under ``score``.
    """
    if inspect.iscoroutinefunction(function):

        async def ask_async(**arguments: Any) -> Any:
            return _usable(await function(**arguments), function)

        return ask_async

    def ask(**arguments: Any) -> Any:
        return _usable(function(**arguments), function)

    return ask


def _usable(result: Any, function: Callable[..., Any]) -> Any:
    score = result.get("score") if isinstance(result, dict) else result
    if isinstance(score, (int, float)):
        return result
    if isinstance(score, (Real, np.bool_)) or (isinstance(score, torch.Tensor) and score.numel() == 1):
        # veRL cannot put NumPy's numbers into a tensor.
        return {**result, "score": float(score)} if isinstance(result, dict) else float(score)
    while isinstance(function, partial):  # veRL adds reward_kwargs
        function = next(filter(callable, function.args), function.func)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
    raise TypeError(
        f"the reward function {name} returned {shorten(result)}; return a number, or a dict with a number under 'score'"
    )


def _plain(value: Any) -> Any:
    """Return the number of a tensor, or of NumPy, as Python's; other values as they are."""
    return value.item() if isinstance(value, (torch.Tensor, np.generic)) and value.ndim == 0 else value


def _without_padding(data: DataProto) -> DataProto:
    """Return a row without the padding of veRL's agent loop, which managers, counting from the end, take for text."""
    if "prompt_len" not in data.non_tensor_batch:
        return data
    prompt, response = (int(data.non_tensor_batch[name][0]) for name in ("prompt_len", "response_len"))
    ends = {"prompts": prompt, "responses": response}
    cut = {name: column[..., : ends.get(name, prompt + response)] for name, column in data.batch.items()}
    return DataProto(TensorDict(cut, batch_size=1), data.non_tensor_batch, data.meta_info)


class _PromptMixin(RewardManagerBase):
    """Goes in front of one of veRL's managers."""

    def __init__(self, config: DictConfig, tokenizer: Any, compute_score: Any, **kwargs: Any) -> None:
        super().__init__(config, tokenizer, compute_score and _checked(compute_score), **kwargs)
        self._thinking_opened = opens_thinking(tokenizer, **template_options(config))
        self._rollout = config.actor_rollout_ref.rollout
        self._ends = ends_of(tokenizer, config)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score one response; returns what veRL's manager does, and ``cut_off`` among its ``reward_extra_info``."""
        data = _without_padding(data[-1:])  # veRL scores the last of several sequences
        fields = data[0].non_tensor_batch
        from_loop = fields.get("tool_extra_fields") or {}
        cut_off = bool(from_loop[CUT_OFF]) if CUT_OFF in from_loop else self._is_cut_off(data)
        given = reward_input(
            fields.get("extra_info"),
            fields.get(PROMPT),
            from_loop=from_loop,
            thinking_opened=self._thinking_opened,
            cut_off=cut_off,
        )
        column = np.empty(1, dtype=object)
        column[0] = given
        data.non_tensor_batch = {**data.non_tensor_batch, "extra_info": column}
        found = await super().run_single(data)  # type: ignore[safe-super]  # of veRL's manager, which comes behind
        # veRL's penalty for overlong responses is a tensor for those alone, which metrics and estimators do not read.
        numbers = {name: _plain(value) for name, value in found["reward_extra_info"].items()}
        return found | {"reward_extra_info": numbers | {CUT_OFF: float(cut_off)}}

    def _is_cut_off(self, data: DataProto) -> bool:
        """Return whether the response fills the room that it had, and does not end with a token that ends a response."""
        response, mask = data.batch["responses"][0], data.batch["attention_mask"][0]
        width = len(mask) - len(response)
        prompt_length, length = int(mask[:width].sum()), int(mask[width:].sum())
        context = self._rollout.get("max_model_len")
        room = min(self._rollout.response_length, context - prompt_length if context else float("inf"))
        return length >= room and int(response[length - 1]) not in self._ends


@cache
def _extended(manager: type[RewardManagerBase]) -> type[RewardManagerBase]:
    return type(f"{manager.__name__}WithPrompt", (_PromptMixin, manager), {"__doc__": manager.__doc__})


def __getattr__(name: str) -> type[RewardManagerBase]:
    try:
        manager = get_reward_manager_cls(name)
    except ValueError as error:
        raise AttributeError(f"veRL has no reward manager named {name!r}") from error
    return _extended(manager)
