"""Requests and answers in Search-R1's protocol, and the server's options."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verl_trgrpo.retrieval.options import ServerOptions
from verl_trgrpo.retrieval.protocol import (
    Hit,
    RefusedError,
    RetrieveRequest,
    answer,
    parse_answer,
    parse_request,
)

LIMITS = {"topk": 3, "max_topk": 10, "max_queries": 4, "max_query_chars": 20}


def parse(fields):
    return parse_request(fields if isinstance(fields, bytes) else json.dumps(fields).encode(), **LIMITS)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"queries": ["a"], "topk": 5, "return_scores": True}, RetrieveRequest(["a"], 5, True)),
        ({"queries": ["a", "b"]}, RetrieveRequest(["a", "b"], 3, False)),
        ({"queries": ["a"], "topk": None}, RetrieveRequest(["a"], 3, False)),
        ({"queries": ["a"], "topk": 0, "other": 1}, RetrieveRequest(["a"], 3, False)),
        ({"queries": []}, RetrieveRequest([], 3, False)),
        ({"queries": [""]}, RetrieveRequest([""], 3, False)),
    ],
)
def test_what_search_r1_sends_is_understood(fields, expected):
    assert parse(fields) == expected


BAD = {
    "nothing": (b"", 400, "not JSON"),
    "not UTF-8": (b'{"queries": ["\xff"]}', 400, "not JSON"),
    "too deep": (b"[" * 100_000, 400, "not JSON"),
    "too many digits": (b'{"queries": [], "topk": ' + b"9" * 10_000 + b"}", 400, "not JSON"),
    "a list": (["a"], 422, "must be an object"),
    "no queries": ({"topk": 3}, 422, "queries must be a list of strings"),
    "one string": ({"queries": "a"}, 422, "queries must be"),
    "a null among them": ({"queries": ["a", None]}, 422, "queries must be"),
    "topk negative": ({"queries": [], "topk": -1}, 422, "topk must be a whole number from 1 to 10"),
    "topk a string": ({"queries": [], "topk": "3"}, 422, "topk must be"),
    "topk broken": ({"queries": [], "topk": 1.5}, 422, "topk must be"),
    "topk not a number": (b'{"queries": [], "topk": NaN}', 422, "topk must be"),
    "return_scores a number": ({"queries": [], "return_scores": 1}, 422, "return_scores must be"),
    "too many": ({"queries": ["a"] * 5}, 413, "5 queries in one request; send at most 4"),
    "too long": ({"queries": ["a", "b" * 21]}, 413, "queries[1] has 21 characters; send at most 20"),
    "three at once": (
        {"queries": 1, "topk": -1, "return_scores": 2},
        422,
        "strings; topk must be a whole number from 1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_with_a_reason(name):
    fields, status, reason = BAD[name]
    with pytest.raises(RefusedError) as caught:
        parse(fields)
    assert caught.value.status == status
    assert reason in str(caught.value)


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
        "topk": st.integers(-5, 12) | st.sampled_from([2**31, 2**63, 2**64, -(2**63), 1e308, 3.0, True]) | VALUES,
        "return_scores": st.booleans() | VALUES,
        "more": VALUES,
    },
)


def is_right(fields) -> bool:
    """Whether the documented protocol allows the request, written without looking at the server."""
    queries, topk, scores = fields.get("queries"), fields.get("topk"), fields.get("return_scores", False)
    right_topk = topk is None or topk == 0 or (type(topk) is int and 1 <= topk <= 10)
    right_queries = isinstance(queries, list) and all(isinstance(query, str) and len(query) <= 20 for query in queries)
    return right_queries and len(queries) <= 4 and right_topk and isinstance(scores, bool)


@given(FIELDS)
@example({"queries": ["polonium"], "topk": True})
@example({"queries": ["polonium"], "topk": False})
@example({"queries": ["polonium"], "topk": 10**18})
@example({"queries": ['"', "(", "contents:", "\ud800"]})
def test_a_request_is_read_where_it_is_right_and_refused_with_a_reason_where_not(fields):
    if is_right(fields):
        request = parse(fields)
        expected = (fields["queries"], fields.get("topk") or 3, fields.get("return_scores", False))
        assert (request.queries, request.topk, request.return_scores) == expected
    else:
        with pytest.raises(RefusedError) as caught:
            parse(fields)
        assert caught.value.status in (400, 413, 422) and len(str(caught.value)) > 10


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
HITS = st.builds(Hit, TEXTS, TEXTS, st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.lists(HITS, max_size=3), max_size=3))
def test_an_answer_is_read_as_it_was_written(results):
    assert parse_answer(json.dumps(answer(results, True)).encode(), len(results)) == results


def test_answers_have_search_r1s_form_with_and_without_scores():
    hit = Hit("7", '"Title"\ntext', 1.5)
    document = {"id": "7", "contents": '"Title"\ntext'}
    assert answer([[hit], []], True) == {"result": [[{"document": document, "score": 1.5}], []]}
    assert answer([[hit], []], False) == {"result": [[document], []]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"result": [[{"contents": "no score"}]]}',
        b'{"result": [[{"document": {"contents": 3}, "score": 1}]]}',
        b'{"result": [[{"document": {"contents": "x"}, "score": NaN}]]}',
        b'{"result": [[{"document": {"contents": "x"}, "score": null}]]}',
        b'{"result": [[], []]}',
    ],
)
def test_an_answer_that_is_none_is_refused(body):
    with pytest.raises(ValueError, match="the answer"):
        parse_answer(body, 1)


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv("VERL_TRGRPO_SEARCH_TOKEN", raising=False)


def test_wrong_server_options_are_all_reported_at_once(small_index, monkeypatch):
    wrong = {"port": 70_000, "workers": 0, "threads": 0, "topk": 101, "deadline": 0.0, "max_body_bytes": 0}
    monkeypatch.setenv("VERL_TRGRPO_SEARCH_TOKEN", "two words")
    with pytest.raises(ValueError, match="8 problems") as caught:
        ServerOptions(small_index, **wrong, max_queries=5000)
    message = str(caught.value)
    assert all(f"\n- {name}=" in message for name in wrong)
    assert "max_pending=2048 is out of range; give a number in [5000" in message
    assert "token" in message and "two words" not in message


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
