"""What clients can make the server hold: the limits, the shares of requests, and the connections."""

from __future__ import annotations

import os
import threading
from asyncio import BaseTransport, TimerHandle
from dataclasses import dataclass, field

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Bytes of an answer that are written in one go, and that may wait in a connection before the next are.
CHUNK = 1 << 15


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients can make the server hold. What is beyond one is refused; all is free when the request has ended.

    ``tests/retrieval/test_limits.py`` has a load for each that would exceed it.

    Args:
        connections: Open connections; then the oldest whose request is not here yet is closed, or the one that is idle for
            longest, or the new one if the application is at work for all.
        head_bytes: Bytes of a request that are not its body: address, headers, what stands between the pieces of a body.
        headers: Headers of a request, which take more memory than their bytes.
        body_bytes: Bytes of the body of a request.
        queries: Queries of a request. A rollout sends one, an evaluation some hundreds.
        query_chars: Characters of a query; an index reads its first 128 words.
        topk: Hits for a query; each costs a read of the stored passage.
        answer_bytes: Bytes of an answer.
        held_bytes: Bytes of the bodies that come in and the answers that go out, of all requests.
        pending: Queries of all requests that are accepted and not searched yet. More would only wait for their deadline.
        threads: Searches at a time; they leave Python's lock to others.
        turn: Seconds after which a thread goes on with the next request.
        deadline: Seconds for a request, from its first byte to that of its answer; and for an answer that is not read.
        idle: Seconds for a connection without a request: longer than clients keep it in their pools.
    """

    connections: int = 1024
    head_bytes: int = 1 << 16
    headers: int = 128
    body_bytes: int = 4 << 20
    queries: int = field(default=512, init=False)
    query_chars: int = field(default=4096, init=False)
    topk: int = field(default=100, init=False)
    answer_bytes: int = 24 << 20
    held_bytes: int = 64 << 20
    pending: int = 4096
    threads: int = os.cpu_count() or 1
    turn: float = 0.002
    deadline: float = 10.0
    idle: float = 75.0


class Share:
    """A resource that all requests share."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held, self.lock = limit, 0, threading.Lock()


class Loan:
    """What one request holds of a share: at most as much as it leaves free, so that a few large ones leave room for others."""

    def __init__(self, share: Share) -> None:
        self._share, self._amount, self._ended = share, 0, False

    def take(self, amount: int) -> bool:
        """Take `amount` more and return True; return False if that is too much, or the loan has ended."""
        with self._share.lock:
            fits = not self._ended and self._share.held + self._amount + 2 * amount <= self._share.limit
            self._add(amount if fits else 0)
        return fits

    def give(self, amount: int) -> None:
        """Give `amount` back."""
        with self._share.lock:
            self._add(-amount)

    def end(self) -> None:
        """Give all back, and take no more."""
        with self._share.lock:
            self._ended = True
            self._add(-self._amount)

    def _add(self, amount: int) -> None:
        self._amount += amount
        self._share.held += amount


class Held:
    """What clients hold at present."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.connections = limits, 0
        self.bytes, self.queries = Share(limits.held_bytes), Share(limits.pending)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with bounds on what a connection holds and on the time for which it stands still.

    They hold before a request reaches the application, which looks at the token. `Held` comes from the application's lifespan.
    """

    head_bytes = 0
    began: float | None = None  # when the first byte came of a request that is not here yet as a whole
    moved = 0.0  # when the client last read something
    patience = 0.0  # seconds for an answer that is not read
    buffered = 0
    pipelined = False
    timer: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Take a connection, and look after it until it is lost."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.held: Held = self.app_state["held"]
        self.held.connections += 1
        self.moved, self.patience = self.loop.time(), self.held.limits.deadline
        self.transport.set_write_buffer_limits(CHUNK)
        # uvicorn does so after an answer only.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._look()
        if self.held.connections > self.held.limits.connections:
            others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
            if spare := [one for one in others if one.spare()]:
                min(spare, key=lambda one: (one.began is None, one.began or one.moved)).transport.abort()
            else:
                self._refuse(503)

    def spare(self) -> bool:
        """Return whether the connection has neither an answer nor a request that the application has seen."""
        return not self._at_work() and not self.buffered and not self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        self.held.connections -= 1
        if self.timer is not None:
            self.timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count and parse what has come in; close a connection that is beyond the bound."""
        self.began = self.loop.time() if self.began is None else self.began
        self.head_bytes += len(data)
        super().data_received(data)
        if self.head_bytes > self.held.limits.head_bytes:
            self._refuse(431)

    def on_message_begin(self) -> None:
        """Take the begin of a request.

        One that comes before the last is answered is not read: the connection ends with that answer (RFC 9112, 9.3.2).
        """
        self.pipelined = self._at_work()
        if self.pipelined:
            self.cycle.keep_alive = False
            raise ValueError("a request before the last one is answered")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or refuse one too many."""
        super().on_header(name, value)
        if len(self.headers) > self.held.limits.headers:
            self._refuse(431)
            raise ValueError("too many headers")

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self.head_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        self.head_bytes, self.began = 0, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Take the end of an answer."""
        self.moved = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        if not self.pipelined and not self.transport.is_closing():
            super().send_400_response(msg)

    def resume_writing(self) -> None:
        """Take note that the client reads."""
        self.moved = self.loop.time()
        super().resume_writing()

    def shutdown(self) -> None:
        """Finish the request in work, and end then, at the latest after another deadline."""
        super().shutdown()
        self.patience = min(self.patience, 2.0)
        self.loop.call_later(self.held.limits.deadline + 2, self.transport.abort)

    def _at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _look(self) -> None:
        """Close the connection if it stands still for the deadline. While the application is at work, that has its own."""
        now, buffered, deadline = self.loop.time(), self.transport.get_write_buffer_size(), self.held.limits.deadline
        if buffered != self.buffered:
            self.buffered, self.moved = buffered, now
        if buffered and now - self.moved > self.patience:
            self.transport.abort()
        elif self.began is not None and now - self.began > deadline + 1 and not self._at_work():
            self._refuse(408)
        self.timer = self.loop.call_later(min(1.0, deadline / 4), self._look)

    def _refuse(self, status: int) -> None:
        if not self.transport.is_closing():
            if not self._at_work() or not self.cycle.response_started:
                self.transport.write(b"HTTP/1.1 %d \r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
            self.transport.close()
