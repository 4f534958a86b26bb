"""What ``verl-trgrpo search index``, ``serve`` and ``query`` do, given their arguments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import ProblemsError, raise_problems

# Secrets come from the environment or from files: a command line can be read by every user of the machine.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"
UPSTREAM_TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_UPSTREAM_TOKEN"
OPENSEARCH_VARIABLES = ("OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD")

SERVER_OPTIONS = {
    "host": "address to listen at",
    "port": "port; 0 takes a free one",
    "workers": "processes",
    "threads": "searches at a time in a worker",
    "topk": "hits for a query that does not say how many",
    "max_topk": "most hits that a query may ask for",
    "max_queries": "most queries in a request",
    "max_query_chars": "most characters in a query",
    "max_body_bytes": "largest request",
    "max_pending": "accepted and unanswered queries, beyond which a worker answers 503",
    "deadline": "seconds for a request, after which it is answered 504",
}


def index(arguments: argparse.Namespace) -> int:
    """Build an index, or load a corpus into OpenSearch."""
    if arguments.backend == "opensearch":
        return _load(arguments)
    from verl_trgrpo.retrieval.tantivy_index import IndexOptions, build_index

    if arguments.out is None:
        raise_problems(["--out is missing; name a directory for the index"])
    options = IndexOptions(
        corpus=arguments.corpus,
        out=arguments.out,
        threads=arguments.threads,
        memory_mb=arguments.memory_mb,
        force=arguments.force,
    )
    with _progress_bar() as progress:
        result = build_index(options, progress)
    manifest = result.manifest
    if not result.built:
        print(f"{options.out} already has this index: {manifest['documents']:,} passages; --force builds it again")
        return 0
    print(f"{options.out}: {manifest['documents']:,} passages, {sum(manifest['files'].values()) / 1e6:,.1f} MB")
    _print_bad_lines(manifest["bad_lines"], manifest["bad_examples"])
    return 0


def _load(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.retrieval.corpus import Corpus
    from verl_trgrpo.retrieval.opensearch_index import load_corpus

    if not arguments.corpus.is_file():
        raise ValueError(f"corpus {arguments.corpus} is not a file; check the path")
    corpus = Corpus(arguments.corpus)
    with _progress_bar() as progress:
        result = load_corpus(_opensearch(arguments), corpus, progress)
    print(f"{arguments.opensearch_index} now means {result.index}: {result.passages:,} passages")
    for old in result.replaced:
        print(f"{old} is no longer used; delete it when no server reads it")
    _print_bad_lines(corpus.bad_lines, corpus.bad_examples)
    return 0


def serve(arguments: argparse.Namespace) -> int:
    """Serve a corpus until SIGTERM or Ctrl-C."""
    from verl_trgrpo.retrieval.options import ServerOptions
    from verl_trgrpo.retrieval.serve import serve as serve_corpus

    def server_options() -> ServerOptions:
        given = {name: getattr(arguments, name) for name in SERVER_OPTIONS}
        token = _secret(TOKEN_VARIABLE, arguments.token_file)
        return ServerOptions(**given, token=token, allow_anonymous=arguments.allow_anonymous)

    options, backend = _together(server_options, lambda: _backend_options(arguments))

    def ready(address: str, facts: dict[str, Any]) -> None:
        about = ", ".join(f"{name} {value}" for name, value in facts.items())
        print(f"listening on {address}/retrieve ({about}, workers {options.workers})", flush=True)

    serve_corpus(options, backend, ready)
    return 0


def query(arguments: argparse.Namespace) -> int:
    """Ask an index or a server, and print its hits."""
    from verl_trgrpo.retrieval.http_backend import HttpOptions
    from verl_trgrpo.retrieval.tantivy_backend import TantivyOptions

    if not 1 <= arguments.topk <= 10_000:
        raise ValueError(f"topk is {arguments.topk}; choose 1 to 10000")
    options: Any
    if arguments.url is not None:
        options = HttpOptions(arguments.url, _secret(TOKEN_VARIABLE, arguments.token_file))
    else:
        options = TantivyOptions(arguments.index)
    backend = options.open()
    for question, hits in zip(arguments.question, backend.search(arguments.question, arguments.topk), strict=True):
        print(f"{question}\n{'nothing found' if not hits else ''}".rstrip())
        for rank, hit in enumerate(hits, start=1):
            title, _, text = hit.contents.partition("\n")
            print(f"\n{rank}. {title.strip(chr(34))}  (score {hit.score:.2f}, id {hit.id or 'unknown'})\n   {text}")
        print()
    backend.close()
    return 0


def _backend_options(arguments: argparse.Namespace) -> Any:
    if arguments.backend == "opensearch":
        return _opensearch(arguments)
    if arguments.backend == "http":
        from verl_trgrpo.retrieval.http_backend import HttpOptions

        if arguments.url is None:
            raise ValueError("--url is missing; name the server to ask")
        token = _secret(UPSTREAM_TOKEN_VARIABLE, arguments.upstream_token_file)
        return HttpOptions(arguments.url, token, arguments.backend_timeout)
    from verl_trgrpo.retrieval.tantivy_backend import TantivyOptions

    if arguments.index is None:
        raise ValueError("--index is missing; name the directory of an index")
    return TantivyOptions(arguments.index)


def _opensearch(arguments: argparse.Namespace) -> Any:
    from verl_trgrpo.retrieval.opensearch_backend import OpenSearchOptions

    username, password = (os.environ.get(name) for name in OPENSEARCH_VARIABLES)
    return OpenSearchOptions(
        url=arguments.url or "http://127.0.0.1:9200",
        index=arguments.opensearch_index,
        username=username,
        password=password,
        ca_certs=arguments.opensearch_ca,
        timeout=arguments.backend_timeout,
    )


def _secret(variable: str, file: Path | None) -> str | None:
    """Return what a file holds, else what the environment holds, else None."""
    if file is None:
        return os.environ.get(variable)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"the token file {file} cannot be read; check path and permissions") from error


def _together(*makers: Callable[[], Any]) -> list[Any]:
    """Make several options; one ValueError tells what is wrong with any of them."""
    made, problems = [], []
    for maker in makers:
        try:
            made.append(maker())
        except ProblemsError as error:
            problems += error.problems
        except ValueError as error:
            problems.append(str(error))
    raise_problems(problems)
    return made


@contextmanager
def _progress_bar():
    """Give a function that moves a bar over the bytes of a corpus."""
    from tqdm import tqdm

    with tqdm(unit="B", unit_scale=True, desc="index", file=sys.stderr) as bar:

        def progress(corpus: Any, passages: int) -> None:
            bar.total = corpus.size
            bar.set_postfix_str(f"{passages:,} passages, {corpus.bad_lines} bad lines", refresh=False)
            bar.update(corpus.bytes_read - bar.n)

        yield progress


def _print_bad_lines(count: int, examples: list[str]) -> None:
    if count:
        more = "\n  ..." if count > len(examples) else ""
        print(f"{count:,} bad lines left out:\n  " + "\n  ".join(examples) + more, file=sys.stderr)
