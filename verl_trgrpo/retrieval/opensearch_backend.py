"""Search in an OpenSearch cluster, for corpora that outgrow one machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.retrieval.backend import (
    BackendBusyError,
    BackendError,
    BackendTimeoutError,
    Hit,
    as_unicode,
    optional_module,
)
from verl_trgrpo.retrieval.http_backend import timeout_problems, url_problems

# A word has at least one character, so this many characters stay below the cluster's default of 1024 clauses.
MAX_CHARACTERS = 1000

# What a name of an index may not begin with or contain.
_BAD_START, _BAD_CHARACTERS = "-_+", frozenset('\\/*?"<>| ,#:')


@dataclass(frozen=True)
class OpenSearchOptions:
    """A cluster and the name of the corpus in it.

    url: address of a node or of a load balancer.
    index: name of an index or alias; `load_corpus` makes an alias of this name.
    username, password: for basic authentication, both or none.
    ca_certs: file with the certificates to trust; None means those of certifi.
    timeout: seconds for one request.

    Raises ValueError that lists everything that is wrong.
    """

    url: str
    index: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_certs: Path | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        problems = url_problems(self.url) + timeout_problems(self.timeout)
        name = self.index
        if not name or name != name.lower() or name[0] in _BAD_START or _BAD_CHARACTERS & {*name}:
            problems.append(f"index is {name!r}; choose a name of lower-case letters, digits, - and _")
        if (self.username is None) != (self.password is None):
            problems.append("set both username and password, or neither")
        if self.ca_certs is not None and not self.ca_certs.is_file():
            problems.append(f"ca_certs {self.ca_certs} is not a file; check the path")
        raise_problems(problems)

    def open(self) -> OpenSearchBackend:
        return OpenSearchBackend(self)

    def client(self) -> Any:
        """Return a client of opensearch-py; it connects at its first request."""
        # Its log repeats each failed request with the whole body; the errors that are raised say enough.
        logging.getLogger("opensearch").setLevel(logging.CRITICAL)
        return optional_module("opensearchpy").OpenSearch(
            hosts=[self.url],
            http_auth=None if self.username is None else (self.username, self.password),
            ca_certs=None if self.ca_certs is None else str(self.ca_certs),
            timeout=self.timeout,
            max_retries=1,
            retry_on_timeout=False,
            pool_maxsize=256,
        )


class OpenSearchBackend:
    """The `Backend` of a cluster: one `_msearch` for each batch of queries."""

    name = "opensearch"
    batch_size = 256

    def __init__(self, options: OpenSearchOptions) -> None:
        self._errors = optional_module("opensearchpy").exceptions
        self._options = options
        self._client = options.client()
        self._documents = self._call(lambda: self._client.count(index=options.index))["count"]

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        if not queries:
            return []
        lines: list[dict[str, Any]] = []
        for query in queries:
            match = {"contents": {"query": as_unicode(query)[:MAX_CHARACTERS]}}
            lines += [{}, {"query": {"match": match}, "size": topk, "_source": ["contents"], "track_total_hits": False}]
        answer = self._call(lambda: self._client.msearch(body=lines, index=self._options.index))
        responses = answer.get("responses", [])
        if len(responses) != len(queries):
            raise BackendError(f"OpenSearch gave {len(responses)} responses for {len(queries)} queries")
        return [self._hits(response) for response in responses]

    def describe(self) -> dict[str, Any]:
        return {"url": self._options.url, "index": self._options.index, "documents": self._documents}

    def close(self) -> None:
        self._client.close()

    def _hits(self, response: dict[str, Any]) -> list[Hit]:
        if "error" in response:
            raise self._error(response.get("status"), response["error"])
        try:
            return [
                Hit(str(hit["_id"]), as_unicode(hit["_source"]["contents"]), float(hit["_score"]))
                for hit in response["hits"]["hits"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise BackendError(
                f"documents of the OpenSearch index {self._options.index} have no contents; load the corpus with "
                "verl-trgrpo search index --backend opensearch"
            ) from error

    def _call(self, request: Callable[[], Any]) -> Any:
        try:
            return request()
        except self._errors.ConnectionTimeout as error:
            raise BackendTimeoutError(f"OpenSearch did not answer in {self._options.timeout:g} s") from error
        except self._errors.TransportError as error:
            raise self._error(error.status_code, error.error) from error
        except self._errors.OpenSearchException as error:
            raise BackendError(f"OpenSearch cannot be asked: {str(error)[:200]}") from error

    def _error(self, status: Any, reason: Any) -> BackendError:
        if status in (429, 503):
            return BackendBusyError(f"OpenSearch is busy ({status})")
        return BackendError(f"OpenSearch at {self._options.url} answered {status}: {str(reason)[:200]}")
