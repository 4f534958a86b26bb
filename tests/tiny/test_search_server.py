"""The server of the demonstration: it comes up, and it never outlives the block that needed it."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest

from verl_trgrpo.tiny.search import open_index
from verl_trgrpo.tiny.search_server import retrieval_server
from verl_trgrpo.tiny.search_world import make_world

WORLD = make_world("training", 1)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    directory = tmp_path_factory.mktemp("served")
    open_index(WORLD, directory)
    return directory / "index"


def ask(url, query):
    body = json.dumps({"queries": [query], "topk": 1}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=600) as answer:
        return json.load(answer)["result"][0]


def servers(process=None):
    return [
        child
        for child in (process or psutil.Process()).children()
        if "verl_trgrpo.tiny.search_server" in child.cmdline()
    ]


def refuses(url):
    port = int(url.split("/retrieve")[0].rsplit(":", 1)[1])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_server_answers_within_the_block_and_is_gone_after_it(index, tmp_path):
    name = next(iter(WORLD.people))
    with retrieval_server(index, tmp_path / "log") as url:
        assert len(servers()) == 1
        assert name in ask(url, name)[0]["contents"]
        port = int(url.split("/retrieve")[0].rsplit(":", 1)[1])
    assert servers() == []
    assert refuses(url)
    # The same port again, at once.
    with retrieval_server(index, tmp_path / "log", port) as again:
        assert again == url
        assert ask(url, name)


def test_a_server_that_was_killed_or_hangs_does_not_hold_up_the_end(index, tmp_path):
    with retrieval_server(index, tmp_path / "log"):
        servers()[0].kill()
    with retrieval_server(index, tmp_path / "log"):
        servers()[0].suspend()
    assert servers() == []


def start_parent(index, log):
    """A small process with a server, the server, and its address."""
    code = (
        "import signal, sys; from pathlib import Path; from verl_trgrpo.tiny.search_server import retrieval_server\n"
        "with retrieval_server(Path(sys.argv[1]), Path(sys.argv[2])) as url:\n"
        "    print(url, flush=True)\n"
        "    signal.pause()\n"
    )
    words = [sys.executable, "-c", code, str(index), str(log)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    (server,) = servers(psutil.Process(process.pid))
    return process, server, url


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_dies_without_a_word_leaves_no_server_behind(index, tmp_path, number):
    process, server, url = start_parent(index, tmp_path / "log")
    os.kill(process.pid, number)
    process.communicate(timeout=600)
    assert process.returncode == -number
    server.wait(600)
    assert refuses(url)
    assert "Error" not in (tmp_path / "log").read_text()


def test_a_server_that_cannot_start_is_an_error_with_its_reason(index, tmp_path):
    with pytest.raises(RuntimeError, match="log says why"), retrieval_server(tmp_path, tmp_path / "log"):
        pass
    assert "not a finished index" in (tmp_path / "log").read_text()
    assert servers() == []
