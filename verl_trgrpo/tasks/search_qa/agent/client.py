"""Asynchronous searches against a server that speaks Search-R1's protocol, made for rollouts.

A rollout must go on whatever happens to the server. So a search has a deadline, few retries and a circuit breaker, and
a failure is a value, not an exception: one stalled request would hold up a whole training step, and one exception would
fail a whole group of responses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from verl_trgrpo.retrieval.backend import Hit, optional_module
from verl_trgrpo.retrieval.protocol import parse_answer, request_body
from verl_trgrpo.tasks.search_qa.agent.options import ClientOptions

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)

_MAX_ANSWER_BYTES = 1 << 26
_BUSY = (429, 502, 503, 504)


@dataclass(frozen=True)
class SearchResult:
    """Passages, best first, or the reason why there are none; `failure` is empty where the search worked."""

    hits: tuple[Hit, ...] = ()
    failure: str = ""


class _RetryLaterError(Exception):
    """The server cannot answer now."""


class SearchClient:
    """Searches of one event loop: a pooled session, a limit of concurrency, a circuit breaker."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        parts = urlsplit(options.url)
        self._url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/retrieve", parts.query, ""))
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(options.max_concurrency)
        self._failures_in_a_row = 0
        self._closed_until = 0.0  # monotonic seconds; the server is not asked before

    async def search(self, query: str) -> SearchResult:
        """Search, within the deadline; never raises for what the server or the query does."""
        if not query.strip():
            return SearchResult(failure="the query is empty")
        if time.monotonic() < self._closed_until:
            return SearchResult(failure="the search engine is not available")
        try:
            hits = await asyncio.wait_for(self._search(query), self._options.deadline)
        except asyncio.TimeoutError:
            return self._failed("the search engine did not answer in time")
        except _RetryLaterError as error:
            return self._failed(f"the search engine is not available ({error})")
        except ValueError as error:
            return self._failed(f"the search engine failed ({error})")
        self._failures_in_a_row = 0
        return SearchResult(tuple(hits))

    async def close(self) -> None:
        """Give back the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _failed(self, reason: str) -> SearchResult:
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self._options.failures_to_open:
            if time.monotonic() >= self._closed_until:
                logger.warning(
                    "%s failed %d times in a row (%s); it is not asked for %g s",
                    self._url, self._failures_in_a_row, reason, self._options.cooldown,
                )  # fmt: skip
            self._closed_until = time.monotonic() + self._options.cooldown
        return SearchResult(failure=reason)

    async def _search(self, query: str) -> list[Hit]:
        body = request_body([query[: self._options.max_query_chars]], self._options.topk)
        attempts = self._options.retries + 1
        async with self._slots:
            for attempt in range(attempts):
                try:
                    # Search-R1's servers for web search give more than they are asked for.
                    return parse_answer(await self._post(body), 1)[0][: self._options.topk]
                except _RetryLaterError:
                    if attempt + 1 == attempts:
                        raise
                # Full jitter: the searches of a step must not come back all at once.
                await asyncio.sleep(random.uniform(0, 0.2 * 2**attempt))
        raise _RetryLaterError("no attempt left")

    async def _post(self, body: bytes) -> bytes:
        aiohttp = optional_module("aiohttp")
        try:
            async with self._opened().post(self._url, data=body) as response:
                text = await self._read(response)
                if response.status in _BUSY:
                    raise _RetryLaterError(f"status {response.status}")
                if response.status != 200:
                    raise ValueError(
                        f"status {response.status}: {' '.join(text.decode(errors='replace').split())[:200]}"
                    )
                return text
        except (aiohttp.ClientError, OSError) as error:
            raise _RetryLaterError(str(error) or type(error).__name__) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in response.content.iter_chunked(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_ANSWER_BYTES:
                raise ValueError(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
        return b"".join(pieces)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            aiohttp = optional_module("aiohttp")
            headers = {"Content-Type": "application/json"}
            token = os.environ.get(self._options.token_variable)
            if token:
                headers["Authorization"] = f"Bearer {token}"
            connector = aiohttp.TCPConnector(limit=self._options.max_concurrency)
            self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self._session


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientOptions, SearchClient]] = (
    weakref.WeakKeyDictionary()
)


def shared_client(options: ClientOptions) -> SearchClient:
    """Return the client of the running event loop with these options: veRL makes a new agent loop for each response."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if options not in clients:
        clients[options] = SearchClient(options)
    return clients[options]
