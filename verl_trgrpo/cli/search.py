"""``verl-trgrpo search``: index a corpus, serve it over HTTP."""

from __future__ import annotations

from verl_trgrpo.common.text import show
from verl_trgrpo.retrieval.index import IndexOptions
from verl_trgrpo.retrieval.server import ServerOptions


def index(options: IndexOptions) -> int:
    """Build an index of a corpus of passages.

    examples:
      verl-trgrpo search index --corpus wiki-18.jsonl.gz --out indexes/wiki-18

    docs/search.md describes the format of a corpus.
    """
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.retrieval.index import build_index

    with interruptible() as progress:
        manifest = build_index(options, progress)
    show(f"{options.out}: {manifest['documents']:,} passages, {sum(manifest['files'].values()) / 1e6:,.1f} MB")
    return 0


def serve(options: ServerOptions) -> int:
    """Serve an index over HTTP in Search-R1's protocol.

    examples:
      verl-trgrpo search serve --index indexes/wiki-18 --port 8000
      curl -s localhost:8000/retrieve -H 'Content-Type: application/json' \\
          -d '{"queries": ["Ursula K. Le Guin"], "topk": 3, "return_scores": true}'

    notes:
      It answers POST /retrieve and GET /health until SIGTERM or Ctrl-C, and finishes requests in progress first.
      If the variable VERL_TRGRPO_SEARCH_TOKEN is set, requests must send it as their bearer token.
      docs/search.md has more.
    """
    from verl_trgrpo.retrieval import server

    def ready(url: str, documents: int) -> None:
        show(f"{server.READY}{url} ({documents:,} passages)")

    server.serve(options, ready)
    return 0
