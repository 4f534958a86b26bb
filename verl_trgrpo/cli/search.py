"""``verl-trgrpo search``: index a corpus, serve it over HTTP, ask it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from verl_trgrpo.cli import search_demo
from verl_trgrpo.problems import ProblemsError, raise_problems

# Secrets come from the environment or from files: a command line can be read by every user of the machine.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"
UPSTREAM_TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_UPSTREAM_TOKEN"
OPENSEARCH_VARIABLES = ("OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD")

Options = TypeVar("Options")

_EPILOG = """\
examples:
  verl-trgrpo search index --corpus wiki-18.jsonl.gz --out indexes/wiki-18
  verl-trgrpo search query --index indexes/wiki-18 "who wrote The Left Hand of Darkness"
  verl-trgrpo search serve --index indexes/wiki-18 --port 8000 --workers 4
  curl -s localhost:8000/retrieve -H 'Content-Type: application/json' \\
      -d '{"queries": ["Ursula K. Le Guin"], "topk": 3, "return_scores": true}'
"""

_INDEX_EPILOG = """\
examples:
  verl-trgrpo search index --corpus wiki-18.jsonl.gz --out indexes/wiki-18
  verl-trgrpo search index --corpus wiki-18.jsonl.gz --backend opensearch --url https://node:9200 \\
      --opensearch-index wiki-18

Each line of the corpus is {"id": "7", "contents": "\\"Title\\"\\ntext"}. Lines that are not are left out and reported.
The index appears when it is complete; a build that was stopped starts over when the same command is given again.
"""

_SERVE_EPILOG = f"""\
examples:
  verl-trgrpo search serve --index indexes/wiki-18
  {TOKEN_VARIABLE}=... verl-trgrpo search serve --index indexes/wiki-18 --host 0.0.0.0 --workers 8
  verl-trgrpo search serve --backend http --url http://other:8000/retrieve
  verl-trgrpo search serve --backend opensearch --url https://node:9200 --opensearch-index wiki-18

