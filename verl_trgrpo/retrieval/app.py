"""The web application: Search-R1's protocol with limits, a deadline, and a bounded amount of work at a time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from verl_trgrpo.retrieval.backend import (
    Backend,
    BackendBusyError,
    BackendError,
    BackendTimeoutError,
    Hit,
    optional_module,
)
from verl_trgrpo.retrieval.metrics import Metrics
from verl_trgrpo.retrieval.options import ServerOptions
from verl_trgrpo.retrieval.protocol import BadRequestError, RetrieveRequest, answer, parse_request

if TYPE_CHECKING:
    from fastapi import FastAPI, Request, Response

# Bytes of a body that is too large which are read and thrown away: a client that is cut off while it sends sees a broken
# connection, not the reason.
_DISCARD = 1 << 26


class RefusalError(Exception):
    """Why a request gets no answer; `status` and `headers` say so in HTTP."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers or {}


class Admission:
    """Counts the queries in work, and turns away what would be too many. Threads may use it at the same time."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._metrics = limit, metrics
        self._lock = threading.Lock()
        self._pending = 0

    def enter(self, queries: int) -> None:
        """Admit queries; RefusalError 503 where they are too many."""
        with self._lock:
            if self._pending + queries > self._limit:
                raise RefusalError(503, f"{self._pending} queries are waiting; try again", {"Retry-After": "1"})
            self._change(queries)

    def leave(self, queries: int) -> None:
        with self._lock:
            self._change(-queries)

    def _change(self, queries: int) -> None:
        self._pending += queries
        self._metrics.pending(self._pending)


class RetrievalService:
    """Answers requests with a backend, in a pool of threads."""

    def __init__(self, options: ServerOptions, backend: Backend, metrics: Metrics) -> None:
        self._options, self._backend, self._metrics = options, backend, metrics
        self._admission = Admission(options.max_pending, metrics)
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="search")
        self._token = None if options.token is None else _digest(f"Bearer {options.token}")

    async def retrieve(self, request: Request) -> Response:
        from fastapi.responses import JSONResponse

        start, queries = time.monotonic(), 0
        try:
            checked, results = await asyncio.wait_for(self._answer(request), self._options.deadline)
            queries = len(results)
            response = JSONResponse(answer(results, checked.return_scores))
        except asyncio.TimeoutError:  # not the built-in one before Python 3.11
            response = _refuse(RefusalError(504, f"no answer within the deadline of {self._options.deadline:g} s"))
        except BackendBusyError as error:
            response = _refuse(RefusalError(503, str(error), {"Retry-After": str(error.retry_after)}))
        except BackendTimeoutError as error:
            response = _refuse(RefusalError(504, str(error)))
        except BackendError as error:
            response = _refuse(RefusalError(502, str(error)))
        except BadRequestError as error:
            response = _refuse(RefusalError(error.status, str(error)))
        except RefusalError as refusal:
            response = _refuse(refusal)
        self._metrics.answered(response.status_code, queries, time.monotonic() - start)
        return response

    def check_token(self, request: Request) -> None:
        """Refuse a request without the token; the comparison takes the same time whatever is wrong."""
        given = _digest(request.headers.get("Authorization", ""))
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise RefusalError(401, "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._backend.close()

    async def _answer(self, request: Request) -> tuple[RetrieveRequest, list[list[Hit]]]:
        self.check_token(request)
        # One query stands for the request until its body tells how many there are.
        self._admission.enter(1)
        try:
            options = self._options
            checked = parse_request(
                await self._body(request),
                default_topk=options.topk,
                max_topk=options.max_topk,
                max_queries=options.max_queries,
                max_query_chars=options.max_query_chars,
            )
        finally:
            self._admission.leave(1)
        self._admission.enter(len(checked.queries))
        return checked, await self._search(checked.queries, checked.topk)

    async def _body(self, request: Request) -> bytes:
        from starlette.requests import ClientDisconnect

        limit, size, body = self._options.max_body_bytes, 0, bytearray()
        try:
            async for piece in request.stream():
                size += len(piece)
                if size <= limit:
                    body += piece
                elif size > limit + _DISCARD:
                    break
        except ClientDisconnect as error:
            raise RefusalError(400, "the client went away") from error
        if size > limit:
            raise RefusalError(413, f"the body is larger than {limit} bytes", {"Connection": "close"})
        return bytes(body)

    def _leave(self, queries: int, future: Future[list[list[Hit]]]) -> None:
        self._admission.leave(queries)

    async def _search(self, queries: list[str], topk: int) -> list[list[Hit]]:
        """Search in batches, so that a large request uses all threads and can be stopped between them."""
        size = self._backend.batch_size
        futures = []
        for start in range(0, len(queries), size):
            batch = queries[start : start + size]
            future: Future[list[list[Hit]]] = self._pool.submit(self._backend.search, batch, topk)
            # When the work has ended, not when nobody waits for it any more: that is what counts as load.
            future.add_done_callback(partial(self._leave, len(batch)))
            futures.append(future)
        try:
            batches = await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            for future in futures:
                future.cancel()
        return [hits for batch in batches for hits in batch]


def create_app(options: ServerOptions, backend: Backend, metrics: Metrics) -> FastAPI:
    """Return the application; it owns the backend and closes it at the end.

    Raises RuntimeError where FastAPI is not installed.
    """
    fastapi = optional_module("fastapi")
    from fastapi.responses import JSONResponse, Response
    from starlette.routing import Route

    service = RetrievalService(options, backend, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    async def health(request: Request) -> Response:
        about = {"status": "ok", "backend": backend.name}
        with suppress(RefusalError):  # a probe needs no token; addresses of other servers are not for everybody
            service.check_token(request)
            about |= backend.describe()
        return JSONResponse(about)

    async def show_metrics(request: Request) -> Response:
        try:
            service.check_token(request)
        except RefusalError as refusal:
            return _refuse(refusal)
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [
        Route("/retrieve", service.retrieve, methods=["POST"]),
        Route("/health", health, methods=["GET"]),
        Route("/metrics", show_metrics, methods=["GET"]),
    ]
    # No pages about the interface: they would load scripts from elsewhere.
    return fastapi.FastAPI(
        title="verl-trgrpo search", routes=routes, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )


def _refuse(refusal: RefusalError) -> Any:
    from fastapi.responses import JSONResponse

    return JSONResponse({"detail": str(refusal)}, refusal.status, refusal.headers)


def _digest(text: str) -> bytes:
    # Digests have one length, so that the comparison tells nothing about the token's.
    return hashlib.sha256(text.encode("latin-1", "replace")).digest()
