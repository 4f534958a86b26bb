"""Rule-based rewards, with the door that veRL calls.

In a veRL run: `reward.custom_reward_function.path=pkg://verl_trgrpo.rewards` and
`reward.custom_reward_function.name=compute_score`. The `pkg://` path imports this package by name, so the function can
be pickled and every Ray worker finds it.
"""

import re
from typing import Any

from verl_trgrpo.rewards.knights_and_knaves import score_knights_and_knaves

# data sources, how they are listed in messages, and the scorer: (response, ground truth) -> {"score": ..., ...}
_FAMILIES = ((re.compile(r"kk|kk_logic|kk_[1-9][0-9]*ppl"), "kk, kk_logic, kk_<n>ppl", score_knights_and_knaves),)


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None, **kwargs: Any
) -> dict[str, float]:
    """Score one response with the reward of its data source.

    Args:
        data_source: family of the row; Knights and Knaves are `kk`, `kk_logic`, `kk_2ppl`, `kk_3ppl`, ...
        solution_str: the decoded response, without the prompt.
        ground_truth: what the family's scorer takes, see `knights_and_knaves`.
        extra_info: ignored; veRL passes it.
        **kwargs: ignored; veRL passes the reward model's address where there is one.

    Returns:
        `score` (the reward for training), `acc` (0.0 or 1.0) and `format_ok` (0.0 or 1.0).

    Raises:
        ValueError: unknown data source or malformed ground truth.
        TypeError: `solution_str` is not a string.
    """
    for pattern, _, score in _FAMILIES:
        if isinstance(data_source, str) and pattern.fullmatch(data_source):
            return score(solution_str, ground_truth)
    known = "; ".join(names for _, names, _ in _FAMILIES)
    raise ValueError(
        f"no reward for the data source {data_source!r}; known are: {known}. Check the data_source column, "
        "or set reward.custom_reward_function.path=null to use veRL's own rewards"
    )
