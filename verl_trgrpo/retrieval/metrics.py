"""What the server counts, for Prometheus."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# Where the client library keeps the numbers of several processes; it reads this when it is imported.
DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one worker; with several workers they meet in files, and each worker can report the sum."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        name = "verl_trgrpo_search"
        self._requests = Counter(f"{name}_requests", "Answers to /retrieve", ["status"], registry=registry)
        self._queries = Counter(f"{name}_queries", "Queries answered", registry=registry)
        self._seconds = Histogram(
            f"{name}_request_seconds", "Seconds from request to answer", buckets=_SECONDS, registry=registry
        )
        self._pending = Gauge(
            f"{name}_pending_queries",
            "Queries accepted and not answered yet",
            registry=registry,
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
        if DIRECTORY_VARIABLE not in os.environ:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)
