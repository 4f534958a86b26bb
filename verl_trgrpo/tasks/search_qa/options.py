"""Options of searching rollouts; their home in a run's configuration is ``actor_rollout_ref.rollout.custom.search``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from verl_trgrpo.common.problems import ProblemsError, raise_problems

_AT_LEAST = {
    "topk": 1,
    "retries": 0,
    "max_concurrency": 1,
    "max_query_chars": 1,
    "failures_to_open": 1,
    "max_searches": 1,
    "max_turn_tokens": 1,
    "max_observation_tokens": 1,
}


@dataclass(frozen=True)
class SearchOptions:
    """How to ask the retrieval servers, and the budget of one trajectory.

    Args:
        url: address of a server that speaks Search-R1's protocol, or several, which share the searches and stand in for
            each other; without a path, /retrieve is meant.
        topk: passages per search.
        deadline: seconds for one search, retries included. A rollout never waits longer than that.
        retries: how often all servers are tried again after broken connections or busy servers.
        max_concurrency: searches that one worker process has under way at the same time; others wait within their
            deadline.
        max_query_chars: longer queries are cut.
        failures_to_open: failures in a row after which a server counts as down.
        cooldown: seconds for which a server that is down is not asked.
        token_variable: environment variable that holds the bearer token, if the servers want one.
        max_searches: searches, malformed turns included; the turn after the last one can only answer.
        max_turn_tokens: tokens that the model may write in one turn.
        max_observation_tokens: tokens of one observation; longer ones are cut at a token.

    Raises:
        ValueError: lists everything that is wrong.
    """

    url: str | tuple[str, ...] = "http://127.0.0.1:8000/retrieve"
    topk: int = 3
    deadline: float = 10.0
    retries: int = 2
    max_concurrency: int = 64
    max_query_chars: int = 1000
    failures_to_open: int = 8
    cooldown: float = 15.0
    token_variable: str = "VERL_TRGRPO_SEARCH_TOKEN"
    max_searches: int = 4
    max_turn_tokens: int = 500
    max_observation_tokens: int = 500

    def __post_init__(self) -> None:
        problems = [problem for url in self.urls for problem in _url_problems(url)]
        if not self.urls:
            problems.append("url is empty; name at least one server")
        for name in ("deadline", "cooldown"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= 3600:
                problems.append(f"{name} is {value!r}; it must be a number of seconds, more than 0 and at most 3600")
        for name, low in _AT_LEAST.items():
            value = getattr(self, name)
            if type(value) is not int or value < low:
                problems.append(f"{name} is {value!r}; it must be a whole number of at least {low}")
        if not isinstance(self.token_variable, str):
            problems.append(f"token_variable is {self.token_variable!r}; it must be a text")
        raise_problems(problems)

    @property
    def urls(self) -> tuple[str, ...]:
        """Return the addresses as given, one or several."""
        return self.url if isinstance(self.url, tuple) else (self.url,)


def read_options(settings: Mapping[str, Any] | None) -> SearchOptions:
    """Return the options in `settings`, where `url` may be a list.

    Raises ValueError for unknown keys and wrong values, all at once.
    """
    settings = dict(settings or {})
    if "url" in settings and not isinstance(settings["url"], str):
        settings["url"] = tuple(settings["url"] or ())
    known = [field.name for field in fields(SearchOptions)]
    unknown = sorted(settings.keys() - {*known})
    problems = [f"unknown keys {', '.join(unknown)}; known are {', '.join(known)}"] if unknown else []
    try:
        options = SearchOptions(**{name: settings[name] for name in known if name in settings})
    except ProblemsError as error:
        problems = error.problems + problems
    raise_problems([f"rollout.custom.search: {problem}" for problem in problems])
    return options


def _url_problems(url: Any) -> list[str]:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        usable = False
    if not usable:
        return [f"url is {url!r}; give one like http://127.0.0.1:8000"]
    return ["url holds a password; set a token through the environment instead"] if "@" in parts.netloc else []
