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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import anyio
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from verl_trgrpo.common.foreign import NotJSONError, parse_json
from verl_trgrpo.retrieval.index import ChangedIndexError, Hit, Index, as_unicode
from verl_trgrpo.retrieval.limits import CHUNK, Held, Limits, Loan
from verl_trgrpo.retrieval.turns import Search, Turns

logger = logging.getLogger(__name__)

# Hits for a query whose request does not say how many: the default of Search-R1's server and rollouts.
TOPK = 3

_TOO_MUCH = ("too_long", "string_too_long")

_Query = Annotated[
    str,
    BeforeValidator(lambda query: as_unicode(query) if isinstance(query, str) else query),
    Field(max_length=Limits.query_chars),
]


class RetrieveRequest(BaseModel):
    """The body of a request. A `topk` that is missing, null or 0 means `TOPK`, as in Search-R1's server."""

    model_config = ConfigDict(strict=True, frozen=True)

    # Stops at the first wrong query: the answer must not be larger than the request.
    queries: Annotated[list[_Query], FailFast(), Field(max_length=Limits.queries)]
    topk: Annotated[
        int, BeforeValidator(lambda topk: TOPK if topk in (None, 0) else topk), Field(ge=1, le=Limits.topk)
    ] = TOPK
    return_scores: bool = False


def parse_request(body: bytes) -> RetrieveRequest:
    """Parse and check the body of a request.

    Raises:
        HTTPException: 400 for a body that is not JSON, 422 for wrong fields (all of them), 413 for too many queries or too
            long ones.
    """
    try:
        return RetrieveRequest.model_validate(parse_json(body))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        wrong = [one for one in found if one["type"] not in _TOO_MUCH]
        reasons = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in wrong or found]
        raise HTTPException(422 if wrong else 413, "; ".join(reasons)) from error
    except NotJSONError as error:
        raise HTTPException(400, "the body is not JSON in UTF-8, or has a key twice") from error


