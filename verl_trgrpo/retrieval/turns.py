"""Search for many requests at a time, each in turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread

from verl_trgrpo.retrieval.limits import Loan


class Search:
    """The queries of one request, and what they find.

    Args:
        count: number of queries, at least 1.
        search: searches for the query of a number and returns what it finds, in a thread.
        keep: is told how many bytes one turn has found; what it raises ends the search.
        pending: the loan that counts queries which are not searched yet; it has `count` of them.
    """

    def __init__(self, count: int, search: Callable[[int], bytes], keep: Callable[[int], None], pending: Loan) -> None:
        self.found: Future[list[bytes]] = Future()
        self.waiting = deque(range(count))  # its methods are atomic
        self._search, self._keep, self._pending = search, keep, pending
        self._results: dict[int, bytes] = {}
        self._count, self._lock = count, Lock()

    def take(self) -> int | None:
        """Return the number of the next query, None if all are taken."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def run(self, number: int, until: float) -> None:
        """Search for the query `number`, and for further ones as long as the clock is before `until`."""
        taken, results = 0, {}
        try:
            following: int | None = number
            while following is not None:
                taken += 1
                results[following] = self._search(following)
                following = self.take() if time.monotonic() < until else None
            with self._lock:
                self._keep(sum(map(len, results.values())))
        except BaseException as error:
            self.end()
            with suppress(InvalidStateError):
                self.found.set_exception(error)
        # Counted down when the work has ended, not when the request has: the work is the load.
        self._pending.give(taken)
        with self._lock:
            self._results |= results
            finished = len(self._results) == self._count
        if finished:
            with suppress(InvalidStateError):  # the request has ended meanwhile
                self.found.set_result([self._results[number] for number in range(self._count)])

    def end(self) -> None:
        """Drop the queries that are not taken."""
        while self.take() is not None:
            self._pending.give(1)


class Turns:
    """Threads that serve the requests in a ring: each gets one turn of one thread, then it is the next one's.

    A turn is one query, and as many more as begin within `turn` seconds. So a request waits for one turn of each other one,
    however many queries they have, and one that is alone has all threads.
    """

    def __init__(self, threads: int, turn: float) -> None:
        self._ring: SimpleQueue[Search | None] = SimpleQueue()
        self._turn = turn
        # Daemons, because a second Ctrl-C ends the process without `close`.
        self._threads = [Thread(target=self._serve, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, search: Search) -> None:
        """Add a request to the ring."""
        self._ring.put(search)

    def close(self) -> None:
        """End the threads, and wait for the queries that they are at."""
        for _ in self._threads:
            self._ring.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (search := self._ring.get()) is not None:
            number = search.take()
            if search.waiting:
                self._ring.put(search)  # for another thread, at once
            if number is not None:
                search.run(number, time.monotonic() + self._turn)
