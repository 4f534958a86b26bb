"""Load a corpus into an OpenSearch cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from verl_trgrpo.retrieval.backend import BackendError, optional_module
from verl_trgrpo.retrieval.corpus import Corpus
from verl_trgrpo.retrieval.opensearch_backend import OpenSearchOptions

_INDEX_BODY = {
    "settings": {"index": {"refresh_interval": "-1", "number_of_replicas": 0}},
    "mappings": {
        "dynamic": "strict",
        "properties": {"contents": {"type": "text", "analyzer": "english", "index_options": "freqs"}},
    },
}
_CHUNK_PASSAGES = 1000
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class LoadResult:
    """How many passages were loaded, the new index, and the indexes that the alias pointed to before."""

    passages: int
    index: str
    replaced: list[str]


def load_corpus(
    options: OpenSearchOptions, corpus: Corpus, progress: Callable[[Corpus, int], None] = lambda corpus, passages: None
) -> LoadResult:
    """Load a corpus into the cluster.

    The passages go into a new index ``NAME-MILLISECONDS``. Only when all are in and counted does the alias NAME
    (`options.index`) point to it, in one step. A load that is killed leaves NAME as it was, and an index that nobody
    uses. Old indexes are not deleted.

    Raises:
        ValueError: the corpus has no passages, or equal ids, which overwrite each other.
        BackendError: the cluster refuses or cannot be reached.
    """
    opensearchpy = optional_module("opensearchpy")
    client = options.client()
    name = f"{options.index}-{time.time_ns() // 1_000_000}"
    try:
        client.indices.create(index=name, body=_INDEX_BODY)
        try:
            passages = _bulk(client, corpus, name, progress)
        except BaseException:
            client.indices.delete(index=name, ignore=[404])
            raise
        return LoadResult(passages, name, _point_alias(client, options.index, name))
    except opensearchpy.helpers.errors.BulkIndexError as error:
        raise BackendError(f"OpenSearch refused passages: {str(error.errors[:1])[:300]}") from error
    except opensearchpy.exceptions.OpenSearchException as error:
        raise BackendError(f"OpenSearch at {options.url}: {str(error)[:300]}") from error
    finally:
        client.close()


def _bulk(client: Any, corpus: Corpus, name: str, progress: Callable[[Corpus, int], None]) -> int:
    helpers = optional_module("opensearchpy.helpers")
    answers = helpers.streaming_bulk(
        client,
        _actions(corpus, name),
        chunk_size=_CHUNK_PASSAGES,
        max_chunk_bytes=_CHUNK_BYTES,
        max_retries=8,
        initial_backoff=1,
    )
    passages = 0
    for passages, _ in enumerate(answers, start=1):
        if passages % _CHUNK_PASSAGES == 0:
            progress(corpus, passages)
    progress(corpus, passages)
    if not passages:
        raise ValueError(f"{corpus.path} has no passages in {corpus.lines} lines; check the file")
    client.indices.refresh(index=name)
    documents = client.count(index=name)["count"]
    if documents != passages:
        raise ValueError(f"{corpus.path} has {passages} passages but {documents} different ids; correct the corpus")
    return passages


def _actions(corpus: Corpus, name: str) -> Iterator[dict[str, Any]]:
    for passage in corpus:
        yield {"_op_type": "index", "_index": name, "_id": passage.id, "_source": {"contents": passage.contents}}


def _point_alias(client: Any, alias: str, name: str) -> list[str]:
    """Let the alias mean the new index alone, in one step; return what it meant before."""
    replaced = sorted(client.indices.get_alias(name=alias)) if client.indices.exists_alias(name=alias) else []
    actions: list[dict[str, Any]] = [{"remove": {"index": old, "alias": alias}} for old in replaced]
    client.indices.update_aliases(body={"actions": [*actions, {"add": {"index": name, "alias": alias}}]})
    return replaced
