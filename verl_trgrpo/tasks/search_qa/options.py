"""Options of searching rollouts; their home in a run's configuration is ``actor_rollout_ref.rollout.custom.search``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from verl_trgrpo.common.findings import raise_invalid


@dataclass(frozen=True)
class SearchOptions:
    """How to ask the retrieval servers, and the budget of one trajectory.

    Args:
        url: address of a server that speaks Search-R1's protocol, or several, which share the searches and stand in for
            each other; without a path, /retrieve is meant.
        topk: passages per search.
        deadline: seconds for one search, retries included. A rollout never waits longer than that.
        retries: how often a search that failed, at each server, is tried again.
        max_concurrency: searches that one worker process has under way at the same time; others wait within their
            deadline.
        max_searches: searches, malformed turns included; the turn after the last one can only answer.
        max_turn_tokens: tokens that the model may write in one turn.
        max_observation_tokens: tokens of one observation; longer ones are cut at a token.
    """

    url: str | tuple[str, ...] = "http://127.0.0.1:8000/retrieve"
    topk: int = 3
    deadline: float = 10.0
    retries: int = 2
    max_concurrency: int = 64
    max_searches: int = 4
    max_turn_tokens: int = 500
    max_observation_tokens: int = 500

    def __post_init__(self) -> None:
        problems = []
        if not self.urls or not all(str(url).startswith(("http://", "https://")) for url in self.urls):
            problems.append(f"url is {self.url!r}; give one like http://127.0.0.1:8000, or several")
        if not isinstance(self.deadline, int | float) or self.deadline <= 0:
            problems.append(f"deadline is {self.deadline!r}; it must be a number of seconds, more than 0")
        for name in ("topk", "retries", "max_concurrency", "max_searches", "max_turn_tokens", "max_observation_tokens"):
            value, low = getattr(self, name), int(name != "retries")
            if type(value) is not int or value < low:
                problems.append(f"{name} is {value!r}; it must be a whole number of at least {low}")
        raise_invalid([f"rollout.custom.search: {problem}" for problem in problems])

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the addresses as given, one or several."""
        return self.url if isinstance(self.url, tuple) else (self.url,)


def read_options(settings: Mapping[str, Any] | None) -> SearchOptions:
    """Return the options in `settings`, where `url` may be a list; ValueError for unknown keys and wrong values."""
    if not isinstance(settings, Mapping | None):
        raise ValueError(f"rollout.custom.search is {settings!r}; it must be a section with keys such as url")
    settings = dict(settings or {})
    known = [field.name for field in fields(SearchOptions)]
    if unknown := sorted(settings.keys() - {*known}):
        raise ValueError(f"rollout.custom.search: unknown keys {', '.join(unknown)}; known are {', '.join(known)}")
    if isinstance(settings.get("url"), Sequence) and not isinstance(settings["url"], str):
        settings["url"] = tuple(settings["url"])
    return SearchOptions(**settings)
