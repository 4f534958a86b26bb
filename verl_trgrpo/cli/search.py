"""``verl-trgrpo search``: index a corpus, serve it over HTTP, ask it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.common.options import parse_options

if TYPE_CHECKING:
    from verl_trgrpo.retrieval.protocol import Hit

_INDEX = """\
Build an index of a corpus of passages.

examples:
  verl-trgrpo search index --corpus wiki-18.jsonl.gz --out indexes/wiki-18

docs/search.md says what a corpus looks like.
"""

_SERVE = """\
Serve an index over HTTP in Search-R1's protocol.

examples:
  verl-trgrpo search serve --index indexes/wiki-18 --port 8000 --workers 4
  curl -s localhost:8000/retrieve -H 'Content-Type: application/json' \\
      -d '{"queries": ["Ursula K. Le Guin"], "topk": 3, "return_scores": true}'

It answers POST /retrieve and GET /health until SIGTERM or Ctrl-C; requests in work are finished first. Limits
hold for each worker. With a token every request needs it as its bearer token. See docs/search.md.
"""

_QUERY = """\
Ask an index or a server, and print what it finds.

examples:
  verl-trgrpo search query --index indexes/wiki-18 "who wrote The Left Hand of Darkness"
  verl-trgrpo search query --url http://127.0.0.1:8000 --topk 5 "Ursula K. Le Guin"

A server that needs a bearer token gets the one in the environment variable VERL_TRGRPO_SEARCH_TOKEN.
"""


def index(words: Sequence[str]) -> int:
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.retrieval.build import IndexOptions, build_index

    options = parse_options(IndexOptions, "verl-trgrpo search index", _INDEX, words)
    with interruptible(signal.SIGTERM) as progress:
        result = build_index(options, progress)
    manifest = result.manifest
    if not result.built:
        print(f"{options.out} already has this index: {manifest['documents']:,} passages; --force builds it again")
        return 0
    print(f"{options.out}: {manifest['documents']:,} passages, {sum(manifest['files'].values()) / 1e6:,.1f} MB")
    if count := manifest["bad_lines"]:
        examples = manifest["bad_examples"]
        more = "\n  ..." if count > len(examples) else ""
        print(f"{count:,} bad lines left out:\n  " + "\n  ".join(examples) + more, file=sys.stderr)
    return 0


def serve(words: Sequence[str]) -> int:
    from verl_trgrpo.retrieval.options import ServerOptions
    from verl_trgrpo.retrieval.server import serve

    options = parse_options(ServerOptions, "verl-trgrpo search serve", _SERVE, words)

    def ready(address: str, documents: int) -> None:
        print(f"listening on {address}/retrieve ({documents:,} passages, workers {options.workers})", flush=True)

    serve(options, ready)
    return 0


@dataclass(frozen=True)
class QueryOptions:
    """What to ask, and whom.

    Args:
        questions: One or more questions; quote each.
        index: Directory of an index from `verl-trgrpo search index`.
        url: Server in Search-R1's protocol, in place of an index.
        topk: Hits for each question.
    """

    questions: tuple[str, ...]
    index: Path | None = None
    url: str | None = None
    topk: int = 3

    def __post_init__(self) -> None:
        if not self.questions or (self.index is None) == (self.url is None):
            raise ValueError("give one or more questions, and either --index or --url")


def query(words: Sequence[str]) -> int:
    options = parse_options(QueryOptions, "verl-trgrpo search query", _QUERY, words, positional=["questions"])
    if options.index is not None:
        from verl_trgrpo.retrieval.index import Index

        for question, hits in zip(
            options.questions, Index(options.index).search(options.questions, options.topk), strict=True
        ):
            _show(question, hits)
    else:
        asyncio.run(_query_server(options))
    return 0


async def _query_server(options: QueryOptions) -> None:
    from verl_trgrpo.tasks.search_qa.client import SearchClient
    from verl_trgrpo.tasks.search_qa.options import read_options

    client = SearchClient(read_options({"url": options.url, "topk": options.topk}))
    try:
        for question in options.questions:
            result = await client.search(question)
            if result.failure:
                raise RuntimeError(f"{options.url}: {result.failure}")
            _show(question, result.hits)
    finally:
        await client.close()


def _show(question: str, hits: Sequence[Hit]) -> None:
    print(f"{question}\n{'' if hits else 'nothing found'}".rstrip())
    for rank, hit in enumerate(hits, start=1):
        title, _, text = hit.contents.partition("\n")
        print(f"\n{rank}. {title.strip(chr(34))}  (score {hit.score:.2f}, id {hit.id or 'unknown'})\n   {text}")
    print()
