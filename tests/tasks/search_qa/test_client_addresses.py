"""Addresses and tokens of search servers: what cannot be one is refused at the start, and no search raises."""

import asyncio
import itertools

import pytest

from verl_trgrpo.retrieval import TOKEN_VARIABLE
from verl_trgrpo.tasks.search_qa.client import SearchClient
from verl_trgrpo.tasks.search_qa.search_options import SearchOptions

PASSWORD = "hunter2"
HOSTS = (
    "host", "127.0.0.1:1", "[::1]:1", "[::1", "::1]", "[v1.x]", "a" * 64, "a" * 64 + ".com", ".".join(["a" * 60] * 5), "a..b",
    ".a", "", "host:99999", "host:-1", "host:x", "h\u00f6st", "\u2100", "host\r\nx", "host x", "%00", "[fe80::1%25eth0]:1",
    "1.2.3", "x:1:2", "\ud800", "host\t", "xn--a", "0x7f.1:1",
)  # fmt: skip
PREFIXES = (
    "http://",
    "https://",
    "http:/",
    "http:",
    "ftp://",
    "",
    "HTTP://",
    "http://user@",
    f"http://user:{PASSWORD}@",
)
TOKENS = (
    "token",
    "to ken",
    "token\r\nX: y",
    "t\u00f6ken",
    "\x00",
    "\x7f",
    "\ud800",
    " ",
    "t" * 100_000,
    "a:b",
    "Basic eDp5",
)


def outcome(url, token, monkeypatch):
    """Search once; a ValueError of the options or the constructor is the only thing that may be raised."""

    async def search():
        client = SearchClient(SearchOptions(url=url, deadline=0.05, retries=0))
        try:
            return await client.search("x")
        finally:
            await client.close()

    monkeypatch.setattr("os.environ", {TOKEN_VARIABLE: token})
    try:
        return asyncio.run(search()).text
    except ValueError as error:
        assert "url=" in str(error) or "url has" in str(error) or TOKEN_VARIABLE in str(error)
        assert "\r" not in str(error)
        return str(error)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_address_makes_a_search_raise(monkeypatch, prefix):
    for host, end in itertools.product(HOSTS, ("", "/retrieve", "/\r\nX: y", "?\ud800")):
        said = outcome(f"{prefix}{host}{end}", "", monkeypatch)
        assert said and PASSWORD not in said, (prefix, host, end)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", f"http://user:{PASSWORD}@127.0.0.1:1", "http://user@127.0.0.1:1"]
)
def test_no_token_does(monkeypatch, token, url):
    said = outcome(url, token, monkeypatch)
    assert PASSWORD not in said and (token not in said or len(token) < 4)
