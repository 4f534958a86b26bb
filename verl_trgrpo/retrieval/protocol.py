"""Search-R1's HTTP protocol: what ``POST /retrieve`` takes and gives.

Request ``{"queries": ["..."], "topk": 3, "return_scores": true}``; answer
``{"result": [[{"document": {"id": "7", "contents": "\\"Title\\"\\ntext"}, "score": 1.0}]]}``, one list for each query.
Without return_scores (the default) the inner entries are the documents themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Servers and clients have the bearer token from here: a command line can be read by every user of the machine.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that was found.

    Args:
        id: the passage's id in the corpus; empty where a foreign server gives none.
        contents: the passage as it stands in the corpus; in wiki-18 the quoted title, a line break, the text.
        score: the higher the better; comparable within one query only; 0 where a foreign server gives none.
    """

    id: str
    contents: str
    score: float


@dataclass(frozen=True)
class RetrieveRequest:
    """A request that was checked; `topk` is at least 1."""

    queries: list[str]
    topk: int
    return_scores: bool


class RefusedError(ValueError):
    """Why a request gets no answer; `status` and `headers` say so in HTTP."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers or {}


def parse_request(body: bytes, *, topk: int, max_topk: int, max_queries: int, max_query_chars: int) -> RetrieveRequest:
    """Check the body of a request against the server's limits.

    A `topk` that is missing, null or 0 means the default given here, as in Search-R1's server.

    Raises:
        RefusedError: 400 for what is no JSON, 422 for wrong fields (all problems at once), 413 for too much.
    """
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "the body is not JSON in UTF-8") from error
    if not isinstance(fields, dict):
        raise RefusedError(
            422, 'the body must be an object like {"queries": ["..."], "topk": 3, "return_scores": true}'
        )
    queries: Any = fields.get("queries")
    wanted: Any = topk if fields.get("topk") in (None, 0) else fields["topk"]
    return_scores: Any = fields.get("return_scores", False)
    problems = []
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        problems.append("queries must be a list of strings")
    if type(wanted) is not int or not 1 <= wanted <= max_topk:
        problems.append(f"topk must be a whole number from 1 to {max_topk}")
    if not isinstance(return_scores, bool):
        problems.append("return_scores must be true or false")
    if problems:
        raise RefusedError(422, "; ".join(problems))
    if len(queries) > max_queries:
        raise RefusedError(413, f"{len(queries)} queries in one request; send at most {max_queries}")
    for position, query in enumerate(queries):
        if len(query) > max_query_chars:
            raise RefusedError(413, f"queries[{position}] has {len(query)} characters; send at most {max_query_chars}")
    return RetrieveRequest(queries, wanted, return_scores)


def answer(results: Sequence[Sequence[Hit]], return_scores: bool) -> dict[str, Any]:
    """Return the answer as it goes into JSON."""

    def entry(hit: Hit) -> dict[str, Any]:
        document = {"id": hit.id, "contents": hit.contents}
        return {"document": document, "score": hit.score} if return_scores else document

    return {"result": [[entry(hit) for hit in hits] for hits in results]}


def request_body(queries: Sequence[str], topk: int) -> bytes:
    """Return the body of a request with scores."""
    return json.dumps({"queries": list(queries), "topk": topk, "return_scores": True}).encode()


def parse_answer(body: bytes, expected: int) -> list[list[Hit]]:
    """Read an answer; a hit without a score, as Search-R1's servers for web search give it, has score 0.

    Raises ValueError where it is not in the protocol or not for `expected` queries.
    """
    try:
        result = json.loads(body)["result"]
        hits = [[_hit(entry) for entry in entries] for entries in result]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("the answer is not in Search-R1's protocol") from error
    if len(hits) != expected:
        raise ValueError(f"the answer has {len(hits)} results for {expected} queries")
    return hits


def as_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can smuggle into a string but UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _hit(entry: Any) -> Hit:
    document, score = entry["document"], float(entry.get("score", 0.0))
    contents, identity = document["contents"], document.get("id")
    if not isinstance(contents, str) or not math.isfinite(score):
        raise ValueError("contents or score is of the wrong kind")
    return Hit("" if identity is None else as_unicode(str(identity)), as_unicode(contents), score)
