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

from verl_trgrpo.retrieval.backend import Hit, as_unicode


class BadRequestError(ValueError):
    """A request that cannot be answered; `status` is the HTTP status to say so with."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class RetrieveRequest:
    """A request that was checked; `topk` is at least 1."""

    queries: list[str]
    topk: int
    return_scores: bool


def parse_request(
    body: bytes, *, default_topk: int, max_topk: int, max_queries: int, max_query_chars: int
) -> RetrieveRequest:
    """Check the body of a request.

    `topk` that is missing, null or 0 means the default, as in Search-R1's server.

    Raises:
        BadRequestError: 400 for what is no JSON, 422 for wrong fields (all problems at once), 413 for too much.
    """
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(400, "the body is not JSON in UTF-8") from error
    if not isinstance(fields, dict):
        raise BadRequestError(
            422, 'the body must be an object like {"queries": ["..."], "topk": 3, "return_scores": true}'
        )
    queries: Any = fields.get("queries")
    topk: Any = fields.get("topk")
    return_scores: Any = fields.get("return_scores", False)
    problems = []
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        problems.append("queries must be a list of strings")
    if topk is None or topk == 0:
        topk = default_topk
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= max_topk:
        problems.append(f"topk must be a whole number from 1 to {max_topk}")
    if not isinstance(return_scores, bool):
        problems.append("return_scores must be true or false")
    if problems:
        raise BadRequestError(422, "; ".join(problems))
    if len(queries) > max_queries:
        raise BadRequestError(413, f"{len(queries)} queries in one request; send at most {max_queries}")
    for position, query in enumerate(queries):
        if len(query) > max_query_chars:
            raise BadRequestError(
                413, f"queries[{position}] has {len(query)} characters; send at most {max_query_chars}"
            )
    return RetrieveRequest(queries, topk, return_scores)


def request_body(queries: Sequence[str], topk: int) -> bytes:
    """Return the body of a request with scores."""
    return json.dumps({"queries": list(queries), "topk": topk, "return_scores": True}).encode()


def answer(results: Sequence[Sequence[Hit]], return_scores: bool) -> dict[str, Any]:
    """Return the answer as it goes into JSON."""
    rows: list[list[dict[str, Any]]] = []
    for hits in results:
        documents = [{"id": hit.id, "contents": hit.contents} for hit in hits]
        if return_scores:
            rows.append([{"document": d, "score": hit.score} for d, hit in zip(documents, hits, strict=True)])
        else:
            rows.append(documents)
    return {"result": rows}


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


def _hit(entry: Any) -> Hit:
    document, score = entry["document"], float(entry.get("score", 0.0))
    contents, identity = document["contents"], document.get("id")
    if not isinstance(contents, str) or not math.isfinite(score):
        raise ValueError("contents or score is of the wrong kind")
    return Hit("" if identity is None else as_unicode(str(identity)), as_unicode(contents), score)
