"""What a batch can teach: groups of equal rewards give no gradient, responses without an answer no reward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any


def group_metrics(
    groups: Sequence[Any], rewards: Sequence[float], infos: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Share of groups without a difference, and of responses without an answer.

    Args:
        groups: (batch,) label of the group of each response.
        rewards: (batch,) reward of each response.
        infos: (batch,) what the reward function says beside it; ``format_ok`` of 0 means that it found no answer.

    Returns:
        ``critic/equal_groups_frac``, in [0, 1], and ``critic/no_answer_frac``, in [0, 1], if every info says it.
    """
    values = defaultdict(set)
    for group, reward in zip(groups, rewards, strict=True):
        values[group].add(float(reward))
    metrics = {}
    if values:
        metrics["critic/equal_groups_frac"] = sum(len(found) == 1 for found in values.values()) / len(values)
    if infos and all("format_ok" in info for info in infos):
        metrics["critic/no_answer_frac"] = sum(not info["format_ok"] for info in infos) / len(infos)
    return metrics
