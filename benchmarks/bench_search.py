"""Measure the search room: time and memory of indexing, queries per second in process and over HTTP.

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
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.retrieval.server import server_process
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


def measure_server(index: Path, queries: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """Measure the server by its HTTP."""
    with server_process(index, index.with_name("server.log")) as server:
        address, results = urlsplit(server.url).netloc, {}
        for batch, clients in ((1, 1), (1, 8), (64, 8)):
            measure_http(address, queries, batch, clients, 2.0)  # warm
            results[f"batch {batch}, {clients} clients"] = measure_http(address, queries, batch, clients, seconds)
        return results


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
    print(f"\n{'HTTP':<24}{'requests/s':>12}{'queries/s':>12}{'p50 ms':>9}{'p95 ms':>9}")
    for name, row in over_http.items():
        rates = f"{row['requests_per_second']:>12,.0f}{row['queries_per_second']:>12,.0f}"
        print(f"{name:<24}{rates}{row['p50_ms']:>9.2f}{row['p95_ms']:>9.2f}")
    if arguments.out:
        about = {"documents": arguments.documents, "cores": os.cpu_count(), "tantivy": version("tantivy")}
        found = {"index": built, "in_process": inside, "http": over_http}
        arguments.out.write_text(json.dumps(about | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
