"""Options of searching rollouts; their home in a run's configuration is ``actor_rollout_ref.rollout.custom.search``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from verl_trgrpo.common.problems import ProblemsError, raise_problems
from verl_trgrpo.retrieval.http_backend import timeout_problems, url_problems


@dataclass(frozen=True)
class ClientOptions:
    """How to ask the retrieval server.

    url: address of a server that speaks Search-R1's protocol; without a path, /retrieve is meant.
    topk: passages per search.
    deadline: seconds for one search, retries included. A rollout never waits longer than that.
    retries: further attempts after a broken connection or a busy server.
    max_concurrency: searches that one worker process has under way at the same time; others wait within their deadline.
    max_query_chars: longer queries are cut.
    failures_to_open: failed searches in a row after which the server counts as down.
    cooldown: seconds for which a server that is down is not asked.
    token_variable: environment variable that holds the bearer token, if the server wants one.

    Raises ValueError that lists everything that is wrong.
    """

    url: str = "http://127.0.0.1:8000/retrieve"
    topk: int = 3
    deadline: float = 10.0
    retries: int = 2
    max_concurrency: int = 64
    max_query_chars: int = 1000
    failures_to_open: int = 8
    cooldown: float = 15.0
    token_variable: str = "VERL_TRGRPO_SEARCH_TOKEN"

    def __post_init__(self) -> None:
        raise_problems(
            url_problems(self.url)
            + [problem.replace("timeout", "deadline", 1) for problem in timeout_problems(self.deadline)]
            + [problem.replace("timeout", "cooldown", 1) for problem in timeout_problems(self.cooldown)]
            + _low(self, topk=1, retries=0, max_concurrency=1, max_query_chars=1, failures_to_open=1)
        )


@dataclass(frozen=True)
class LoopOptions:
    """The budget of one trajectory.

    max_searches: searches, malformed turns included; the turn after the last one can only answer.
    max_turn_tokens: tokens that the model may write in one turn.
    max_observation_tokens: tokens of one observation; longer ones are cut at a token.

    Raises ValueError that lists everything that is wrong.
    """

    max_searches: int = 4
    max_turn_tokens: int = 500
    max_observation_tokens: int = 500

    def __post_init__(self) -> None:
        raise_problems(_low(self, max_searches=1, max_turn_tokens=1, max_observation_tokens=1))


def read_options(settings: Mapping[str, Any] | None) -> tuple[ClientOptions, LoopOptions]:
    """Return the options in `settings`, the keys of both classes side by side.

    Raises ValueError for unknown keys, values of another type and values out of range, all at once.
    """
    settings = dict(settings or {})
    problems, options = [], []
    for options_class in (ClientOptions, LoopOptions):
        own = {field.name: settings.pop(field.name) for field in fields(options_class) if field.name in settings}
        wrong = {name: value for name, value in own.items() if not _fits(options_class, name, value)}
        problems += [f"{name} is {value!r}; it must be a {_type(options_class, name)}" for name, value in wrong.items()]
        try:
            options.append(options_class(**{name: value for name, value in own.items() if name not in wrong}))
        except ProblemsError as error:
            problems += error.problems
    if settings:
        known = [field.name for options_class in (ClientOptions, LoopOptions) for field in fields(options_class)]
        problems.append(f"unknown keys {', '.join(sorted(settings))}; known are {', '.join(known)}")
    raise_problems([f"rollout.custom.search: {problem}" for problem in problems])
    client, loop = options
    return client, loop  # type: ignore[return-value]


def _low(options: Any, **least: int) -> list[str]:
    return [
        f"{name} is {getattr(options, name)}; it must be at least {low}"
        for name, low in least.items()
        if getattr(options, name) < low
    ]


def _type(options_class: type, name: str) -> str:
    return {"str": "text", "int": "whole number", "float": "number"}[options_class.__annotations__[name]]


def _fits(options_class: type, name: str, value: Any) -> bool:
    kinds: Any = {"str": str, "int": int, "float": (int, float)}[options_class.__annotations__[name]]
    return isinstance(value, kinds) and not isinstance(value, bool)
