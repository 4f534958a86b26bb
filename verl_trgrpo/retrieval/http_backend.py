"""Search through another server that speaks Search-R1's protocol: its own, this project's, or one for the web."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.retrieval.backend import (
    BackendBusyError,
    BackendError,
    BackendTimeoutError,
    Hit,
    optional_module,
)
from verl_trgrpo.retrieval.protocol import parse_answer, request_body

_MAX_ANSWER_BYTES = 1 << 26
# As many as a server may have threads.
_CONNECTIONS = 256


@dataclass(frozen=True)
class HttpOptions:
    """A server to ask.

    url: its address; without a path, /retrieve is meant.
    token: bearer token to send, or None.
    timeout: seconds for one request, all of it.

    Raises ValueError that lists everything that is wrong.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        raise_problems(url_problems(self.url) + timeout_problems(self.timeout) + token_problems(self.token))

    def open(self) -> HttpBackend:
        return HttpBackend(self)


def url_problems(url: str) -> list[str]:
    """Return what is wrong with an address of a server, if anything."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return [f"url is {url!r}; give one like http://127.0.0.1:8000"]
    return ["url holds a password; set it through the environment instead"] if "@" in parts.netloc else []


def timeout_problems(timeout: float) -> list[str]:
    """Return what is wrong with a number of seconds, if anything."""
    return [] if 0 < timeout <= 3600 else [f"timeout is {timeout} s; choose more than 0, at most 3600"]


def token_problems(token: str | None) -> list[str]:
    """Return what is wrong with a bearer token, if anything; the message does not hold the token."""
    if token is None or (token.isascii() and token.isprintable() and token and " " not in token):
        return []
    return ["the token is empty, or has spaces or characters that are not ASCII; choose letters and digits"]


class HttpBackend:
    """The `Backend` of a server elsewhere; connections are kept and shared between threads."""

    name = "http"
    batch_size = 256

    def __init__(self, options: HttpOptions) -> None:
        urllib3 = optional_module("urllib3")
        parts = urlsplit(options.url)
        path = parts.path if parts.path.strip("/") else "/retrieve"
        self._url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        self._timeout = options.timeout
        self._errors = urllib3.exceptions
        self._headers = {"Content-Type": "application/json"}
        if options.token is not None:
            self._headers["Authorization"] = f"Bearer {options.token}"
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        status, retry_after, body = self._post(request_body(queries, topk))
        if status in (429, 503):
            raise BackendBusyError(f"{self._url} is busy ({status})", _seconds(retry_after))
        if status == 504:
            raise BackendTimeoutError(f"{self._url} answered 504: {_short(body)}")
        if status != 200:
            raise BackendError(f"{self._url} answered {status}: {_short(body)}")
        try:
            # Search-R1's servers for web search give more than they are asked for.
            return [hits[:topk] for hits in parse_answer(body, len(queries))]
        except ValueError as error:
            raise BackendError(f"{self._url}: {error}") from error

    def describe(self) -> dict[str, Any]:
        return {"url": self._url}

    def close(self) -> None:
        self._pool.clear()

    def _post(self, body: bytes) -> tuple[int, str | None, bytes]:
        """Return status, Retry-After and body of the answer."""
        deadline = time.monotonic() + self._timeout
        for stale in (True, False):
            try:
                response = self._pool.request(
                    "POST",
                    self._url,
                    body=body,
                    headers=self._headers,
                    timeout=max(0.001, deadline - time.monotonic()),
                    retries=False,
                    preload_content=False,
                )
                with response:
                    return response.status, response.headers.get("Retry-After"), self._read(response, deadline)
            except self._errors.ProtocolError as error:
                # A kept connection may have gone stale; a search changes nothing, so it may be sent twice.
                if not stale:
                    raise BackendError(f"{self._url} broke the connection: {_short(error)}") from error
            except self._errors.NewConnectionError as error:
                raise BackendError(f"{self._url} cannot be reached: {_short(error)}") from error
            except self._errors.TimeoutError as error:
                raise BackendTimeoutError(f"{self._url} did not answer in {self._timeout:g} s") from error
            except self._errors.HTTPError as error:
                raise BackendError(f"{self._url} cannot be asked: {_short(error)}") from error
        raise AssertionError("unreachable")

    def _read(self, response: Any, deadline: float) -> bytes:
        """Read piece by piece: a server that sends a byte now and then must not hold the caller for ever."""
        pieces, size = [], 0
        while piece := response.read1(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > deadline:
                raise BackendTimeoutError(f"{self._url} did not finish its answer in {self._timeout:g} s")
            if size > _MAX_ANSWER_BYTES:
                raise BackendError(f"{self._url} sends more than {_MAX_ANSWER_BYTES} bytes")
        return b"".join(pieces)


def _seconds(retry_after: str | None) -> int:
    return min(int(retry_after), 3600) if retry_after and retry_after.isdecimal() else 1


def _short(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return " ".join(text.split())[:200]
