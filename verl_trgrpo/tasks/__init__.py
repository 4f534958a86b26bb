"""Rule-based rewards, with the door that veRL calls.

In a veRL run: `reward.custom_reward_function.path=pkg://verl_trgrpo.tasks` and
`reward.custom_reward_function.name=compute_score`. The `pkg://` path imports this package by name, so the function can
be pickled and every Ray worker finds it.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from verl_trgrpo.tasks.registry import (
    find_reward,
    find_right_response,
    has_reward,
    known_data_sources,
    known_options,
    options_of,
    register_reward,
)
from verl_trgrpo.tasks.score import Score

__all__ = ["Score", "compute_score", "find_right_response", "has_reward", "known_data_sources", "register_reward"]

# veRL's reward loop passes these where a reward model is configured; rule-based rewards have no use for them.
_FROM_VERL = frozenset({"reward_router_address", "reward_model_tokenizer"})


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, float]:
    """Score one response with the reward of its data source.

    Args:
        data_source: chooses the reward; `known_data_sources()` lists the names.
        solution_str: the decoded response, without the prompt.
        ground_truth: what the family's reward takes.
        extra_info: the row's extra_info, with whatever the agent loop added to it.
        **options: of any registered family, from `reward.custom_reward_function.reward_kwargs`; each goes to the
            rewards that have it.

    Returns:
        the fields of `Score`: score, acc, format_ok, f1, gold_unparseable, timed_out; and what the agent loop counted
        (``extra_info["rollout_metrics"]``), which veRL then reports for validation. All float.

    Raises:
        ValueError: unknown data source, malformed ground truth, an option that no reward has, or a reward that
            returned NaN or infinity.
        TypeError: `solution_str` is not a string.
    """
    reward = find_reward(data_source)
    if not isinstance(solution_str, str):
        raise TypeError(
            f"the response is {type(solution_str).__name__}, not str; decode the tokens before scoring them"
        )
    if options:
        options = _options_for(reward, options)
    extra_info = extra_info or {}
    fields = reward(solution_str, ground_truth, extra_info, **options).as_dict()
    # One NaN would spread to the advantages of its whole group.
    if not all(map(isfinite, fields.values())):
        raise ValueError(
            f"the reward of the data source {data_source!r} returned {fields}; every field has to be a finite number, "
            "correct the reward function"
        )
    counted = extra_info.get("rollout_metrics") or {}
    return fields | {name: float(value) for name, value in counted.items()}


def _options_for(reward: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that `reward` has; an option that no family has is a mistake."""
    own = options_of(reward)
    foreign = options.keys() - own.keys() - _FROM_VERL
    if foreign and (unknown := sorted(foreign - (known := known_options()))):
        raise ValueError(
            f"no reward has the options {', '.join(unknown)}; known are: {', '.join(sorted(known)) or 'none'}. Correct "
            "reward.custom_reward_function.reward_kwargs"
        )
    return {name: value for name, value in options.items() if name in own}
