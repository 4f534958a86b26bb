"""Know the tasks: which reward scores a data source, and how to register rewards and tasks of one's own.

A reward is a function of `(response, ground_truth, extra_info, **options)` that returns a `Score`; its keyword-only
parameters are options that a user sets under `reward.custom_reward_function.reward_kwargs`.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, TypeVar

from verl_trgrpo.common.import_path import EXTERNAL_MODULES, OWN_MODULE_FIX, external_modules
from verl_trgrpo.common.text import did_you_mean, shorten
from verl_trgrpo.data.rows import SINGLE_TURN, TOOL_AGENT, RawRow
from verl_trgrpo.tasks.task import (
    AgentLoop,
    Builder,
    Mismatch,
    ReferenceResponse,
    RewardFunction,
    Sampling,
    Scoring,
    Task,
    imported,
)

# The folders of this package's tasks; their rewards and builders are imported at first use.
_FOLDERS = (
    "knights_and_knaves",
    "math",
    "search_qa",
    "reasoning_gym",
)

Reward = TypeVar("Reward", bound=RewardFunction)

DEFAULT_REWARD_KEY = "reward.custom_reward_function.reward_kwargs.default_reward"


def register_reward(
    *data_sources: str,
    reference_response: ReferenceResponse | str | None = None,
    mismatch: Mismatch | str | None = None,
) -> Callable[[Reward], Reward]:
    """Register the decorated function as the reward of `data_sources`.

    Registration has to run in every Ray worker: list the module in the environment variable VERL_USE_EXTERNAL_MODULES,
    which veRL imports everywhere.

    Args:
        data_sources: one or more names, in which `*` matches any characters (`kk_*ppl`).
        reference_response: returns a response that states a given ground truth and must get full marks. `verl-trgrpo data
            check` scores it; without it, it tries the usual forms (boxed, answer tags).
        mismatch: of the text of a prompt, its ground truth and extra_info, returns why this cannot be the ground truth of the
            prompt, or "". `data check` and `validate` report the reason.

    Raises:
        ValueError: no data source, or one that this package or an earlier registration has.
    """

    def register(function: Reward) -> Reward:
        if not data_sources or not all(isinstance(name, str) and name.strip() for name in data_sources):
            raise ValueError(f"data_sources={list(data_sources)!r}; register one or more new names")
        scoring = Scoring(function, reference_response, mismatch=mismatch)
        register_task(Task(rewards=dict.fromkeys(data_sources, scoring)))
        return function

    return register


def register_task(task: Task) -> None:
    """Register a task of another package: the rewards of its data sources, its builders and agent loops.

    Registration has to run in every process, as that of a reward; see `register_reward`.

    Raises:
        ValueError: this package or an earlier registration has one of the names.
    """
    for each in fields(Task):
        known, added = getattr(_known, each.name), getattr(task, each.name)
        if taken := sorted(known.keys() & added.keys()):
            raise ValueError(f"{', '.join(taken)}: an earlier task has it among its {each.name}; register a new name")
    for each in fields(Task):
        getattr(_known, each.name).update(getattr(task, each.name))


# All tasks together.
_known = Task()
for _folder in _FOLDERS:
    register_task(importlib.import_module(f"verl_trgrpo.tasks.{_folder}").TASK)
# The data source whose reward scores the rows with an empty one, by the task that claims these.
_GUESSED = next(name for name, scoring in _known.rewards.items() if scoring is _known.foreign[""])


def find_reward(data_source: Any, default: str | None = None) -> RewardFunction:
    """Return the reward of a data source; an exact name takes precedence over one with `*`.

    Args:
        data_source: any name.
        default: the data source whose reward scores those that have none, or an empty name.

    Raises:
        ValueError: unknown data source, or unknown default; the message has the close names.
    """
    if found := _find(data_source, default):
        return imported(found.reward)
    raise ValueError(
        f"{unknown_source(data_source)}, register one with verl_trgrpo.tasks.register_reward, or set "
        "reward.custom_reward_function.path=null to use veRL's own rewards"
    )


def unknown_source(data_source: Any) -> str:
    """Return the message about a data source without a reward: its close names, and the option that chooses a reward."""
    names = {name.casefold(): name for name in known_data_sources() if not name.startswith("*")}
    close = difflib.get_close_matches(data_source.casefold(), names) if isinstance(data_source, str) else []
    hint = f" (close names: {', '.join(names[name] for name in close)})" if close else ""
    return (
        f"no reward for the data source {shorten(data_source)}{hint}; choose one for such rows (--reward {_GUESSED}, in a "
        f"configuration +{DEFAULT_REWARD_KEY}={_GUESSED})"
    )


def has_reward(data_source: Any, default: str | None = None) -> bool:
    """Return whether `find_reward` finds a reward; imports nothing."""
    return _find(data_source, default) is not None


def reference_response_of(data_source: Any, default: str | None = None) -> ReferenceResponse | None:
    """Return the `reference_response` that a data source was registered with, or None."""
    found = _find(data_source, default)
    return imported(found.reference_response) if found and found.reference_response else None


def mismatch_of(
    data_source: Any,
    prompt: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    default: str | None = None,
) -> str:
    """Return why a ground truth cannot be that of a prompt, by what the task of a data source knows, or ""."""
    found = _find(data_source, default)
    return imported(found.mismatch)(prompt, ground_truth, extra_info) if found and found.mismatch else ""


def alternatives_of(data_source: Any, text: str, default: str | None = None) -> list[str]:
    """Return the answers that the text of a ground truth names for the reward of a data source, itself if one."""
    found = _find(data_source, default)
    return imported(found.alternatives)(text) if found and found.alternatives else [text]


def default_reward_problem(name: Any) -> str:
    """Return why a name cannot be that of the default reward, "" if it can."""
    names = sorted(name for name in _known.rewards if "*" not in name)
    return "" if name is None or name in names else f"unknown; {did_you_mean(str(name), names)}"


def guessed_reward(data_source: Any, default: str | None = None) -> str:
    """Return a warning if a data source is an empty name, whose reward is a guess, and none was chosen for it; else ""."""
    if data_source != "" or default is not None:
        return ""
    return (
        f"data_source is empty, so the row is scored as {_GUESSED}; name the reward of such rows (--reward {_GUESSED}, in a "
        f"configuration +{DEFAULT_REWARD_KEY}={_GUESSED})"
    )


def known_data_sources() -> tuple[str, ...]:
    """Return the registered names and those of other projects, sorted; `*` matches any characters."""
    return tuple(sorted({*_known.rewards, *_known.foreign} - {""}))


def options_of(reward: RewardFunction) -> set[str]:
    """Return the names of a reward's options, which are its keyword-only parameters."""
    return {p.name for p in inspect.signature(reward).parameters.values() if p.kind is p.KEYWORD_ONLY}


