"""The search room: an index of passages, a server that speaks Search-R1's protocol, and what it can search in.

`verl-trgrpo search index`, `serve` and `query` are the command line of this package; docs/search.md explains them.
Importing this package is cheap: tantivy, FastAPI, uvicorn and opensearch-py are imported where they are used.
"""

from verl_trgrpo.retrieval.backend import Backend, BackendBusyError, BackendError, BackendTimeoutError, Hit

__all__ = ["Backend", "BackendBusyError", "BackendError", "BackendTimeoutError", "Hit"]
