"""Requests of every kind against one real server, none of which may be its fault."""

import json
import math
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.retrieval.servers import serving

pytestmark = pytest.mark.slow

# 408 and 431 are uvicorn's own, for what is no HTTP.
REFUSALS = {400, 404, 405, 408, 413, 422, 431}
FUZZ = settings(max_examples=150)

# Characters with a meaning in query languages, control characters, halves of surrogate pairs, and all others.
QUERIES = (
    st.text(alphabet=st.characters(), max_size=80)
    | st.text(alphabet="+-&|!(){}[]^\"~*?:\\/<>=@%'; ANDORT", max_size=80)
    | st.text(alphabet=[chr(code) for code in (*range(32), 127, 0x85, 0x2028, 0x202E, 0xFEFF, 0xFFFF)], max_size=20)
    | st.text(alphabet=["\ud800", "\udbff", "\udc00", "\udfff", "a", " "], max_size=20)
)
NUMBERS = st.integers() | st.integers(-(10**400), 10**400) | st.floats() | st.booleans()
VALUES = st.recursive(
    st.none() | NUMBERS | QUERIES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(QUERIES, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "queries": st.lists(QUERIES, max_size=12) | VALUES,
        "topk": st.integers(-5, 12) | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 1e308, 3.0, True]) | VALUES,
        "return_scores": st.booleans() | VALUES,
        "more": VALUES,
    },
)


@pytest.fixture(scope="module")
def server(small_index):
    limits = {"queries": 10, "topk": 10, "query-chars": 60, "body-bytes": 4096}
    words = [word for name, limit in limits.items() for word in (f"--max-{name}", limit)]
    with serving("--index", small_index, *words, "--deadline", 60) as server:
        yield server
        # Whatever came, the process that answered is still the same one, and it has nothing left to do.
        assert server.process.poll() is None
        assert server.pending() == 0
        assert server.end() == 0
        assert "Traceback" not in server.process.stderr.read()


def raw(server, data: bytes) -> int:
    """Send bytes as they are and nothing after them; return the status, 0 where the connection ends without one.

    A server need not answer somebody who hangs up.
    """
    address = urlsplit(server.url)
    with closing(socket.create_connection((address.hostname, address.port), timeout=600)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1 << 16)
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def is_right(fields) -> bool:
    """Whether the documented protocol allows the request, written without looking at the server."""
    queries, topk, scores = fields.get("queries"), fields.get("topk"), fields.get("return_scores", False)
    right_topk = topk is None or topk == 0 or (type(topk) is int and 1 <= topk <= 10)
    return (
        isinstance(queries, list)
        and len(queries) <= 10
        and all(isinstance(query, str) and len(query) <= 60 for query in queries)
        and right_topk
        and isinstance(scores, bool)
    )


@FUZZ
@given(FIELDS)
@example({"queries": ["polonium"], "topk": True})
@example({"queries": ["polonium"], "topk": math.nan})
@example({"queries": ["polonium"], "topk": 10**18})
@example({"queries": ["polonium"] * 10_000})
@example({"queries": ['"', "(", "contents:", "a AND", "\x00", "\ud800", ""]})
def test_a_request_is_answered_where_it_is_right_and_refused_with_a_reason_where_not(server, fields):
    body = json.dumps(fields).encode()
    answer = server.post(body)
    if len(body) > 4096:
        assert answer.status_code in (400, 413)
    elif is_right(fields):
        assert answer.status_code == 200, (fields, answer.text)
        results = answer.json()["result"]
        assert len(results) == len(fields["queries"])
        assert all(len(hits) <= (fields.get("topk") or 3) for hits in results)
    else:
        assert answer.status_code in (400, 413, 422), (fields, answer.text)
        assert len(answer.json()["detail"]) > 10


@FUZZ
@given(
    st.binary(max_size=120)
    | st.binary(max_size=60).map(lambda data: b"POST /retrieve HTTP/1.1\r\n" + data + b"\r\n\r\n")
)
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n")
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n")
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}")
def test_bytes_that_are_hardly_http_are_never_the_servers_fault(server, data):
    assert raw(server, data) in REFUSALS | {0}
