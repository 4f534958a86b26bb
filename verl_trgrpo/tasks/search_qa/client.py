"""Asynchronous searches for rollouts, on servers that speak Search-R1's protocol.

A rollout must continue whatever happens to the servers. So a search has a deadline and few retries, and a failure is a value,
not an exception: one stalled request would hold up a whole training step, and one exception would fail a whole group of
responses.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from verl_trgrpo.common.foreign import parse_json
from verl_trgrpo.common.secrets import without_passwords
from verl_trgrpo.common.text import count_of
from verl_trgrpo.retrieval import TOKEN_VARIABLE
from verl_trgrpo.retrieval.index import Hit, as_unicode
from verl_trgrpo.tasks.search_qa.format import defused, passages_text
from verl_trgrpo.tasks.search_qa.search_options import SearchOptions, read_search_options

# Longer queries are cut; servers refuse very long ones.
MAX_QUERY_CHARS = 1000

# Bytes of an answer that are read: the servers of a run may be anybody's, and a rollout shows a few thousand characters.
MAX_ANSWER_BYTES = 4 << 20


def request_body(queries: Sequence[str], topk: int) -> bytes:
    """Return the body of a request with scores."""
    return json.dumps({"queries": list(queries), "topk": topk, "return_scores": True}).encode()


def parse_answer(body: bytes, topk: int) -> list[Hit]:
    """Parse at most `topk` hits of the answer to one query: Search-R1's servers for web search return more.

    A hit without a score, as those servers give it, has score 0.

    Raises:
        ValueError: the body is not in the protocol, or not for one query.
    """
    try:
        result = parse_json(body)["result"]
        hits = [[_hit(entry) for entry in entries[:topk]] for entries in result[:2]]
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("the answer is not in Search-R1's protocol") from error
    if len(hits) != 1:
        raise ValueError(f"the answer has {count_of(len(result), 'result')} for 1 query")
    return hits[0]


def _hit(entry: Any) -> Hit:
    document, score = entry["document"], float(entry.get("score", 0.0))
    contents, identity = document["contents"], document.get("id")
    if not isinstance(contents, str) or not math.isfinite(score):
        raise ValueError("contents is not a string or score is not finite")
    return Hit("" if identity is None else as_unicode(str(identity)), as_unicode(contents), score)


@dataclass(frozen=True)
class SearchResult:
    """Passages, best first, or the reason why there are none; `failure` is empty if the search worked."""

    hits: tuple[Hit, ...] = ()
    failure: str = ""

    @property
    def text(self) -> str:
        """Return the text that the model reads."""
        return defused(f"The search failed: {self.failure}.") if self.failure else passages_text(self.hits)


class SearchClient:
    """Searches of one event loop: a pooled session, a limit of concurrency, servers that replace each other.

    Raises a ValueError if the token in the environment cannot be one.
    """

    def __init__(self, options: SearchOptions) -> None:
        self._options = options
        self._urls = [_with_path(url) for url in options.urls]
        self._searches = itertools.count()
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        if not (self._token.isascii() and self._token.isprintable() and " " not in self._token):
            raise ValueError(
                f"{TOKEN_VARIABLE} has a space, a line break or another character that no token has; set the variable again"
            )
        self._session: aiohttp.ClientSession | None = None

    async def search(self, query: str) -> SearchResult:
        """Search within the deadline; never raise for what the servers or the query do."""
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
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, url: str, body: bytes, seconds: float) -> SearchResult:
        try:
            timeout = aiohttp.ClientTimeout(total=seconds)
            # A server elsewhere that a redirection names was not chosen by the run.
            async with self._opened().post(url, data=body, timeout=timeout, allow_redirects=False) as response:
                text = await _read(response)
        except asyncio.TimeoutError:
            return SearchResult(failure="the search engine did not answer in time")
        except Exception as error:  # of aiohttp, the resolver, or an encoding; it would fail a whole group of responses
            reason = without_passwords(str(error)) or type(error).__name__
            return SearchResult(failure=f"the search engine is not available ({reason})")
        if response.status != 200:
            detail = " ".join(text.decode(errors="replace").split())[:200]
            return SearchResult(failure=f"the search engine failed (status {response.status}: {detail})")
        try:
            return SearchResult(tuple(parse_answer(text, self._options.topk)))
        except ValueError as error:
            return SearchResult(failure=f"the search engine failed ({error})")

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            connector = aiohttp.TCPConnector(limit=self._options.max_concurrency)
            # Compressed, an answer of any size would be small enough.
            self._session = aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False)
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer.

    Raises:
        aiohttp.ClientPayloadError: it is too large.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[SearchOptions, SearchClient]] = (
    weakref.WeakKeyDictionary()
)


def shared_client(options: SearchOptions) -> SearchClient:
    """Return the client of the running event loop with these options: veRL makes a new agent loop for each response."""
    clients = _clients.setdefault(asyncio.get_running_loop(), {})
    if options not in clients:
        clients[options] = SearchClient(options)
    return clients[options]


@asynccontextmanager
async def opened(settings: Mapping[str, Any] | None) -> AsyncIterator[None]:
    """Ask the search server once; the client of this event loop is closed at the end.

    Raises a ValueError if the server does not answer: an evaluation without searches would look like a bad model.
    """
    options = read_search_options(settings)
    client = shared_client(options)
    try:
        result = await client.search("test")
        if result.failure:
            raise ValueError(
                f"the rows need a search server, and {', '.join(options.urls)} does not work: {result.failure}; start one with "
                "`verl-trgrpo search serve --index DIR`, and give its address with --agent url=http://HOST:PORT/retrieve"
            )
        yield
    finally:
        await client.close()


def failures_of_servers(options: SearchOptions) -> dict[str, str]:
    """Ask each server for one search, without retries; return why those that did not answer did not, by address."""

    async def ask(url: str) -> str:
        client = SearchClient(replace(options, url=url, retries=0))
        try:
            return (await client.search("capital of France")).failure
        finally:
            await client.close()

    async def ask_all() -> list[str]:
        return await asyncio.gather(*map(ask, options.urls))

    found = zip(options.urls, asyncio.run(ask_all()), strict=True)
    return {url: failure for url, failure in found if failure}


def _with_path(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/retrieve", parts.query, ""))
