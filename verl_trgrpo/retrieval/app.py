"""Serve Search-R1's HTTP protocol with limits, a deadline, and a bounded amount of work at a time.

Request to ``POST /retrieve``: ``{"queries": ["..."], "topk": 3, "return_scores": true}``. Answer, one list for each query:
``{"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"}, "score": 1.0}]]}``. Without return_scores (the
default) the inner entries are the documents themselves. Errors are ``{"detail": "..."}``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from verl_trgrpo.retrieval.index import Hit, Index, as_unicode

logger = logging.getLogger(__name__)

# Hits for a query whose request does not say how many: the default of Search-R1's server and rollouts.
TOPK = 3
# Rollouts show a handful of passages; each hit costs a read of the stored passage.
MAX_TOPK = 100
# A rollout sends one query a request, evaluations batches of some hundreds. A larger batch is slower than two requests.
MAX_QUERIES = 512
# An index reads the first 128 words of a query.
MAX_QUERY_CHARS = 4096
MAX_BODY_BYTES = 4 << 20
# Bytes of bodies that are held while they come in: a connection costs nothing, a body of 4 MiB does.
MAX_BODIES_BYTES = 16 * MAX_BODY_BYTES
# Characters of the passages of an answer; writing it as JSON stops the server for a tenth of a second.
MAX_ANSWER_CHARS = 16 << 20
# Bytes of a request line, of headers, and of what stands between the pieces of a body.
MAX_HEADER_BYTES = 1 << 16
# Queries accepted and not answered: four full requests. More would only wait for their deadline.
MAX_PENDING = 4 * MAX_QUERIES

# Seconds for a request, reading its body included.
DEADLINE = 10.0
# Searches at a time; they leave Python's lock to others.
THREADS = os.cpu_count() or 1

# Queries that a thread searches in one go; a large request uses all threads and can be stopped between batches.
_BATCH = 8

_TOO_MUCH = ("too_long", "string_too_long")

_Query = Annotated[
    str,
    BeforeValidator(lambda query: as_unicode(query) if isinstance(query, str) else query),
    Field(max_length=MAX_QUERY_CHARS),
]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with a bound on what of a request is not its body: the parser joins a header piece by piece.

    The bound holds before a request reaches the application, which looks at the token.
    """

    not_body = 0

    def data_received(self, data: bytes) -> None:
        """Count and parse what has come in; close a connection that is beyond the bound."""
        self.not_body += len(data)
        super().data_received(data)
        if self.not_body > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 431 \r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self.not_body -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self.not_body = 0
        super().on_message_complete()


class RetrieveRequest(BaseModel):
    """The body of a request. A `topk` that is missing, null or 0 means `TOPK`, as in Search-R1's server."""

    model_config = ConfigDict(strict=True, frozen=True)

    # Stops at the first wrong query: the answer must not be larger than the request.
    queries: Annotated[list[_Query], FailFast(), Field(max_length=MAX_QUERIES)]
    topk: Annotated[
        int, BeforeValidator(lambda topk: TOPK if topk in (None, 0) else topk), Field(ge=1, le=MAX_TOPK)
    ] = TOPK
    return_scores: bool = False


def parse_request(body: bytes) -> RetrieveRequest:
    """Parse and check the body of a request.

    Raises:
        HTTPException: 400 for a body that is not JSON, 422 for wrong fields (all of them), 413 for too many queries or too
            long ones.
    """
    try:
        return RetrieveRequest.model_validate(json.loads(body))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        wrong = [one for one in found if one["type"] not in _TOO_MUCH]
        reasons = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in wrong or found]
        raise HTTPException(422 if wrong else 413, "; ".join(reasons)) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON in UTF-8") from error


def answer(results: Sequence[Sequence[Hit]], return_scores: bool) -> dict[str, Any]:
    """Return the answer as JSON types."""

    def entry(hit: Hit) -> dict[str, Any]:
        document = {"id": hit.id, "contents": hit.contents}
        return {"document": document, "score": hit.score} if return_scores else document

    return {"result": [[entry(hit) for hit in hits] for hits in results]}


