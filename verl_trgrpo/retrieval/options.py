"""Options of the server."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.retrieval.http_backend import timeout_problems, token_problems


@dataclass(frozen=True)
class ServerOptions:
    """How to serve, and how much.

    host, port: address to listen at; port 0 takes a free one.
    workers: processes, each with all limits below for itself.
    threads: searches that a worker runs at the same time.
    topk: hits for a query that does not say how many; at most `max_topk`.
    max_topk: most hits that a query may ask for.
    max_queries: most queries in a request.
    max_query_chars: most characters in a query.
    max_body_bytes: largest body of a request.
    max_pending: queries that a worker has accepted and not answered yet; beyond it says 503. At least `max_queries`.
    deadline: seconds from the first line of a request until its answer, or 504.
    token: bearer token that requests must carry, or None.
    allow_anonymous: listen at an address that other machines reach without a token.

    Raises ValueError that lists everything that is wrong.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 4
    topk: int = 3
    max_topk: int = 100
    max_queries: int = 512
    max_query_chars: int = 4096
    max_body_bytes: int = 4 << 20
    max_pending: int = 2048
    deadline: float = 10.0
    token: str | None = field(default=None, repr=False)
    allow_anonymous: bool = False

    def __post_init__(self) -> None:
        ranges = {
            "port": (0, 65535),
            "workers": (1, 256),
            "threads": (1, 256),
            "max_topk": (1, 10_000),
            "topk": (1, max(1, self.max_topk)),
            "max_queries": (1, 100_000),
            "max_query_chars": (1, 1 << 20),
            "max_body_bytes": (1 << 10, 1 << 30),
            "max_pending": (max(1, self.max_queries), 1_000_000),
        }
        problems = [
            f"{name} is {getattr(self, name)}; choose {low} to {high}"
            for name, (low, high) in ranges.items()
            if not low <= getattr(self, name) <= high
        ]
        problems += [problem.replace("timeout", "deadline", 1) for problem in timeout_problems(self.deadline)]
        problems += token_problems(self.token)
        if self.token is None and not self.allow_anonymous and not is_loopback(self.host):
            problems.append(
                f"host {self.host} can be reached from other machines and there is no token; set one, or allow anonymous "
                "requests"
            )
        raise_problems(problems)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; a name other than localhost counts as open."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
