"""Options of the server."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.retrieval.index import check_complete
from verl_trgrpo.retrieval.protocol import TOKEN_VARIABLE

_RANGES = {
    "port": "[0, 65535]",
    "workers": "[1, 256]",
    "threads": "[1, 256]",
    "max_topk": "[1, 10000]",
    "max_queries": "[1, 100000]",
    "max_query_chars": "[1, 1048576]",
    "max_body_bytes": "[1024, 1073741824]",
    "deadline": "(0, 3600]",
}


@dataclass(frozen=True)
class ServerOptions:
    """Serve an index over HTTP in Search-R1's protocol.

    It answers POST /retrieve and GET /health until SIGTERM or Ctrl-C; requests in work are finished first.
    Limits hold for each worker. Where the environment variable VERL_TRGRPO_SEARCH_TOKEN is set, requests need that
    bearer token.

    Args:
        index: Directory of an index from `verl-trgrpo search index`.
        host: Address to listen at.
        port: Port; 0 takes a free one.
        workers: Processes, each with all limits for itself.
        threads: Searches at a time in a worker.
        topk: Hits for a query that does not say how many.
        max_topk: Most hits that a query may ask for.
        max_queries: Most queries in a request.
        max_query_chars: Most characters in a query.
        max_body_bytes: Largest request.
        max_pending: Accepted and unanswered queries, beyond which a worker answers 503; at least max_queries.
        deadline: Seconds for a request, reading its body included, after which it is answered 504.
        allow_anonymous: Let other machines in without a token, where host lets them reach the server.
    """

    index: Path
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
    allow_anonymous: bool = False

    def __post_init__(self) -> None:
        problems = range_errors(
            vars(self),
            _RANGES | {"topk": f"[1, {self.max_topk}]", "max_pending": f"[{self.max_queries}, 1000000]"},
        )
        try:
            check_complete(self.index)
        except ValueError as error:
            problems.append(str(error))
        try:
            if self.token() is None and not self.allow_anonymous and not _is_loopback(self.host):
                problems.append(
                    f"host {self.host} can be reached from other machines and there is no token; set "
                    f"the variable {TOKEN_VARIABLE}, or let everybody in with --allow-anonymous"
                )
        except ValueError as error:
            problems.append(str(error))
        raise_invalid(problems)

    def token(self) -> str | None:
        """Return the bearer token that requests must carry, or None.

        Raises ValueError for a token that no header can carry; the message does not hold it.
        """
        token = os.environ.get(TOKEN_VARIABLE)
        if token is not None and not re.fullmatch("[!-~]+", token):
            raise ValueError(
                "the token is empty, or has spaces or characters that are not ASCII; choose letters and digits"
            )
        return token


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; a name other than localhost counts as open."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
