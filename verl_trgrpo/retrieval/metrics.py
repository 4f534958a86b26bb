"""What the server counts, for Prometheus."""

from __future__ import annotations

import os

# The client library chooses where it keeps its numbers when it is imported, by this variable.
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one worker; with several workers they meet in files, and each worker can report the sum.

    directory: for those files, given to every worker in PROMETHEUS_MULTIPROC_DIR before the client library is imported;
        None with one worker.
    """

    def __init__(self, directory: str | None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._directory = directory
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "verl_trgrpo_search_requests", "Answers to /retrieve", ["status"], registry=self._registry
        )
        self._queries = Counter("verl_trgrpo_search_queries", "Queries answered", registry=self._registry)
        self._seconds = Histogram(
            "verl_trgrpo_search_request_seconds",
            "Seconds from request to answer",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._pending = Gauge(
            "verl_trgrpo_search_pending_queries",
            "Queries accepted and not answered yet",
            registry=self._registry,
            multiprocess_mode="livesum",
        )

    def answered(self, status: int, queries: int, seconds: float) -> None:
        """Count one request; `queries` is 0 where they were not answered."""
        self._requests.labels(str(status)).inc()
        self._queries.inc(queries)
        self._seconds.observe(seconds)

    def pending(self, queries: int) -> None:
        """Record the number of queries in work."""
        self._pending.set(queries)

    def text(self) -> bytes:
        """Return the numbers of all workers in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if self._directory is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._directory)
        return generate_latest(registry)


def forget_worker(pid: int, directory: str) -> None:
    """Take a worker that has ended out of the gauges."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid, path=directory)


def keep_in(directory: str) -> None:
    """Let the client library, which must not be imported yet, keep this process's numbers in `directory`."""
    os.environ[DIRECTORY_VARIABLE] = directory