It answers POST /retrieve (Search-R1's protocol), GET /health and GET /metrics, until SIGTERM or Ctrl-C; requests in work
are finished first. Limits hold for each worker. Environment: {TOKEN_VARIABLE} (bearer token that requests need),
{UPSTREAM_TOKEN_VARIABLE} (sent to --url with --backend http), {", ".join(OPENSEARCH_VARIABLES)}.
"""

_QUERY_EPILOG = """\
examples:
  verl-trgrpo search query --index indexes/wiki-18 "who wrote The Left Hand of Darkness"
  verl-trgrpo search query --url http://127.0.0.1:8000 --topk 5 "Ursula K. Le Guin"
"""


def add_parser(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "search",
        help="index a corpus of passages, serve it in Search-R1's protocol, ask it; train a tiny model to search",
        description="The search room: index, serve and query a corpus of passages. See docs/search.md.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_index(actions)
    _add_serve(actions)
    _add_query(actions)
    search_demo.add_parser(actions)


def run(arguments: argparse.Namespace) -> int:
    action = {"index": _index, "serve": _serve, "query": _query}[arguments.action]
    try:
        return action(arguments)
    except KeyboardInterrupt:
        ending = "nothing was changed" if arguments.action == "index" else "stopped"
        print(f"\ninterrupted; {ending}", file=sys.stderr)
        return 130


def _subparser(actions: argparse._SubParsersAction, name: str, about: str, epilog: str) -> argparse.ArgumentParser:
    return actions.add_parser(
        name, help=about, description=about, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_index(actions: argparse._SubParsersAction) -> None:
    parser = _subparser(actions, "index", "Build an index of a corpus, or load it into OpenSearch.", _INDEX_EPILOG)
    parser.add_argument("--corpus", type=Path, required=True, metavar="FILE", help="JSON lines, plain or gzip")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory for the index")
    parser.add_argument("--threads", type=int, default=1, help="of the writer, 1 to 8 (default: %(default)s)")
    parser.add_argument("--memory-mb", type=int, default=512, help="of the writer (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace an index of another corpus, or build again")
    parser.add_argument(
        "--backend", choices=("tantivy", "opensearch"), default="tantivy", help="where to (default: %(default)s)"
    )
    _add_opensearch(parser)


def _add_serve(actions: argparse._SubParsersAction) -> None:
    from verl_trgrpo.search.options import ServerOptions

    parser = _subparser(actions, "serve", "Serve a corpus over HTTP in Search-R1's protocol.", _SERVE_EPILOG)
    parser.add_argument(
        "--backend", choices=("tantivy", "opensearch", "http"), default="tantivy", help="default: %(default)s"
    )
    parser.add_argument("--index", type=Path, metavar="DIR", help="index from `search index` (tantivy)")
    _add_opensearch(parser)
    parser.add_argument("--upstream-token-file", type=Path, metavar="FILE", help="bearer token to send to --url (http)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"as {TOKEN_VARIABLE}, from a file")
    parser.add_argument(
        "--allow-anonymous", action="store_true", help="let --host be open to other machines without a token"
    )
    defaults, about = ServerOptions(), _SERVER_OPTIONS
    for name, text in about.items():
        default = getattr(defaults, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default: %(default)s)")


_SERVER_OPTIONS = {
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


def _add_query(actions: argparse._SubParsersAction) -> None:
    parser = _subparser(actions, "query", "Ask an index or a server, and print what it finds.", _QUERY_EPILOG)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--index", type=Path, metavar="DIR", help="index from `search index`")
    source.add_argument("--url", help="server in Search-R1's protocol")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"as {TOKEN_VARIABLE}, from a file (--url)")
    parser.add_argument("--topk", type=int, default=3, help="hits (default: %(default)s)")
    parser.add_argument("question", nargs="+", help="one or more questions; quote each")


def _add_opensearch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="server of the backend (opensearch: default http://127.0.0.1:9200)")
    parser.add_argument("--opensearch-index", default="wiki-18", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--opensearch-ca", type=Path, metavar="FILE", help="certificates to trust")
    parser.add_argument(
        "--backend-timeout", type=float, default=8.0, metavar="S", help="seconds for OpenSearch or http (default: 8)"
    )


def _index(arguments: argparse.Namespace) -> int:
    if arguments.backend == "opensearch":
        return _load(arguments)
    from verl_trgrpo.search.tantivy_index import IndexOptions, build_index

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
    from verl_trgrpo.search.corpus import Corpus
    from verl_trgrpo.search.opensearch_index import load_corpus

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


def _serve(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.search.options import ServerOptions
    from verl_trgrpo.search.serve import serve

    def server_options() -> ServerOptions:
        given = {name: getattr(arguments, name) for name in _SERVER_OPTIONS}
        token = _secret(TOKEN_VARIABLE, arguments.token_file)
        return ServerOptions(**given, token=token, allow_anonymous=arguments.allow_anonymous)

    options, backend = _together(server_options, lambda: _backend_options(arguments))

    def ready(address: str, facts: dict[str, Any]) -> None:
        about = ", ".join(f"{name} {value}" for name, value in facts.items())
        print(f"listening on {address}/retrieve ({about}, workers {options.workers})", flush=True)

    serve(options, backend, ready)
    return 0


def _query(arguments: argparse.Namespace) -> int:
    from verl_trgrpo.search.http_backend import HttpOptions
    from verl_trgrpo.search.tantivy_backend import TantivyOptions

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
        from verl_trgrpo.search.http_backend import HttpOptions

        if arguments.url is None:
            raise ValueError("--url is missing; name the server to ask")
        token = _secret(UPSTREAM_TOKEN_VARIABLE, arguments.upstream_token_file)
        return HttpOptions(arguments.url, token, arguments.backend_timeout)
    from verl_trgrpo.search.tantivy_backend import TantivyOptions

    if arguments.index is None:
        raise ValueError("--index is missing; name the directory of an index")
    return TantivyOptions(arguments.index)


def _opensearch(arguments: argparse.Namespace) -> Any:
    from verl_trgrpo.search.opensearch_backend import OpenSearchOptions

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
