"""``verl-trgrpo search``: index a corpus, serve it over HTTP, ask it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.common.options import parse_options

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
Ask an index, and print what it finds.

examples:
  verl-trgrpo search query --index indexes/wiki-18 --topk 5 "who wrote The Left Hand of Darkness"
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
    """What to ask.

    Args:
        index: Directory of an index from `verl-trgrpo search index`.
        questions: One or more questions; quote each.
        topk: Hits for each question.
    """

    index: Path
    questions: tuple[str, ...]
    topk: int = 3

    def __post_init__(self) -> None:
        if not self.questions:
            raise ValueError("give one or more questions")


def query(words: Sequence[str]) -> int:
    options = parse_options(QueryOptions, "verl-trgrpo search query", _QUERY, words, positional=["questions"])
    from verl_trgrpo.retrieval.index import Index

    for question, hits in zip(
        options.questions, Index(options.index).search(options.questions, options.topk), strict=True
    ):
        print(f"{question}\n{'' if hits else 'nothing found'}".rstrip())
        for rank, hit in enumerate(hits, start=1):
            title, _, text = hit.contents.partition("\n")
            print(f"\n{rank}. {title.strip(chr(34))}  (score {hit.score:.2f}, id {hit.id or 'unknown'})\n   {text}")
        print()
    return 0