def known_options() -> set[str]:
    """Return the names of the options of all rewards, and of `compute_score`; imports all of them."""
    return {"default_reward"}.union(*(options_of(imported(each.reward)) for each in _known.rewards.values()))


def import_external_modules() -> None:
    """Import the modules that veRL imports in every worker, which may register rewards.

    Raises:
        ValueError: one of VERL_USE_EXTERNAL_MODULES cannot be imported.
    """
    for name in external_modules():
        try:
            importlib.import_module(name)
        except (ImportError, ValueError) as error:
            raise ValueError(f"{EXTERNAL_MODULES}={name}: cannot be imported ({error}); {OWN_MODULE_FIX}") from error


def known_builders() -> Mapping[str, Builder]:
    """Return the builders by the word of ``verl-trgrpo data build``."""
    return _known.builders


def known_agent_loops() -> Mapping[str, AgentLoop]:
    """Return the agent loops by the name that rows have as ``agent_name``, without those of veRL."""
    return _known.agent_loops


def known_presets() -> Mapping[str, Sampling]:
    """Return the sampling of protocols of evaluation by the word of ``eval --preset``."""
    return _known.presets


def known_spellings() -> list[Callable[[str], str]]:
    """Return the functions that write a question in one spelling."""
    return [*map(imported, _known.spellings.values())]


def task_key_of(row: RawRow) -> str | None:
    """Return a text that rows share which ask the same in other words, after the task's noun and a colon, or None."""
    found = ((noun, imported(function)(row)) for noun, function in _known.row_keys.items())
    return next((f"{noun}:{key}" for noun, key in found if key), None)


def known_agents() -> tuple[str, ...]:
    """Return the names of veRL's agent loops and of the tasks', sorted; all of them begin with the rendered prompt of the row."""
    return tuple(sorted({SINGLE_TURN, TOOL_AGENT, *_known.agent_loops}))


def _find(data_source: Any, default: str | None = None) -> Scoring | None:
    if default is not None and not (isinstance(default, str) and default in _known.rewards):
        raise ValueError(f"default_reward={shorten(default)}: {default_reward_problem(default)}")
    if not isinstance(data_source, str):
        return None
    rewards = _known.rewards
    if found := rewards.get(data_source):
        return found
    if not data_source and default is not None:
        return rewards[default]
    matching = [found for name, found in rewards.items() if "*" in name and fnmatchcase(data_source, name)]
    matching += [found for name, found in _known.foreign.items() if fnmatchcase(_plain(data_source), _plain(name))]
    return next(iter(matching), None if default is None else rewards[default])


@cache
def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")
