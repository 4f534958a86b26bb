"""Which reward scores which data source.

A reward is a function of `(response, ground_truth, extra_info, **options)` that returns a `Score`; its keyword-only
parameters are options which a user sets under `reward.custom_reward_function.reward_kwargs`.
"""

import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from verl_trgrpo.tasks.score import Score

RewardFunction = Callable[..., Score]
RightResponse = Callable[[Any], str]
Reward = TypeVar("Reward", bound=RewardFunction)


@dataclass(frozen=True)
class Task:
    """How the rows of a task are scored.

    Args:
        reward: the function, or a ``module:function`` that is imported at first use.
        right_response: likewise; makes a response that states a given ground truth and must get full marks.
    """

    reward: RewardFunction | str
    right_response: RightResponse | str | None = None


_KK = Task("verl_trgrpo.tasks.knights_and_knaves.reward:score_knights_and_knaves")
_MATH = Task("verl_trgrpo.tasks.math.reward:score_math")
_SEARCH = Task("verl_trgrpo.tasks.search_qa.reward:score_search_qa")
_GYM = "verl_trgrpo.tasks.reasoning_gym:"

# Data sources and their task; `*` stands for any text.
_tasks: dict[str, Task] = {
    **dict.fromkeys(("kk", "kk_logic", "kk_*ppl"), _KK),
    **dict.fromkeys(("math", "math_dapo", "deepscaler", "aime2024", "amc2023", "math500", "olympiad_bench"), _MATH),
    "minerva": Task("verl_trgrpo.tasks.math.reward:score_minerva"),
    **dict.fromkeys(("search_qa", "searchR1_*"), _SEARCH),
    "reasoning_gym/*": Task(f"{_GYM}score_reasoning_gym", f"{_GYM}right_response"),
}


def register_reward(
    *data_sources: str, right_response: RightResponse | str | None = None
) -> Callable[[Reward], Reward]:
    """Register the decorated function as the reward of `data_sources`.

    Each is a name, in which `*` stands for any text (`kk_*ppl`). Registration has to run in every Ray worker: list the
    module in the environment variable VERL_USE_EXTERNAL_MODULES, which veRL imports everywhere.

    Args:
        data_sources: one or more.
        right_response: makes a response that states a given ground truth and must get full marks; `verl-trgrpo data
            check` uses it, and tries the usual forms (boxed, answer tags) where it is not given.

    Raises:
        ValueError: no data source, or one that has a reward already.
    """

    def register(function: Reward) -> Reward:
        taken = [name for name in data_sources if name in _tasks]
        if taken or not data_sources or not all(isinstance(name, str) and name.strip() for name in data_sources):
            reason = f"{', '.join(taken)} already has a reward" if taken else f"data sources are {list(data_sources)!r}"
            raise ValueError(f"{reason}; register one or more new names")
        _tasks.update(dict.fromkeys(data_sources, Task(function, right_response)))
        return function

    return register


def find_reward(data_source: Any) -> RewardFunction:
    """Return the reward of a data source; a name registered as it stands goes before one with `*`.

    Raises:
        ValueError: unknown data source; the message lists the known ones.
    """
    if task := _find_task(data_source):
        return _imported(task.reward)
    raise ValueError(
        f"no reward for the data source {data_source!r}; known are: {', '.join(known_data_sources())}. Check the "
        "data_source column, register a reward with verl_trgrpo.tasks.register_reward, or set "
        "reward.custom_reward_function.path=null to use veRL's own rewards"
    )


def has_reward(data_source: Any) -> bool:
    """Return whether `find_reward` finds a reward; nothing is imported."""
    return _find_task(data_source) is not None


def find_right_response(data_source: Any) -> RightResponse | None:
    """Return the `right_response` that a data source was registered with, or None."""
    task = _find_task(data_source)
    return _imported(task.right_response) if task and task.right_response else None


def known_data_sources() -> tuple[str, ...]:
    """Return the registered names, sorted; `*` stands for any text."""
    return tuple(sorted(_tasks))


def options_of(function: RewardFunction) -> dict[str, inspect.Parameter]:
    """Return the options of a reward: its keyword-only parameters by name."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def known_options() -> set[str]:
    """Return the names of the options of all rewards, which are imported for it."""
    return {name for task in _tasks.values() for name in options_of(_imported(task.reward))}


def _find_task(data_source: Any) -> Task | None:
    if not isinstance(data_source, str):
        return None
    patterns = (task for name, task in _tasks.items() if "*" in name and fnmatchcase(data_source, name))
    return _tasks.get(data_source) or next(patterns, None)


def _imported(function: Any) -> Any:
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)


def import_external_modules() -> None:
    """Import the modules that veRL would import everywhere, which may register rewards.

    Raises:
        ValueError: one of VERL_USE_EXTERNAL_MODULES cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(
                f"VERL_USE_EXTERNAL_MODULES names {name}, which cannot be imported ({error}); install or remove it"
            ) from error
