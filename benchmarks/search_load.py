"""Load on a retrieval server: many connections at once, in turns with the same backend called in process."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.retrieval.protocol import request_body

# The least number of queries over which the server's memory is watched.
QUERIES = 50_000

HEAD = "POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


@dataclass(frozen=True)
class Load:
    """How to ask.

    clients: connections at the same time.
    batch: queries in a request.
    topk: hits for a query.
    rounds: at least so many; more where QUERIES takes more.
    seconds: of a round over HTTP, and of the same round in process.
    """

    clients: int
    batch: int
    topk: int
    rounds: int
    seconds: float


class Client(asyncio.Protocol):
    """One connection that asks as fast as it is answered; an HTTP library would need the cores that are measured."""

    def __init__(self, requests: Iterator[bytes], end: float, latencies: list[float], ended: asyncio.Future) -> None:
        self._requests, self._end, self._latencies, self.ended = requests, end, latencies, ended
        self._received, self._size = bytearray(), 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, _ = (b"", b"", b"") if self._size else self._received.partition(b"\r\n\r\n")
        if separator:
            if not head.startswith(b"HTTP/1.1 200"):
                self._end_with(RuntimeError(f"a request failed: {bytes(head[:80])!r}"))
                return
            self._size = len(head) + 4 + int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if self._size and len(self._received) >= self._size:
            self._latencies.append(time.perf_counter() - self._start)
            self._received.clear()
            self._size = 0
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_with(RuntimeError(f"the server closed a connection: {error}"))

    def _ask(self) -> None:
        self._start = time.perf_counter()
        if self._start < self._end:
            self._transport.write(next(self._requests))
        else:
            self._end_with(None)

    def _end_with(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error) if error else self.ended.set_result(None)
            self._transport.close()


async def ask_all(port: int, requests: Iterator[bytes], clients: int, seconds: float) -> list[float]:
    """Return the latency of every request in seconds; RuntimeError where one failed."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    connections = [Client(requests, end, latencies, loop.create_future()) for _ in range(clients)]
    for connection in connections:
        await loop.create_connection(lambda connection=connection: connection, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(connection.ended for connection in connections))
    return latencies


def search_in_threads(backend: Index, batches: Iterator[list[str]], threads: int, topk: int, seconds: float) -> int:
    """Search batches in threads for `seconds`; return the number of batches."""
    counts, end = [0] * threads, time.perf_counter() + seconds

    def work(thread: int) -> None:
        while time.perf_counter() < end:
            backend.search(next(batches), topk)
            counts[thread] += 1

    pool = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for each in pool:
        each.start()
    for each in pool:
        each.join()
    return sum(counts)


def measure_load(
    backend: Index, threads: int, port: int, server: psutil.Process, queries: Sequence[str], load: Load
) -> dict[str, Any]:
    """Ask the server on `port`, before and after which `threads` threads search in `backend` for the same time.

    Returns medians over the rounds of the rates, by the clock and per second that a core was used; their ratios; latencies
    of requests; and the resident memory of the server's processes after warming up and after each round.
    """
    groups = [
        list(queries[start : start + load.batch]) for start in range(0, len(queries) - load.batch + 1, load.batch)
    ]
    bodies = [request_body(group, load.topk) for group in groups]
    batches = itertools.cycle(groups)
    requests = itertools.cycle([HEAD.format(len(body)).encode() + body for body in bodies])

    def in_process() -> tuple[float, float]:
        start, core = time.perf_counter(), time.process_time()
        done = load.batch * search_in_threads(backend, batches, threads, load.topk, load.seconds / 2)
        return done / (time.perf_counter() - start), done / (time.process_time() - core)

    asyncio.run(ask_all(port, requests, load.clients, 2 * load.seconds))
    rates: dict[str, list[float]] = {name: [] for name in ("in", "in_core", "http", "http_core")}
    latencies: list[float] = []
    rss = [_rss(server)]
    before = in_process()
    while len(rates["in"]) < load.rounds or load.batch * len(latencies) < QUERIES:
        start, core = time.perf_counter(), _core_seconds(server)
        fresh = asyncio.run(ask_all(port, requests, load.clients, load.seconds))
        done = load.batch * len(fresh)
        rates["http"].append(done / (time.perf_counter() - start))
        rates["http_core"].append(done / (_core_seconds(server) - core))
        after = in_process()
        rates["in"].append((before[0] + after[0]) / 2)
        rates["in_core"].append((before[1] + after[1]) / 2)
        before = after
        latencies += fresh
        rss.append(_rss(server))
    return _summary(rates, latencies, rss, load)


def _summary(rates: dict[str, list[float]], latencies: list[float], rss: list[float], load: Load) -> dict[str, Any]:
    ratios = [over / within for over, within in zip(rates["http"], rates["in"], strict=True)]
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "clients": load.clients,
        "batch": load.batch,
        "rounds": len(ratios),
        "queries": load.batch * len(latencies),
        "in_process": {"per_second": statistics.median(rates["in"]), "per_core": statistics.median(rates["in_core"])},
        "http": {"per_second": statistics.median(rates["http"]), "per_core": statistics.median(rates["http_core"])},
        "ratios": sorted(ratios),
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
        "rss_mb": rss,
    }


def _processes(server: psutil.Process) -> list[psutil.Process]:
    return [server, *server.children(recursive=True)]


def _rss(server: psutil.Process) -> float:
    return sum(process.memory_info().rss for process in _processes(server)) / 1e6


def _core_seconds(server: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _processes(server))


def show_load(report: dict[str, Any]) -> None:
    load = report["load"]
    print(
        f"{load['clients']} clients, {load['batch']} queries in a request, {report['workers']} workers with "
        f"{report['server_threads']} threads: {load['queries']:,} queries in {load['rounds']} rounds, no error"
    )
    for name, title in (("in_process", "in process"), ("http", "HTTP")):
        rates = load[name]
        print(f"{title:<12}{rates['per_second']:>8,.0f} queries/s{rates['per_core']:>8,.0f} per core-second")
    ratios = load["ratios"]
    print(f"ratio       {statistics.median(ratios):>8.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    print(f"p50, p99    {load['p50_ms']:>8.0f} ms, {load['p99_ms']:.0f} ms")
    print("RSS         " + ", ".join(f"{size:.1f}" for size in load["rss_mb"]) + " MB, after warming up and each round")