def passages(hits: Iterable[Hit], return_scores: bool) -> bytes:
    """Return the hits of a query as JSON."""

    def entry(hit: Hit) -> dict[str, Any]:
        document = {"id": hit.id, "contents": hit.contents}
        return {"document": document, "score": hit.score} if return_scores else document

    return json.dumps([*map(entry, hits)], ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


class Answer(Response):
    """The JSON of an answer, in pieces; each waits until the client has read those before it.

    Args:
        results: the passages of each query.
        held: loan of what the answer takes, which ends with it.
    """

    media_type = "application/json"

    def __init__(self, results: Sequence[bytes], held: Loan) -> None:
        self._size = len(b'{"result":[]}') + sum(map(len, results)) + max(0, len(results) - 1)
        self._results, self._held = results, held
        super().__init__(headers={"Content-Length": str(self._size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        unsent = self._size
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for chunk in self.chunks():
                unsent -= len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": unsent > 0})
        finally:
            self._held.end()

    def chunks(self) -> Iterator[bytes]:
        """Yield the JSON in pieces of at most `CHUNK` bytes."""
        chunk = bytearray(b'{"result":[')
        for number, result in enumerate(self._results):
            chunk += b"," * (number > 0) + result
            while len(chunk) > CHUNK:
                yield bytes(chunk[:CHUNK])
                del chunk[:CHUNK]
        yield bytes(chunk + b"]}")


class _Service:
    """Answers requests from an index."""

    def __init__(self, index: Index, token: str | None, limits: Limits, end: Callable[[str], None]) -> None:
        self._index, self._limits, self.held, self._end = index, limits, Held(limits), end
        self.turns = Turns(limits.threads, limits.turn)
        self._token = None if token is None else _digest(f"Bearer {token}")

    async def retrieve(self, request: Request) -> Response:
        self._check_token(request)
        held = Loan(self.held.bytes)
        try:
            with anyio.fail_after(self._limits.deadline):
                return await self._answer(request, held)
        except BaseException as error:
            held.end()
            if isinstance(error, TimeoutError):
                message = f"no answer within the deadline of {self._limits.deadline:g} s"
                raise HTTPException(504, message) from error
            if isinstance(error, ClientDisconnect):
                raise HTTPException(400, "the client disconnected") from error
            if isinstance(error, ChangedIndexError):
                self._end(str(error))
                raise HTTPException(503, str(error)) from error
            if isinstance(error, RuntimeError):
                logger.error("a search failed: %s", error)
                raise HTTPException(500, str(error)) from error
            raise

    async def health(self, request: Request) -> Response:
        about: dict[str, Any] = {"status": "ok"}
        with suppress(HTTPException):  # a probe needs no token, but does not learn what is served
            self._check_token(request)
            about |= {"documents": self._index.documents, "pending": self.held.queries.held}
            about |= {"held_bytes": self.held.bytes.held, "connections": self.held.connections}
        return JSONResponse(about)

    def _check_token(self, request: Request) -> None:
        """Refuse a request without the token; the comparison takes the same time for every wrong one."""
        given = _digest(request.headers.get("Authorization", ""))
        if self._token is not None and not hmac.compare_digest(given, self._token):
            raise HTTPException(401, "the bearer token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    async def _answer(self, request: Request, held: Loan) -> Response:
        body = await self._read(request, held)
        checked = parse_request(body)
        results = await self._search(request, checked, held) if checked.queries else []
        held.give(len(body))
        return Answer(results, held)

    async def _read(self, request: Request, held: Loan) -> bytes:
        """Read the body to its end, even if it is too large: a client that is cut off would not see the reason."""
        size, crowded, body = 0, False, bytearray()
        async for piece in request.stream():
            size += len(piece)
            crowded = crowded or (size <= self._limits.body_bytes and not held.take(len(piece)))
            if size <= self._limits.body_bytes and not crowded:
                body += piece
        if size > self._limits.body_bytes:
            raise HTTPException(413, f"the body is larger than {self._limits.body_bytes} bytes")
        if crowded:
            raise _busy("the bodies and answers of other requests take all memory")
        return bytes(body)

    async def _search(self, request: Request, checked: RetrieveRequest, held: Loan) -> list[bytes]:
        """Search for the queries, until the client is gone."""
        size = 0

        def search(number: int) -> bytes:
            return passages(self._index.search([checked.queries[number]], checked.topk)[0], checked.return_scores)

        def keep(found: int) -> None:
            nonlocal size
            size += found
            if size > self._limits.answer_bytes:
                message = (
                    f"the answer has more than {self._limits.answer_bytes} bytes; send fewer queries, a smaller topk"
                )
                raise HTTPException(413, message)
            if not held.take(found):
                raise _busy("the bodies and answers of other requests take all memory")

        pending = Loan(self.held.queries)
        if not pending.take(len(checked.queries)):
            raise _busy(f"{self.held.queries.held} queries are waiting")
        running = Search(len(checked.queries), search, keep, pending)
        self.turns.add(running)
        # The body has been read: what comes next is the end of the connection.
        gone = asyncio.ensure_future(request.receive())
        gone.add_done_callback(lambda _: running.found.cancel())
        try:
            return await asyncio.wrap_future(running.found)
        except asyncio.CancelledError:
            if gone.done():
                raise ClientDisconnect from None
            raise
        finally:
            gone.cancel()
            running.end()


def _busy(reason: str) -> HTTPException:
    return HTTPException(503, f"{reason}; try again", {"Retry-After": "1"})


def create_app(
    index: Index, token: str | None, limits: Limits, end: Callable[[str], None] = lambda reason: None
) -> Starlette:
    """Build the application; requests must carry the `token`, if there is one. It calls `end` when it cannot go on."""
    service = _Service(index, token, limits, end)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Held]]:
        yield {"held": service.held}
        service.turns.close()

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
