"""Requests and answers in Search-R1's protocol, and the server's options."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from verl_trgrpo.retrieval.app import TOPK, Answer, RetrieveRequest, parse_request, passages
from verl_trgrpo.retrieval.index import Hit, as_unicode
from verl_trgrpo.retrieval.limits import Limits, Loan, Share
from verl_trgrpo.retrieval.server import ServerOptions
from verl_trgrpo.tasks.search_qa.client import parse_answer


def parse(fields):
    return parse_request(fields if isinstance(fields, bytes) else json.dumps(fields).encode())


def request(queries, topk=TOPK, return_scores=False):
    return RetrieveRequest(queries=queries, topk=topk, return_scores=return_scores)


BAD = {
    "nothing": (b"", 400, ["JSON"]),
    "not UTF-8": (b'{"queries": ["\xff"]}', 400, ["JSON"]),
    "too deep": (b"[" * 100_000, 400, ["JSON"]),
    "too many digits": (b'{"queries": [], "topk": ' + b"9" * 10_000 + b"}", 400, ["JSON"]),
    "a list": (["a"], 422, ["body"]),
    "no queries": ({"topk": 3}, 422, ["queries"]),
    "one string": ({"queries": "a"}, 422, ["queries"]),
    "a null among them": ({"queries": ["a", None]}, 422, ["queries.1"]),
    "topk negative": ({"queries": [], "topk": -1}, 422, ["topk"]),
    "topk too large": ({"queries": [], "topk": Limits.topk + 1}, 422, ["topk", str(Limits.topk)]),
    "topk a string": ({"queries": [], "topk": "3"}, 422, ["topk"]),
    "topk broken": ({"queries": [], "topk": 1.5}, 422, ["topk"]),
    "topk not a number": (b'{"queries": [], "topk": NaN}', 422, ["topk"]),
    "return_scores a number": ({"queries": [], "return_scores": 1}, 422, ["return_scores"]),
    "too many": ({"queries": ["a"] * (Limits.queries + 1)}, 413, ["queries", str(Limits.queries)]),
    "too long": ({"queries": ["a", "b" * (Limits.query_chars + 1)]}, 413, ["queries.1", str(Limits.query_chars)]),
    "three at once": ({"queries": 1, "topk": -1, "return_scores": 2}, 422, ["queries", "topk", "return_scores"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_with_a_reason(name):
    fields, status, reasons = BAD[name]
    with pytest.raises(HTTPException) as caught:
        parse(fields)
    assert caught.value.status_code == status
    assert all(reason in caught.value.detail for reason in reasons)


def test_a_refusal_is_small_however_much_is_wrong():
    with pytest.raises(HTTPException) as caught:
        parse({"queries": [1] * Limits.queries})
    assert len(caught.value.detail) < 200


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
        "queries": st.lists(QUERIES, max_size=6) | VALUES,
        "topk": st.integers(-5, 120) | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 1e308, 3.0, True]) | VALUES,
        "return_scores": st.booleans() | VALUES,
        "more": VALUES,
    },
)


def is_right(fields) -> bool:
    """Return whether the documented protocol allows the request; written independently of the server."""
    queries, topk, scores = fields.get("queries"), fields.get("topk"), fields.get("return_scores", False)
    right_topk = topk is None or topk == 0 or (type(topk) is int and 1 <= topk <= 100)
    right_queries = isinstance(queries, list) and all(isinstance(query, str) for query in queries)
    return right_queries and right_topk and isinstance(scores, bool)


@given(FIELDS)
@example({"queries": ["a"], "topk": 5, "return_scores": True})
@example({"queries": ["a", "b"], "topk": None})
@example({"queries": ["a"], "topk": 0, "other": 1})
@example({"queries": []})
@example({"queries": ["polonium"], "topk": True})
@example({"queries": ["polonium"], "topk": False})
@example({"queries": ["polonium"], "topk": 10**18})
@example({"queries": ['"', "(", "contents:", "\ud800"]})
def test_a_request_is_understood_if_it_is_right_and_refused_with_a_reason_if_not(fields):
    if is_right(fields):
        queries = [as_unicode(query) for query in json.loads(json.dumps(fields["queries"]))]  # JSON joins surrogates
        assert parse(fields) == request(queries, fields.get("topk") or TOPK, fields.get("return_scores", False))
    else:
        with pytest.raises(HTTPException) as caught:
            parse(fields)
        assert caught.value.status_code in (400, 413, 422) and len(caught.value.detail) > 10


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
HITS = st.builds(Hit, TEXTS, TEXTS, st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.lists(HITS, max_size=3), max_size=3))
@example([[Hit("1", "a" * 100_000, 1.0)] * 2, [], [Hit("2", "é", 0.5)]])
def test_rollouts_read_an_answer_as_it_was_written(hits):
    pieces = [*Answer([passages(one, True) for one in hits], Loan(Share(0))).chunks()]
    results = json.loads(b"".join(pieces))["result"]
    assert [parse_answer(json.dumps({"result": [one]}).encode(), 3) for one in results] == hits


def test_wrong_server_options_are_all_reported_at_once(small_index, monkeypatch):
    wrong = {"port": 70_000}
    monkeypatch.setenv("VERL_TRGRPO_SEARCH_TOKEN", "two words")
    with pytest.raises(ValueError, match="2 problems") as caught:
        ServerOptions(small_index, **wrong)
    message = str(caught.value)
    assert all(f"\n- {name}=" in message for name in wrong)
    assert "TOKEN" in message and "two words" not in message


def test_an_open_address_needs_a_token_or_a_decision(small_index, monkeypatch):
    for host in ("127.0.0.1", "127.5.5.5", "::1", "localhost"):
        assert ServerOptions(small_index, host=host).token() is None
    for host in ("0.0.0.0", "::", "10.0.0.7", "example.org", ""):
        with pytest.raises(ValueError, match="no token"):
            ServerOptions(small_index, host=host)
    assert ServerOptions(small_index, host="0.0.0.0", allow_anonymous=True).token() is None
    monkeypatch.setenv("VERL_TRGRPO_SEARCH_TOKEN", "secret")
    options = ServerOptions(small_index, host="0.0.0.0")
    assert options.token() == "secret"
    assert "secret" not in repr(options)