class _Service:
    """Answers requests from an index, in a pool of threads."""

    def __init__(self, index: Index, token: str | None) -> None:
        self._index = index
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="search")
        self._lock, self._pending, self._body_bytes = threading.Lock(), 0, 0
        self._token = None if token is None else _digest(f"Bearer {token}")

    async def retrieve(self, request: Request) -> Response:
        try:
            return JSONResponse(await asyncio.wait_for(self._answer(request), DEADLINE))
        except asyncio.TimeoutError as error:  # not the built-in one before Python 3.11
            raise HTTPException(504, f"no answer within the deadline of {DEADLINE:g} s") from error
        except ClientDisconnect as error:
            raise HTTPException(400, "the client disconnected") from error
        except RuntimeError as error:
            logger.error("a search failed: %s", error)
            raise HTTPException(500, str(error)) from error

    async def health(self, request: Request) -> Response:
        about: dict[str, Any] = {"status": "ok"}
        with suppress(HTTPException):  # a probe needs no token, but does not learn what is served
            self._check_token(request)
            about |= {"documents": self._index.documents, "pending": self._pending}
        return JSONResponse(about)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _check_token(self, request: Request) -> None:
        """Refuse a request without the token; the comparison takes the same time for every wrong one."""
        given = _digest(request.headers.get("Authorization", ""))
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise HTTPException(401, "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def _answer(self, request: Request) -> dict[str, Any]:
        self._check_token(request)
        body = bytearray()
        try:
            await self._read(request, body)
            checked = parse_request(bytes(body))
        finally:
            self._body_bytes -= len(body)
        return answer(await self._search(checked.queries, checked.topk), checked.return_scores)

    async def _read(self, request: Request, body: bytearray) -> None:
        """Read the body to its end, even if it is too large: a client that is cut off would not see the reason."""
        size, crowded = 0, False
        async for piece in request.stream():
            size += len(piece)
            crowded = crowded or self._body_bytes + len(piece) > MAX_BODIES_BYTES
            if size <= MAX_BODY_BYTES and not crowded:
                body += piece
                self._body_bytes += len(piece)
        if size > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
        if crowded:
            raise HTTPException(503, "the bodies of other requests take all memory; try again", {"Retry-After": "1"})

    async def _search(self, queries: list[str], topk: int) -> list[list[Hit]]:
        with self._lock:
            if self._pending + len(queries) > MAX_PENDING:
                raise HTTPException(503, f"{self._pending} queries are waiting; try again", {"Retry-After": "1"})
            self._pending += len(queries)
        futures, found = [], [0]
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            future = self._pool.submit(self._search_batch, batch, topk, found)
            # Counted down when the work has ended, not when the request has: the work is the load.
            future.add_done_callback(partial(self._done, len(batch)))
            futures.append(future)
        try:
            batches = await asyncio.gather(*map(asyncio.wrap_future, futures))
        finally:
            for future in futures:
                future.cancel()
        return [hits for batch in batches for hits in batch]

    def _search_batch(self, queries: list[str], topk: int, found: list[int]) -> list[list[Hit]]:
        """Search in a thread; `found` holds the characters that the queries of the request have found so far."""
        results: list[list[Hit]] = []
        step = max(1, 32 // topk)  # queries between two looks at the size, so that few passages are beyond the bound
        for start in range(0, len(queries), step):
            part = self._index.search(queries[start : start + step], topk)
            with self._lock:
                found[0] += sum(len(hit.contents) for hits in part for hit in hits)
            results += part
            if found[0] > MAX_ANSWER_CHARS:
                message = f"the answer has more than {MAX_ANSWER_CHARS} characters; send fewer queries, a smaller topk"
                raise HTTPException(413, message)
        return results

    def _done(self, queries: int, future: Future[list[list[Hit]]]) -> None:
        with self._lock:
            self._pending -= queries


def create_app(index: Index, token: str | None) -> Starlette:
    """Build the application; requests must carry the `token`, if there is one."""
    service = _Service(index, token)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    async def refuse(request: Request, error: Any) -> Response:
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)

    routes = [
        Route("/retrieve", service.retrieve, methods=["POST"]),
        Route("/health", service.health, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: refuse})


def _digest(text: str) -> bytes:
    # Digests have one length, so the comparison does not tell the length of the token.
    return hashlib.sha256(text.encode("latin-1", "replace")).digest()
