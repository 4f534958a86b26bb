"""Searches of a rollout: what reaches the server, and what happens when it fails."""

import asyncio
import json
import time

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_trgrpo.tasks.search_qa.client import SearchClient, shared_client
from verl_trgrpo.tasks.search_qa.options import SearchOptions, read_options

CONTENTS = '"Rome"\nRome is in Italy.'


def options(server, **changes):
    return SearchOptions(**{"url": server.url, "deadline": 60.0, "retries": 2, **changes})


async def search(client, query="Rome"):
    try:
        return await client.search(query)
    finally:
        await client.close()


def test_a_search_is_one_request_in_the_protocol(with_server):
    async def scenario(server):
        result = await search(SearchClient(options(server, topk=7, max_query_chars=6)), "Rome?\u2028and more")
        assert [hit.contents for hit in result.hits] == [CONTENTS]
        assert result.failure == ""
        assert server.requests == [{"queries": ["Rome?\u2028"], "topk": 7, "return_scores": True}]
        assert "Authorization" not in server.headers[0]

    with_server(scenario)


def test_a_token_goes_along_where_the_environment_has_one(with_server, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")

    async def scenario(server):
        await search(SearchClient(options(server, token_variable="MY_TOKEN")))
        assert server.headers[0]["Authorization"] == "Bearer secret"

    with_server(scenario)


def test_a_busy_server_is_asked_again(with_server):
    async def scenario(server):
        async def busy_twice(number):
            return web.Response(status=503) if number <= 2 else server.answer()

        server.behave = busy_twice
        result = await search(SearchClient(options(server)))
        assert len(result.hits) == 1
        assert len(server.requests) == 3
        server.requests.clear()
        result = await search(SearchClient(options(server, retries=1)))
        assert "not available (status 503)" in result.failure
        assert len(server.requests) == 2

    with_server(scenario)


def wrong(text, status=200):
    async def behave(_):
        return web.Response(text=text, status=status)

    return behave


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (wrong("{"), "not in Search-R1's protocol"),
        (wrong('{"result": []}'), "0 results for 1"),
        (wrong('{"result": [[{"document": {}}]]}'), "not in Search-R1's protocol"),
        (wrong('{"result": [[{"document": {"contents": 3}, "score": "x"}]]}'), "not in Search-R1's protocol"),
        (wrong("internal\nerror", 500), "status 500: internal error"),
        (wrong("no such token", 401), "status 401: no such token"),
    ],
)
def test_a_server_that_answers_nonsense_is_a_failure_that_is_not_repeated(with_server, behave, reason):
    async def scenario(server):
        server.behave = behave
        result = await search(SearchClient(options(server)))
        assert result.hits == ()
        assert reason in result.failure
        assert len(server.requests) == 1

    with_server(scenario)


def test_a_dead_server_is_a_failure():
    async def scenario():
        return await search(SearchClient(SearchOptions(url="http://127.0.0.1:9", deadline=5.0, retries=1)))

    assert "not available" in asyncio.run(scenario()).failure


def test_a_stalled_server_costs_the_deadline_and_no_more(with_server):
    async def scenario(server):
        async def stall(_):
            await asyncio.sleep(30)

        server.behave = stall
        start = time.monotonic()
        result = await search(SearchClient(options(server, deadline=0.3)))
        assert result.failure == "the search engine did not answer in time"
        assert time.monotonic() - start < 10  # of the 30 that the server wanted

    with_server(scenario)


def test_a_server_that_is_down_is_left_alone_and_tried_again_later(with_server, caplog):
    async def scenario(server):
        server.behave = wrong("", 500)
        client = SearchClient(options(server, failures_to_open=3, cooldown=2.0))
        for _ in range(3):
            assert "status 500" in (await client.search("Rome")).failure
        for _ in range(5):
            assert (await client.search("Rome")).failure == "the search engine is not available"
        assert len(server.requests) == 3
        server.behave = None
        await asyncio.sleep(2.1)
        assert len((await client.search("Rome")).hits) == 1
        server.behave = wrong("", 500)
        assert "status 500" in (await client.search("Rome")).failure  # one failure does not open it again
        server.behave = None
        assert len((await search(client)).hits) == 1

    with_server(scenario)
    assert caplog.text.count("failed 3 times in a row") == 1


def test_no_more_searches_are_under_way_than_allowed(with_server):
    async def scenario(server):
        full = asyncio.Event()

        async def slow(_):
            if server.most_at_once >= 3:
                full.set()
            await full.wait()
            await asyncio.sleep(0.02)  # time for more, if more were allowed
            return server.answer()

        server.behave = slow
        client = SearchClient(options(server, max_concurrency=3))
        results = await asyncio.gather(*(client.search(f"query {n}") for n in range(20)))
        await client.close()
        assert all(len(result.hits) == 1 for result in results)
        assert server.most_at_once == 3

    with_server(scenario)


def test_one_client_serves_all_responses_of_an_event_loop(with_server):
    async def scenario(server):
        client = shared_client(options(server))
        assert shared_client(options(server)) is client
        assert shared_client(options(server, topk=9)) is not client
        await search(client)
        return client

    assert with_server(scenario) is not with_server(scenario)


@settings(max_examples=50, deadline=None)
@given(query=st.text())
def test_no_query_raises(query):
    async def scenario():
        return await search(SearchClient(SearchOptions(url="http://127.0.0.1:9", deadline=1.0, retries=0)), query)

    assert asyncio.run(scenario()).failure


def test_an_empty_query_is_not_sent(with_server):
    async def scenario(server):
        assert (await search(SearchClient(options(server)), " \n")).failure == "the query is empty"
        assert server.requests == []

    with_server(scenario)


def test_all_wrong_options_are_reported_at_once():
    settings_ = {"url": "ftp://x", "topk": 0, "deadline": -1.0, "retries": "2", "max_searches": 0, "top_k": 3}
    with pytest.raises(ValueError, match=r"rollout\.custom\.search") as error:
        read_options(settings_)
    for part in ("url is 'ftp://x'", "topk is 0", "deadline is -1", "retries is '2'", "max_searches is 0", "top_k"):
        assert part in str(error.value), json.dumps(str(error.value))
