"""``verl-trgrpo search``: index a corpus, serve it over HTTP, ask it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from verl_trgrpo.cli import search_actions, search_demo
from verl_trgrpo.cli.search_actions import (
    OPENSEARCH_VARIABLES,
    SERVER_OPTIONS,
    TOKEN_VARIABLE,
    UPSTREAM_TOKEN_VARIABLE,
)

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
    action = getattr(search_actions, arguments.action)
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
    from verl_trgrpo.retrieval.options import ServerOptions

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
    defaults = ServerOptions()
    for name, text in SERVER_OPTIONS.items():
        default = getattr(defaults, name)
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default: %(default)s)")


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
