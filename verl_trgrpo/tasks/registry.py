"""Map data sources to rewards.

A reward is a function of `(response, ground_truth, extra_info, **options)` that returns a `Score`; its keyword-only
parameters are options that a user sets under `reward.custom_reward_function.reward_kwargs`.
"""

import difflib
import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, TypeVar, get_args

from verl_trgrpo.common.text import did_you_mean, shorten


class GroundTruthError(ValueError):
    """The ground truth of a row cannot be read; the message says what is wrong with it.

    Rewards raise it. `verl_trgrpo.tasks.compute_score` counts it as `gold_unparseable`, so that one row does not end a run;
    builders and `verl-trgrpo data check` report it with the row.
    """


@dataclass(frozen=True)
class Score:
    """Score of one response.

    Every reward returns the same fields: veRL collects the extra keys of a batch from its first row, so rows of different
    tasks can share a batch only if their keys agree.

    Args:
        score: the reward for training; its range depends on the task.
        acc: 1.0 if the answer is right, else 0.0.
        format_ok: 1.0 if an answer was found where the task requires it, else 0.0.
        f1: partial credit from 0.0 to 1.0 if the task defines one (search QA), else equal to `acc`. Never a reward by
            itself.
        gold_unparseable: 1.0 if the ground truth could not be parsed, so that `acc` 0.0 does not mean "wrong".
        timed_out: 1.0 if the comparison reached its limit of time or memory, so that `acc` 0.0 means "unknown".
    """

    score: float
    acc: float
    format_ok: float = 1.0
    f1: float | None = None
    gold_unparseable: float = 0.0
    timed_out: float = 0.0

    def as_dict(self) -> dict[str, float]:
        """Return the fields as veRL needs them, all float."""
        return {**vars(self), "f1": self.acc if self.f1 is None else self.f1}


RewardFunction = Callable[..., Score]
ReferenceResponse = Callable[[Any], str | None]
Mismatch = Callable[[str, Any, Mapping[str, Any]], str]
Reward = TypeVar("Reward", bound=RewardFunction)


@dataclass(frozen=True)
class Task:
    """Scoring of the rows of a data source.

    Args:
        reward: the function, or ``module:function``, which is imported at first use.
        reference_response: likewise; returns a response that states a given ground truth and must get full marks.
        refused_spelling: likewise; returns another spelling of a given ground truth that gets no full marks, or None.
        mismatch: likewise; of the text of a prompt, its ground truth and extra_info, returns why this cannot be the ground
            truth of the prompt, or "".
    """

    reward: RewardFunction | str
    reference_response: ReferenceResponse | str | None = None
    refused_spelling: ReferenceResponse | str | None = None
    mismatch: Mismatch | str | None = None


_KK = Task(
    "verl_trgrpo.tasks.knights_and_knaves.reward:score_knights_and_knaves",
    mismatch="verl_trgrpo.tasks.knights_and_knaves.reward:mismatch",
)
_MATH, _DAPO, _MINERVA = (
    Task(f"verl_trgrpo.tasks.math.reward:{name}", refused_spelling="verl_trgrpo.tasks.math.reward:refused_spelling")
    for name in ("score_math", "score_dapo", "score_minerva")
)
_SEARCH = Task("verl_trgrpo.tasks.search_qa.reward:score_search_qa")
_GYM = "verl_trgrpo.tasks.reasoning_gym.reward:"

# By data source; `*` stands for any characters.
_tasks: dict[str, Task] = {
    **dict.fromkeys(("kk", "kk_logic", "kk_*ppl"), _KK),
    **dict.fromkeys(("math", "deepscaler", "aime2024", "amc2023", "math500", "olympiad_bench"), _MATH),
    "math_dapo": _DAPO,
    "minerva": _MINERVA,
    **dict.fromkeys(("search_qa", "searchR1_*"), _SEARCH),
    "reasoning_gym/*": Task(f"{_GYM}score_reasoning_gym", f"{_GYM}reference_response", mismatch=f"{_GYM}mismatch"),
}

# Names that other projects write, regardless of case, hyphens and underscores (`math500` is MATH-500, too); the first pattern
# that matches decides. A reward that is registered under one of them takes precedence.
_FOREIGN: list[tuple[str, Task]] = [
    (pattern, task)
    for patterns, task in [
        (("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"), _SEARCH),  # Search-R1
        (("K-and-K/knights-and-knaves",), _KK),  # Logic-RL
        (("math_dapo*", "DAPO-Math*", "*/DAPO-Math*"), _DAPO),  # DAPO
        (("minerva*", "*/minerva*"), _MINERVA),  # Minerva
        (("aime*", "*/aime*", "amc*", "*/amc*", "AI-MO/aimo-validation-*"), _MATH),  # aime24, HuggingFaceH4/aime_2024
        (("hmmt*", "*/hmmt*", "OlympiadBench*", "*/OlympiadBench*"), _MATH),  # HMMT25, Hothan/OlympiadBench
        (("MATH-500*", "*/MATH-500*"), _MATH),  # HuggingFaceH4/MATH-500
        (("simplerl/*", "simplelr*"), _MATH),  # SimpleRL-Zoo
        (("orz", "orz_math*"), _MATH),  # Open-Reasoner-Zero
        (("train-math-*",), _MATH),  # Skywork-OR1
        (("Big-Math*", "OpenR1-Math*", "DeepMath*"), _MATH),  # data sets of these names
        (("numina_*",), _MATH),  # PRIME
        (("*/gsm8k", "gsm8k*", "*/MATH", "MATH-lighteval", "*/MATH-lighteval", "hiyouga/math12k"), _MATH),  # veRL
        (("", "deepscaler*", "*_dsr"), _MATH),  # DeepScaleR's script leaves the name empty; its users have aime_dsr
    ]
    for pattern in patterns
]

