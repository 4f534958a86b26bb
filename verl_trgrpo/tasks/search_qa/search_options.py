"""Options of searching rollouts: the section ``actor_rollout_ref.rollout.custom.search`` of a run's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any
from urllib.parse import urlsplit

from verl_trgrpo.common.findings import InvalidInputError, raise_invalid
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.secrets import password_problems, without_passwords
from verl_trgrpo.common.text import did_you_mean

SECTION = "rollout.custom.search"

Count = Annotated[int, "[1, inf)"]


@dataclass(frozen=True)
class SearchOptions(Options):
    """Search servers, how they are queried, and the budget of one trajectory.

    Args:
        url: address of a server that speaks Search-R1's protocol, or several, which share the searches and replace each
            other when they fail; without a path, /retrieve is meant.
        topk: passages per search.
        deadline: seconds for one search, retries included. A rollout never waits longer than that.
        retries: how often a failed search is repeated, at each server.
        max_concurrency: searches under way at the same time in one worker process; others wait within their deadline.
        max_searches: searches, malformed turns included; the turn after the last one can only answer.
        max_turn_tokens: tokens that the model may write in one turn.
        max_observation_tokens: tokens of one observation; longer ones are cut at a token.
    """

    where = f"{SECTION}: "
    url: Any = "http://127.0.0.1:8000/retrieve"  # a string or several
    topk: Count = 3
    deadline: Annotated[float, "(0, inf)"] = 10.0
    retries: Annotated[int, "[0, inf)"] = 2
    max_concurrency: Count = 64
    max_searches: Count = 4
    max_turn_tokens: Count = 500
    max_observation_tokens: Count = 500

    def __post_init__(self) -> None:
        if isinstance(self.url, Sequence) and not isinstance(self.url, str):
            object.__setattr__(self, "url", tuple(self.url))  # hashable
        super().__post_init__()

    def problems(self) -> list[str]:
        """Return a message if `url` is not an address, or has a password, which a run would record."""
        if self.urls and all(map(_is_address, self.urls)):
            return password_problems({"url": self.url})
        shown = without_passwords(repr(self.url))
        return [f"url={shown} is not an address; give one like http://127.0.0.1:8000, or several"]

    @property
    def urls(self) -> Sequence[str]:
        """Return the addresses, one or several."""
        return self.url if isinstance(self.url, tuple) else (self.url,)


def _is_address(url: Any) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        return parts.scheme in ("http", "https") and bool(host.encode("idna"))
    except (
        TypeError,
        ValueError,
        AttributeError,
    ):  # of another type, brackets or a port that make no sense, too long a name
        return False


def read_search_options(settings: Mapping[str, Any] | None) -> SearchOptions:
    """Build the options from a section of a configuration, in which `url` may be a list.

    Raises:
        InvalidInputError: unknown keys, wrong types and values out of range, all at once.
    """
    if not isinstance(settings, Mapping | None):
        raise InvalidInputError([f"{SECTION}={settings!r} is not a section; give keys such as url"])
    given = {str(name): value for name, value in (settings or {}).items()}
    known = [field.name for field in fields(SearchOptions)]
    unknown = [name for name in given if name not in known]
    messages = [f"{SECTION}: {name}={given[name]!r}: unknown; {did_you_mean(name, known)}" for name in unknown]
    options: Any = None
    try:
        options = SearchOptions(**{name: given[name] for name in known if name in given})
    except InvalidInputError as error:
        messages += error.messages
    raise_invalid(messages)
    return options
