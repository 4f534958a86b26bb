"""The web application: Search-R1's protocol with limits, a deadline, and a bounded amount of work at a time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.retrieval.options import ServerOptions
from verl_trgrpo.retrieval.protocol import Hit, RefusedError, RetrieveRequest, answer, parse_request

logger = logging.getLogger(__name__)

# Queries that a thread searches in one go; a large request uses all threads and can be stopped between batches.
_BATCH = 8


class _Service:
    """Answers requests from an index, in a pool of threads."""

    def __init__(self, options: ServerOptions, index: Index) -> None:
        self._options, self._index = options, index
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="search")
        self._lock, self._pending = threading.Lock(), 0
        token = options.token()
        self._token = None if token is None else _digest(f"Bearer {token}")

    async def retrieve(self, request: Request) -> Response:
        try:
            checked, results = await asyncio.wait_for(self._answer(request), self._options.deadline)
            return JSONResponse(answer(results, checked.return_scores))
        except asyncio.TimeoutError:  # not the built-in one before Python 3.11
            refusal = RefusedError(504, f"no answer within the deadline of {self._options.deadline:g} s")
        except ClientDisconnect:
            refusal = RefusedError(400, "the client went away")
        except RefusedError as error:
            refusal = error
        except RuntimeError as error:
            logger.error("a search failed: %s", error)
            refusal = RefusedError(500, str(error))
        return JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)

    async def health(self, request: Request) -> Response:
        about: dict[str, Any] = {"status": "ok"}
        with suppress(RefusedError):  # a probe needs no token; what is served is not for everybody
            self._check_token(request)
            about |= {"documents": self._index.documents, "pending": self._pending}
        return JSONResponse(about)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _check_token(self, request: Request) -> None:
        """Refuse a request without the token; the comparison takes the same time whatever is wrong."""
        given = _digest(request.headers.get("Authorization", ""))
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise RefusedError(401, "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def _answer(self, request: Request) -> tuple[RetrieveRequest, list[list[Hit]]]:
        self._check_token(request)
        options = self._options
        checked = parse_request(
            await self._body(request),
            topk=options.topk,
            max_topk=options.max_topk,
            max_queries=options.max_queries,
            max_query_chars=options.max_query_chars,
        )
        return checked, await self._search(checked.queries, checked.topk)

    async def _body(self, request: Request) -> bytes:
        """Read the body to its end, too large or not: a client that is cut off would not see the reason."""
        limit, size, body = self._options.max_body_bytes, 0, bytearray()
        async for piece in request.stream():
            size += len(piece)
            if size <= limit:
                body += piece
        if size > limit:
            raise RefusedError(413, f"the body is larger than {limit} bytes")
        return bytes(body)

    async def _search(self, queries: list[str], topk: int) -> list[list[Hit]]:
        with self._lock:
            if self._pending + len(queries) > self._options.max_pending:
                raise RefusedError(503, f"{self._pending} queries are waiting; try again", {"Retry-After": "1"})
            self._pending += len(queries)
        futures = []
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            future = self._pool.submit(self._index.search, batch, topk)
            # When the work has ended, not when nobody waits for it any more: that is what counts as load.
            future.add_done_callback(partial(self._done, len(batch)))
            futures.append(future)
        try:
            batches = await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            for future in futures:
                future.cancel()
        return [hits for batch in batches for hits in batch]

    def _done(self, queries: int, future: Future[list[list[Hit]]]) -> None:
        with self._lock:
            self._pending -= queries


def create_app(options: ServerOptions, index: Index) -> Starlette:
    """Return the application, which searches in `index`."""
    service = _Service(options, index)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    routes = [
        Route("/retrieve", service.retrieve, methods=["POST"]),
        Route("/health", service.health, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _digest(text: str) -> bytes:
    # Digests have one length, so that the comparison tells nothing about the token's.
    return hashlib.sha256(text.encode("latin-1", "replace")).digest()
