"""``verl-trgrpo search``: index a corpus, serve it over HTTP."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from verl_trgrpo.common.options import parse_options

_INDEX = """\
Build an index of a corpus of passages.

examples:
  verl-trgrpo search index --corpus wiki-18.jsonl.gz --out indexes/wiki-18

docs/search.md describes the corpus.
"""

_SERVE = """\
Serve an index over HTTP in Search-R1's protocol.

examples:
  verl-trgrpo search serve --index indexes/wiki-18 --port 8000 --workers 4
  curl -s localhost:8000/retrieve -H 'Content-Type: application/json' \\
      -d '{"queries": ["Ursula K. Le Guin"], "topk": 3, "return_scores": true}'

It answers POST /retrieve and GET /health until SIGTERM or Ctrl-C; requests in work are finished first. With
VERL_TRGRPO_SEARCH_TOKEN set, every request needs it as its bearer token. See docs/search.md.
"""


def index(words: Sequence[str]) -> int:
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.retrieval.index_builder import IndexOptions, build_index

    options = parse_options(IndexOptions, "verl-trgrpo search index", _INDEX, words)
    with interruptible(signal.SIGTERM) as progress:
        manifest = build_index(options, progress)
    print(f"{options.out}: {manifest['documents']:,} passages, {sum(manifest['files'].values()) / 1e6:,.1f} MB")
    return 0


def serve(words: Sequence[str]) -> int:
    from verl_trgrpo.retrieval.server import READY, ServerOptions, serve

    options = parse_options(ServerOptions, "verl-trgrpo search serve", _SERVE, words)

    def ready(url: str, documents: int) -> None:
        print(f"{READY}{url} ({documents:,} passages, workers {options.workers})", flush=True)

    serve(options, ready)
    return 0
