"""Asynchronous searches against servers that speak Search-R1's protocol, made for rollouts.

A rollout must go on whatever happens to the servers. So a search has a deadline and few retries, and a failure is a value,
not an exception: one stalled request would hold up a whole training step, and one exception would fail a whole group of
responses.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
import weakref
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from verl_trgrpo.retrieval.protocol import TOKEN_VARIABLE, Hit, parse_answer, request_body
from verl_trgrpo.tasks.search_qa.options import SearchOptions
from verl_trgrpo.tasks.search_qa.tags import passages_text

# Longer queries are cut; servers refuse very long ones.
MAX_QUERY_CHARS = 1000

_BUSY = (429, 502, 503, 504)


@dataclass(frozen=True)
class SearchResult:
    """Passages, best first, or the reason why there are none; `failure` is empty where the search worked."""

    hits: tuple[Hit, ...] = ()
    failure: str = ""

    @property
    def text(self) -> str:
        """What the model reads of it."""
        return f"The search failed: {self.failure}." if self.failure else passages_text(self.hits)


class SearchClient:
    """Searches of one event loop: a pooled session, a limit of concurrency, servers that stand in for each other."""

    def __init__(self, options: SearchOptions) -> None:
        self._options = options
        self._urls = [_with_path(url) for url in options.urls]
        self._searches = itertools.count()
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: str) -> SearchResult:
        """Search, within the deadline; never raises for what the servers or the query do."""
        if not query.strip():
            return SearchResult(failure="the query is empty")
        body = request_body([query[:MAX_QUERY_CHARS]], self._options.topk)
        end = time.monotonic() + self._options.deadline
        servers, first = len(self._urls), next(self._searches)
        result = SearchResult(failure="the search engine did not answer in time")
        for attempt in range(servers * (1 + self._options.retries)):
            if attempt >= servers:
                # Full jitter: the searches of a step must not come back all at once.
                pause = random.uniform(0, 0.1 * 2 ** (attempt // servers))
                await asyncio.sleep(min(pause, max(0.0, end - time.monotonic())))
            # A server that stalls must leave time for those after it.
            seconds = (end - time.monotonic()) / max(1, servers - attempt)
            if seconds <= 0:
                break
            result = await self._ask(self._urls[(first + attempt) % servers], body, seconds)
            if not result.failure:
                break
        return result

    async def close(self) -> None:
        """Give back the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, url: str, body: bytes, seconds: float) -> SearchResult:
        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            async with self._opened().post(url, data=body, timeout=timeout) as response:
                text = await response.read()
        except asyncio.TimeoutError:
            return SearchResult(failure="the search engine did not answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return SearchResult(failure=f"the search engine is not available ({str(error) or type(error).__name__})")
        if response.status in _BUSY:
            return SearchResult(failure=f"the search engine is not available (status {response.status})")
        if response.status != 200:
            detail = " ".join(text.decode(errors="replace").split())[:200]
            return SearchResult(failure=f"the search engine failed (status {response.status}: {detail})")
        try:
            # Search-R1's servers for web search give more than they are asked for.
            return SearchResult(tuple(parse_answer(text, 1)[0][: self._options.topk]))
        except ValueError as error:
            return SearchResult(failure=f"the search engine failed ({error})")

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if token := os.environ.get(TOKEN_VARIABLE):
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
