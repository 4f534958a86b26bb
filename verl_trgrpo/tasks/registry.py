"""Which reward scores which data source.

A reward is a function of `(response, ground_truth, extra_info, **options)` that returns a `Score`; its keyword-only
parameters are options which a user sets under `reward.custom_reward_function.reward_kwargs`.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from verl_trgrpo.tasks.score import Score

RewardFunction = Callable[..., Score]
RightResponse = Callable[[Any], str]
Reward = TypeVar("Reward", bound=RewardFunction)


@dataclass(frozen=True)
class _Family:
    pattern: re.Pattern[str]
    label: str
    location: str | RewardFunction  # "module:function", imported at first use, or the function itself
    right_response: RightResponse | None = None

    def function(self) -> RewardFunction:
        if not isinstance(self.location, str):
            return self.location
        module, _, name = self.location.partition(":")
        return getattr(importlib.import_module(module), name)


_families: dict[str, _Family] = {}


def register_reward(*data_sources: str, right_response: RightResponse | None = None) -> Callable[[Reward], Reward]:
    """Register the decorated function as the reward of `data_sources`.

    `right_response` makes a response that states a given ground truth and must get full marks; `verl-trgrpo data check`
    uses it, and tries the usual forms (boxed, answer tags) where it is not given.

    Each is a name, in which `<n>` stands for a whole number from 1 (`kk_<n>ppl`). Registration has to run in every Ray
    worker: list the module in the environment variable VERL_USE_EXTERNAL_MODULES, which veRL imports everywhere.

    Raises:
        ValueError: no data source, or one that another function has already.
    """

    def register(function: Reward) -> Reward:
        register_families(data_sources, function, right_response)
        return function

    return register


def register_families(
    data_sources: Iterable[str], location: str | RewardFunction, right_response: RightResponse | None = None
) -> None:
    """Register a function, or a `module:function` to import at first use, as the reward of `data_sources`.

    `right_response` is as in `register_reward`, which raises the same ValueError.
    """
    names = list(data_sources)
    taken = [name for name in names if name in _families and _families[name].location != location]
    if taken or not names or not all(isinstance(name, str) and name.strip() for name in names):
        reason = f"{', '.join(taken)} already has a reward" if taken else f"data sources are {names!r}"
        raise ValueError(f"{reason}; register one or more new names")
    for name in names:
        pattern = re.escape(name).replace("<n>", "[1-9][0-9]*")
        _families[name] = _Family(re.compile(pattern), name, location, right_response)


def find_reward(data_source: Any) -> RewardFunction:
    """Return the reward of a data source; a name registered as it stands goes before one with `<n>`.

    Raises:
        ValueError: unknown data source; the message lists the known ones.
    """
    if family := _find_family(data_source):
        return family.function()
    raise ValueError(
        f"no reward for the data source {data_source!r}; known are: {', '.join(known_data_sources())}. Check the "
        "data_source column, register a reward with verl_trgrpo.tasks.register_reward, or set "
        "reward.custom_reward_function.path=null to use veRL's own rewards"
    )


def has_reward(data_source: Any) -> bool:
    """Return whether `find_reward` finds a reward; nothing is imported."""
    return _find_family(data_source) is not None


def find_right_response(data_source: Any) -> RightResponse | None:
    """Return the `right_response` that a data source was registered with, or None."""
    family = _find_family(data_source)
    return family.right_response if family else None


def known_data_sources() -> tuple[str, ...]:
    """Return the registered names, sorted; `<n>` stands for a whole number."""
    return tuple(sorted(_families))


def options_of(function: RewardFunction) -> Mapping[str, inspect.Parameter]:
    """Return the options of a reward: its keyword-only parameters by name."""
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name: parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def _find_family(data_source: Any) -> _Family | None:
    if not isinstance(data_source, str):
        return None
    exact = _families.get(data_source)
    candidates = [exact] if exact else _families.values()
    return next((family for family in candidates if family.pattern.fullmatch(data_source)), None)
