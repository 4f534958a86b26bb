"""Measure the search room: indexing, queries per second in process and over HTTP, rollouts beside evaluations, memory of
a server whose clients do not read.

The corpus is generated: passages of 100 words, ten passages an article. Three quarters of the words have frequencies that
fall as in a natural language, with English stop words as the most frequent; the rest come from the article's own twenty.
A query is 10 words of one passage. Run ``python benchmarks/bench_search.py``.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from examples.search_world import server_process
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.tasks.search_qa.client import request_body

VOCABULARY = 200_000
WORDS_PER_PASSAGE = 100
WORDS_PER_QUERY = 10
PASSAGES_PER_ARTICLE = 10
TOPK = 3
STOP_WORDS = [
    "the", "of", "and", "in", "to", "a", "is", "was", "for", "as", "on",
    "with", "by", "at", "it", "an", "be", "that", "are", "this", "not", "or",
    "but", "if", "no", "such", "their", "then", "there", "these", "they", "will", "into",
]  # fmt: skip


def write_corpus(path: Path, documents: int) -> list[str]:
    """Write the corpus; return 20,000 queries."""
    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*STOP_WORDS, *("".join(rng.choices(letters, k=rng.randint(3, 10))) for _ in range(VOCABULARY))]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
    queries, own = [], [""]
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            if number % PASSAGES_PER_ARTICLE == 0:
                own = rng.choices(words, k=20)
            passage = rng.choices(words, cum_weights=weights, k=WORDS_PER_PASSAGE * 3 // 4)
            passage += rng.choices(own, k=WORDS_PER_PASSAGE - len(passage))
            file.write(json.dumps({"id": str(number), "contents": f'"{own[0]}"\n{" ".join(passage)}'}) + "\n")
            if number % max(1, documents // 20_000) == 0:
                queries.append(" ".join(rng.sample(passage, WORDS_PER_QUERY)))
    rng.shuffle(queries)
    return queries


def measure_index(corpus: Path, out: Path) -> dict[str, float]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "verl_trgrpo", "search", "index", "--corpus", str(corpus), "--out", str(out)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    size = sum(path.stat().st_size for path in (out / "index").iterdir())
    return {
        "seconds": seconds,
        "corpus_mb": corpus.stat().st_size / 1e6,
        "index_mb": size / 1e6,
        # Of the largest child so far, and this is the only one.
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3,
    }


def measure_in_process(index: Path, queries: Sequence[str], repeats: int) -> dict[str, float]:
    """Measure one thread; median of the repeats, after one round that loads the index into memory."""
    backend = Index(index)
    rates = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for query in queries:
            backend.search([query], TOPK)
        rates.append(len(queries) / (time.perf_counter() - start))
    return {"queries_per_second": statistics.median(rates[1:]), "slowest": min(rates[1:]), "fastest": max(rates[1:])}


def measure_http(address: str, queries: Sequence[str], batch: int, clients: int, seconds: float) -> dict[str, float]:
    """`clients` threads, each with one connection, ask as fast as they are answered."""
    bodies = [request_body(queries[start : start + batch], TOPK) for start in range(0, len(queries), batch)]
    begin = time.perf_counter()

    def ask(client: int) -> list[float]:
        connection, latencies = http.client.HTTPConnection(address, timeout=60), []
        for body in itertools.islice(itertools.cycle(bodies), client, None, clients):
            start = time.perf_counter()
            if start > begin + seconds:
                break
            connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise RuntimeError(f"a request failed with status {response.status}")
            latencies.append(time.perf_counter() - start)
        return latencies

    with ThreadPoolExecutor(clients) as pool:
        latencies = [*itertools.chain(*pool.map(ask, range(clients)))]
    rate, cuts = len(latencies) / (time.perf_counter() - begin), statistics.quantiles(latencies, n=100)
    return {
        "requests_per_second": rate,
        "queries_per_second": rate * batch,
        "p50_ms": 1e3 * cuts[49],
        "p95_ms": 1e3 * cuts[94],
    }


def measure_beside(address: str, queries: Sequence[str], evaluations: int, seconds: float) -> dict[str, float]:
    """Eight rollouts (one query every 50 ms) beside clients that send batches of 512 one after the other."""
    end = time.perf_counter() + seconds

    def ask(body: bytes, pause: float) -> list[float]:
        connection, latencies = http.client.HTTPConnection(address, timeout=60), []
        while (start := time.perf_counter()) < end:
            connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status == 200:
                latencies.append(time.perf_counter() - start)
            time.sleep(pause)
        return latencies

    rollouts = [(request_body([query], TOPK), 0.05) for query in queries[:8]]
    batches = [(request_body(queries[512 * number :][:512], TOPK), 0.0) for number in range(evaluations)]
    with ThreadPoolExecutor(len(rollouts) + len(batches)) as pool:
        latencies = [*pool.map(ask, *zip(*rollouts, *batches, strict=True))]
    waits = [*itertools.chain(*latencies[: len(rollouts)])]
    cuts = statistics.quantiles(waits, n=100)
    total = len(waits) + 512 * sum(map(len, latencies[len(rollouts) :]))
    rates = {"rollouts_per_second": len(waits) / seconds, "queries_per_second": total / seconds}
    return rates | {"p50_ms": 1e3 * cuts[49], "p99_ms": 1e3 * cuts[98]}


def own_megabytes(process: psutil.Process) -> float:
    """Return the memory of a process and its children without what they share, such as the index."""
    found = (one.memory_info() for one in (process, *process.children(recursive=True)))
    return sum(info.rss - info.shared for info in found) / 1e6


def measure_not_reading(process: psutil.Process, address: str, queries: Sequence[str]) -> dict[str, float]:
    """120 clients ask for some 14 million characters each and do not read them; one other client asks for little."""
    host, port = address.split(":")
    body = request_body(queries[:512], 40)
    head = f"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    before, peak, end = own_megabytes(process), 0.0, time.perf_counter() + 45
    waits, refused = [], 0

    def ask(_: int) -> socket.socket | None:
        """Ask until there is an answer, and do not read it."""
        while time.perf_counter() < end - 15:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            client.connect((host, int(port)))
            client.sendall(head + body)
            if b" 200 " in client.recv(15):
                return client
            client.close()
            time.sleep(0.2)
        return None

    with ThreadPoolExecutor(8) as pool, ExitStack() as stack:
        clients = pool.map(ask, range(120))
        while (start := time.perf_counter()) < end:
            connection = http.client.HTTPConnection(address, timeout=60)
            connection.request("POST", "/retrieve", request_body(queries[:1], TOPK))
            status = connection.getresponse().status
            waits.append(time.perf_counter() - start)
            refused += status != 200
            peak = max(peak, own_megabytes(process))
            time.sleep(0.05)
        held = [stack.enter_context(client) for client in clients if client]
        after = own_megabytes(process)
    found = {
        "before_mb": before,
        "peak_mb": peak,
        "after_mb": after,
        "not_reading": len(held),
        "others": len(waits),
        "refused": refused,
    }
    return found | {"p99_ms": 1e3 * statistics.quantiles(waits, n=100)[98]}


def measure_server(index: Path, queries: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """Measure the server by its HTTP."""
    with server_process(index, index.with_name("server.log")) as (_, url):
        address, results = urlsplit(url).netloc, {}
        for batch, clients in ((1, 1), (1, 8), (64, 8)):
            measure_http(address, queries, batch, clients, 2.0)  # warm
            results[f"batch {batch}, {clients} clients"] = measure_http(address, queries, batch, clients, seconds)
        return results


def measure_neighbours(index: Path, queries: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """Measure what clients do to each other."""
    with server_process(index, index.with_name("server.log")) as (running, url):
        address, process = urlsplit(url).netloc, psutil.Process(running.pid)
        measure_http(address, queries, 1, 8, 2.0)  # warm
        beside = {f"beside {count}": measure_beside(address, queries, count, seconds) for count in (0, 1, 2, 4)}
        return beside | {"not reading": measure_not_reading(process, address, queries)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="passages (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="in process (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="per measurement over HTTP (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-search-") as directory:
        corpus, index = Path(directory, "corpus.jsonl"), Path(directory, "index")
        queries = write_corpus(corpus, arguments.documents)
        built = measure_index(corpus, index)
        rate = arguments.documents / built["seconds"]
        print(f"index       {arguments.documents:,} passages in {built['seconds']:.1f} s ({rate:,.0f}/s)")
        sizes = f"corpus {built['corpus_mb']:.0f} MB, index {built['index_mb']:.0f} MB"
        print(f"            {sizes}, peak RSS {built['peak_rss_mb']:.0f} MB")
        inside = measure_in_process(index, queries[:5000], arguments.repeats)
        span = f"{inside['slowest']:,.0f} to {inside['fastest']:,.0f}"
        print(f"in process  {inside['queries_per_second']:,.0f} queries/s ({span})")
        over_http = measure_server(index, queries, arguments.seconds)
        neighbours = measure_neighbours(index, queries, arguments.seconds)
    print(f"\n{'HTTP':<24}{'requests/s':>12}{'queries/s':>12}{'p50 ms':>9}{'p95 ms':>9}")
    for name, row in over_http.items():
        rates = f"{row['requests_per_second']:>12,.0f}{row['queries_per_second']:>12,.0f}"
        print(f"{name:<24}{rates}{row['p50_ms']:>9.2f}{row['p95_ms']:>9.2f}")
    for name, row in neighbours.items():
        print(f"{name:<13}{', '.join(f'{key} {value:,.1f}' for key, value in row.items())}")
    if arguments.out:
        about = {"documents": arguments.documents, "cores": os.cpu_count(), "tantivy": version("tantivy")}
        found = {"index": built, "in_process": inside, "http": over_http, "neighbours": neighbours}
        arguments.out.write_text(json.dumps(about | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