DefaultReward = Literal["kk", "math", "math_dapo", "minerva", "search_qa"]
"""The data sources of this package whose reward can score those that have none."""
DEFAULT_REWARDS: tuple[DefaultReward, ...] = get_args(DefaultReward)

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
        data_sources: one or more names, in which `*` stands for any characters (`kk_*ppl`).
        reference_response: returns a response that states a given ground truth and must get full marks. `verl-trgrpo data
            check` scores it; without it, it tries the usual forms (boxed, answer tags).
        mismatch: of the text of a prompt, its ground truth and extra_info, returns why this cannot be the ground truth of the
            prompt, or "". `data check` and `validate` report the reason.

    Raises:
        ValueError: no data source, or one that this package or an earlier registration has.
    """

    def register(function: Reward) -> Reward:
        taken = [name for name in data_sources if name in _tasks]
        if taken or not data_sources or not all(isinstance(name, str) and name.strip() for name in data_sources):
            reason = f"{', '.join(taken)} already has a reward" if taken else f"data_sources={list(data_sources)!r}"
            raise ValueError(f"{reason}; register one or more new names")
        _tasks.update(dict.fromkeys(data_sources, Task(function, reference_response, mismatch=mismatch)))
        return function

    return register


def find_reward(data_source: Any, default: DefaultReward | None = None) -> RewardFunction:
    """Return the reward of a data source; an exact name takes precedence over one with `*`.

    Args:
        data_source: any name.
        default: the data source whose reward scores those that have none, or an empty name.

    Raises:
        ValueError: unknown data source, or unknown default; the message has the close names.
    """
    if task := _find_task(data_source, default):
        return _imported(task.reward)
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
        f"no reward for the data source {shorten(data_source)}{hint}; choose one for such rows (--reward math, in a "
        f"configuration +{DEFAULT_REWARD_KEY}=math)"
    )


def has_reward(data_source: Any, default: DefaultReward | None = None) -> bool:
    """Return whether `find_reward` finds a reward; imports nothing."""
    return _find_task(data_source, default) is not None


def reference_response_of(data_source: Any, default: DefaultReward | None = None) -> ReferenceResponse | None:
    """Return the `reference_response` that a data source was registered with, or None."""
    task = _find_task(data_source, default)
    return _imported(task.reference_response) if task and task.reference_response else None


def mismatch_of(
    data_source: Any,
    prompt: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    default: DefaultReward | None = None,
) -> str:
    """Return why a ground truth cannot be that of a prompt, by what the task of a data source knows, or ""."""
    task = _find_task(data_source, default)
    return _imported(task.mismatch)(prompt, ground_truth, extra_info) if task and task.mismatch else ""


def guessed_reward(data_source: Any, default: DefaultReward | None = None) -> str:
    """Return a warning if a data source is an empty name, whose reward is a guess, and none was chosen for it; else ""."""
    if data_source != "" or default is not None:
        return ""
    return (
        "data_source is empty, as DeepScaleR's script leaves it, so the row is scored as mathematics; name the reward of such "
        f"rows (--reward math, in a configuration +{DEFAULT_REWARD_KEY}=math)"
    )


def refused_spelling(data_source: Any, ground_truth: Any, default: DefaultReward | None = None) -> str | None:
    """Return a warning if the reward of a data source refuses a ground truth in another right spelling, else None."""
    task = _find_task(data_source, default)
    refused = _imported(task.refused_spelling)(ground_truth) if task and task.refused_spelling else None
    if refused is None:
        return None
    taken = f"the reward of {data_source!r} takes the ground truth {shorten(ground_truth)} as it is written"
    return f"{taken}, but refuses {refused}; state both as a list, or correct it"


def known_data_sources() -> tuple[str, ...]:
    """Return the registered names and those of other projects, sorted; `*` stands for any characters."""
    return tuple(sorted({*_tasks, *(pattern for pattern, _ in _FOREIGN)} - {""}))


def options_of(reward: RewardFunction) -> set[str]:
    """Return the names of a reward's options, which are its keyword-only parameters."""
    return {p.name for p in inspect.signature(reward).parameters.values() if p.kind is p.KEYWORD_ONLY}


def known_options() -> set[str]:
    """Return the names of the options of all rewards, and of `compute_score`; imports all of them."""
    return {"default_reward"}.union(*(options_of(_imported(task.reward)) for task in _tasks.values()))


def import_external_modules() -> None:
    """Import the modules that veRL imports in every worker, which may register rewards.

    Raises:
        ValueError: one of VERL_USE_EXTERNAL_MODULES cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(","))):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ValueError(
                f"VERL_USE_EXTERNAL_MODULES={name}: cannot be imported ({error}); install or remove it"
            ) from error


def _find_task(data_source: Any, default: DefaultReward | None = None) -> Task | None:
    if default is not None and default not in DEFAULT_REWARDS:
        raise ValueError(f"default_reward={shorten(default)}: unknown; {did_you_mean(str(default), DEFAULT_REWARDS)}")
    if not isinstance(data_source, str):
        return None
    if task := _tasks.get(data_source):
        return task
    if not data_source and default is not None:
        return _tasks[default]
    matching = [task for name, task in _tasks.items() if "*" in name and fnmatchcase(data_source, name)]
    matching += [task for pattern, task in _FOREIGN if fnmatchcase(_plain(data_source), _plain(pattern))]
    return next(iter(matching), None if default is None else _tasks[default])


@cache
def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


def _imported(function: Any) -> Any:
    return _import(function) if isinstance(function, str) else function


@cache
def _import(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
