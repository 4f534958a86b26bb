"""Rule-based rewards and builders of the tasks, and `compute_score`, which veRL calls.

In a veRL run: `reward.custom_reward_function.path=pkg://verl_trgrpo.tasks` and
`reward.custom_reward_function.name=compute_score`. The `pkg://` path imports this package by name, so the function can
be pickled and every Ray worker finds it.
"""

from collections.abc import Mapping
from dataclasses import fields
from math import isfinite
from numbers import Real
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import COUNTS
from verl_trgrpo.judge.golds import GroundTruthError
from verl_trgrpo.tasks.registry import (
    find_reward,
    has_reward,
    known_data_sources,
    known_options,
    options_of,
    reference_response_of,
    register_reward,
    register_task,
)
from verl_trgrpo.tasks.reward_input import RewardInput, reward_input
from verl_trgrpo.tasks.task import AgentLoop, Builder, Sampling, Score, Scoring, Task

__all__ = [
    "AgentLoop",
    "Builder",
    "GroundTruthError",
    "Sampling",
    "Score",
    "Scoring",
    "Task",
    "compute_score",
    "has_reward",
    "known_data_sources",
    "reference_response_of",
    "register_reward",
    "register_task",
    "score_response",
]

# veRL's reward loop passes these if a reward model is configured; rule-based rewards do not use them.
GIVEN_WITH_MODEL = ("reward_router_address", "reward_model_tokenizer")

_UNREADABLE = Score(0.0, acc=0.0, gold_unparseable=1.0)
_SCORE_FIELDS = frozenset(field.name for field in fields(Score))


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    default_reward: str | None = None,
    **options: Any,
) -> dict[str, float]:
    """Score one response with the reward of its data source.

    A ground truth that the reward cannot read gives a score of 0 and `gold_unparseable`: one row does not end a run.

    Args:
        data_source: chooses the reward; `known_data_sources()` lists the names.
        solution_str: the decoded response, without the prompt.
        ground_truth: in the form that the task's reward takes.
        extra_info: what `reward_input` returned; of any other mapping, which may be a row's, the reserved keys are ignored.
        default_reward: the data source whose reward scores those that have none, such as math; None to raise.
        **options: options of any registered reward, from `reward.custom_reward_function.reward_kwargs`; each is passed to
            the rewards that have it.

    Returns:
        the fields of `Score`: score, acc, format_ok, f1, gold_unparseable, timed_out, restated; and the agent loop's counts
        (``extra_info["rollout_metrics"]``), which veRL then reports for validation. All float.

    Raises:
        ValueError: unknown data source or default, an option that no reward has, a reward that returned NaN or infinity, or
            counts of the loop that are not finite numbers or have the name of a field of `Score`.
        TypeError: `solution_str` is not a string, or the reward returned something else than a `Score`.
    """
    given = _judged_by(extra_info)
    try:
        scored = score_response(
            data_source, solution_str, ground_truth, given, default_reward=default_reward, **options
        )
    except GroundTruthError:
        scored = _UNREADABLE.as_dict()
    return scored | _loop_counts(given)


def _judged_by(extra_info: Any) -> RewardInput:
    """Return what `reward_input` made, or make it of any other mapping."""
    return extra_info if isinstance(extra_info, RewardInput) else reward_input(extra_info, None)


def _loop_counts(given: RewardInput) -> dict[str, float]:
    counts = given.get(COUNTS)
    if counts is None:
        return {}
    if not isinstance(counts, Mapping) or not all(map(_is_finite, counts.values())) or _SCORE_FIELDS & counts.keys():
        raise ValueError(
            f"the agent loop's {COUNTS} is {shorten(counts)}; it must map names to finite numbers, and none may be one of "
            f"{', '.join(sorted(_SCORE_FIELDS))}; correct the loop"
        )
    return {name: float(value) for name, value in counts.items()}


def _is_finite(value: Any) -> bool:
    if type(value) is float:  # as nearly all are; the test of a Real takes ten times as long
        return isfinite(value)
    try:
        return isinstance(value, Real) and isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def score_response(
    data_source: str,
    response: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    default_reward: str | None = None,
    **options: Any,
) -> dict[str, float]:
    """Return the fields of `Score` as `compute_score` does, but raise for a ground truth that cannot be read.

    Raises:
        GroundTruthError: the reward cannot read the ground truth; the message has the reason.
        ValueError: as `compute_score`.
        TypeError: `response` is not a string, or the reward returned something else than a `Score`.
    """
    reward = find_reward(data_source, default_reward)
    if not isinstance(response, str):
        raise TypeError(f"the response is {type(response).__name__}, not str; decode the tokens before scoring them")
    if options:
        own = options_of(reward)
        _refuse_unknown(options.keys() - own - {*GIVEN_WITH_MODEL})
        options = {name: value for name, value in options.items() if name in own}
    score = reward(response, ground_truth, _judged_by(extra_info), **options)
    if not isinstance(score, Score):
        name = f"{getattr(reward, '__module__', '')}.{getattr(reward, '__qualname__', reward)}"
        raise TypeError(
            f"the reward of the data source {data_source!r}, {name}, returned {shorten(score)}, not a verl_trgrpo.tasks.Score; "
            "return Score(score, acc)"
        )
    scored = score.as_dict()
    # One NaN would spread to the advantages of its whole group.
    if not all(map(_is_finite, scored.values())):
        raise ValueError(
            f"the reward of the data source {data_source!r} returned {scored}; every field has to be a finite number, "
            "correct the reward function"
        )
    return {name: float(value) for name, value in scored.items()}


def _refuse_unknown(names: set[str]) -> None:
    """Raise a ValueError for options that no reward has; those of other rewards are fine."""
    if names and (unknown := sorted(names - (known := known_options()))):
        raise ValueError(
            f"no reward has the option {', '.join(unknown)}; known are {', '.join(sorted(known)) or 'none'}. Correct "
            "reward.custom_reward_function.reward_kwargs"
        )
