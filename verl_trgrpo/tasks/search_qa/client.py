"""Asynchronous searches against servers that speak Search-R1's protocol, made for rollouts.

A rollout must go on whatever happens to the servers. So a search has a deadline, few retries and a circuit breaker for
each server, and a failure is a value, not an exception: one stalled request would hold up a whole training step, and one
exception would fail a whole group of responses.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from verl_trgrpo.retrieval import require
from verl_trgrpo.retrieval.protocol import Hit, parse_answer, request_body
from verl_trgrpo.tasks.search_qa.options import SearchOptions

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

_BUSY = (429, 502, 503, 504)


@dataclass(frozen=True)
class SearchResult:
    """Passages, best first, or the reason why there are none; `failure` is empty where the search worked."""

    hits: tuple[Hit, ...] = ()
    failure: str = ""


class _FailureError(Exception):
    """Why a server gave no passages; `later` says whether to ask it once more."""

    def __init__(self, reason: str, later: bool = False) -> None:
        super().__init__(reason)
        self.later = later


@dataclass
class _Server:
    url: str
    failures_in_a_row: int = 0
    closed_until: float = 0.0  # monotonic seconds; the server is not asked before


class SearchClient:
    """Searches of one event loop: a pooled session, a limit of concurrency, servers that stand in for each other."""

    def __init__(self, options: SearchOptions) -> None:
        require("aiohttp")
        self._options = options
        self._servers = [_Server(_with_path(url)) for url in options.urls]
        self._first = itertools.cycle(range(len(self._servers)))
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: str) -> SearchResult:
        """Search, within the deadline; never raises for what the servers or the query do."""
        if not query.strip():
            return SearchResult(failure="the query is empty")
        body = request_body([query[: self._options.max_query_chars]], self._options.topk)
        end = time.monotonic() + self._options.deadline
        failure = _FailureError("the search engine is not available")
        for attempt in range(self._options.retries + 1):
            if attempt:
                # Full jitter: the searches of a step must not come back all at once.
                await asyncio.sleep(min(random.uniform(0, 0.1 * 2**attempt), max(0.0, end - time.monotonic())))
            again = False
            servers = self._open_servers()
            for position, server in enumerate(servers):
                # A server that stalls must leave time for those after it.
                seconds = (end - time.monotonic()) / (len(servers) - position)
                if seconds <= 0:
                    break
                try:
                    hits = await self._ask(server, body, seconds)
                except _FailureError as error:
                    failure, again = error, again or error.later
                    self._note_failure(server, str(error))
                else:
                    server.failures_in_a_row = 0
                    return SearchResult(tuple(hits))
            if not again or time.monotonic() >= end:
                break
        return SearchResult(failure=str(failure))

    async def close(self) -> None:
        """Give back the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_servers(self) -> list[_Server]:
        """Return the servers that are not down, another one first each time."""
        start, now = next(self._first), time.monotonic()
        return [server for server in self._servers[start:] + self._servers[:start] if server.closed_until <= now]

    def _note_failure(self, server: _Server, reason: str) -> None:
        server.failures_in_a_row += 1
        if server.failures_in_a_row < self._options.failures_to_open:
            return
        now = time.monotonic()
        if server.closed_until <= now:
            logger.warning(
                "%s failed %d times in a row (%s); it is not asked for %g s",
                server.url, server.failures_in_a_row, reason, self._options.cooldown,
            )  # fmt: skip
        server.closed_until = now + self._options.cooldown

    async def _ask(self, server: _Server, body: bytes, seconds: float) -> list[Hit]:
        """Return the hits of one server; _FailureError where it gives none in `seconds`."""
        import aiohttp

        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with self._opened().post(server.url, data=body, timeout=timeout) as response:
                text = await response.read()
        except asyncio.TimeoutError as error:
            raise _FailureError("the search engine did not answer in time", later=True) from error
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise _FailureError(f"the search engine is not available ({reason})", later=True) from error
        if response.status in _BUSY:
            raise _FailureError(f"the search engine is not available (status {response.status})", later=True)
        if response.status != 200:
            detail = " ".join(text.decode(errors="replace").split())[:200]
            raise _FailureError(f"the search engine failed (status {response.status}: {detail})")
        try:
            # Search-R1's servers for web search give more than they are asked for.
            return parse_answer(text, 1)[0][: self._options.topk]
        except ValueError as error:
            raise _FailureError(f"the search engine failed ({error})") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            headers = {"Content-Type": "application/json"}
            token = os.environ.get(self._options.token_variable)
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connector = aiohttp.TCPConnector(limit=self._options.max_concurrency)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self._session


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[SearchOptions, SearchClient]] = (
    weakref.WeakKeyDictionary()
)


def shared_client(options: SearchOptions) -> SearchClient:
    """Return the client of the running event loop with these options: veRL makes a new agent loop for each response."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if options not in clients:
        clients[options] = SearchClient(options)
    return clients[options]


def _with_path(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/retrieve", parts.query, ""))
