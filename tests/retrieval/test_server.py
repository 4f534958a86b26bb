"""The server as a process, over real HTTP: answers, limits, overload, deadline, shutdown."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples.search_world import server_process
from tests.retrieval.servers import PASSAGES, serving
from tests.waiting import wait_for
from verl_trgrpo.cli.main import main

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def server(small_index, tmp_path_factory):
    with serving(small_index, tmp_path_factory.mktemp("server") / "log") as server:
        yield server


def test_answers_have_search_r1s_form(server):
    body = {"queries": ["polonium metal", "東京", "nothing of this"], "topk": 1, "return_scores": True}
    answer = server.post(body)
    assert answer.status_code == 200
    first, second, third = answer.json()["result"]
    assert first == [{"document": {"id": "1", "contents": PASSAGES["1"]}, "score": pytest.approx(first[0]["score"])}]
    assert second[0]["document"]["contents"] == PASSAGES["3"]
    assert third == []
    without = server.post(body | {"return_scores": False}).json()["result"]
    assert without == [[hit["document"] for hit in hits] for hits in answer.json()["result"]]
    assert server.post({"queries": []}).json() == {"result": []}


def test_a_batch_keeps_its_order(server):
    queries = ["polonium", "tokyo", "beyoncé", "daltrey", "?"] * 10
    results = server.post({"queries": queries, "topk": 1}).json()["result"]
    assert [hits[0]["id"] if hits else None for hits in results] == ["1", "3", "2", "4", None] * 10


def test_a_body_in_pieces_that_becomes_too_large_is_refused_with_a_reason(server):
    pieces = (b" " * (1 << 20) for _ in range(6))
    answer = requests.post(f"{server.url}/retrieve", data=pieces, timeout=600)
    assert answer.status_code == 413 and "larger than" in answer.json()["detail"]
    assert server.post({"queries": ["polonium"]}).status_code == 200


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


@settings(max_examples=150)
@given(
    st.binary(max_size=120)
    | st.binary(max_size=60).map(lambda data: b"POST /retrieve HTTP/1.1\r\n" + data + b"\r\n\r\n")
)
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n")
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n")
@example(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}")
def test_bytes_that_are_hardly_http_are_never_the_servers_fault(server, data):
    assert raw(server, data) in {0, 400, 404, 405, 408, 413, 422, 431}  # 408 and 431 are uvicorn's own
    assert server.process.poll() is None and server.pending() == 0


HEADERS = b"POST /retrieve HTTP/1.1\r\nHost: x\r\n"
ENDLESS = {
    "a header": HEADERS + b"X: ",
    "headers": HEADERS,
    "an address": b"GET /",
    "a chunk's note": HEADERS + b"Transfer-Encoding: chunked\r\n\r\n1;",
    "a trailer": HEADERS + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_is_not_a_body_is_bounded_before_the_token_is_looked_at(small_index, tmp_path, monkeypatch, name):
    monkeypatch.setenv("VERL_TRGRPO_SEARCH_TOKEN", TOKEN)
    with serving(small_index, tmp_path / "log") as server:
        address, sent = urlsplit(server.url), 0
        with closing(socket.create_connection((address.hostname, address.port), timeout=600)) as connection:
            connection.sendall(ENDLESS[name])
            with pytest.raises(OSError):
                while sent < 1 << 27:
                    sent += connection.send(b"A: b\r\n" * 1000 if name == "headers" else b"a" * 10_000)
        assert sent < 1 << 24  # the buffers of the two sockets
        assert server.get("/health").json() == {"status": "ok"}


def test_a_token_is_required(small_index, tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_TRGRPO_SEARCH_TOKEN", TOKEN)
    with serving(small_index, tmp_path / "log") as server:
        body = {"queries": ["polonium"]}
        for value in (None, "", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Bearer é"):
            headers = {} if value is None else {"Authorization": value.encode()}
            refused = server.post(body, headers=headers)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer"), value
        assert server.get("/health").json() == {"status": "ok"}
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert server.post(body, headers=right).status_code == 200
        about = {"status": "ok", "documents": len(PASSAGES), "pending": 0, "held_bytes": 0}
        assert server.get("/health", headers=right).json().items() >= about.items()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_finishes_what_runs(gate, small_index, number):
    with gate.serving(small_index) as server, ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, {"queries": ["polonium"], "topk": 1})
        wait_for(lambda: gate.searched() == ["polonium"])
        server.process.send_signal(number)
        wait_for(lambda: refuses(server.url))
        assert not running.done() and server.process.poll() is None
        gate.open()
        assert running.result().json() == {"result": [[{"id": "1", "contents": PASSAGES["1"]}]]}
        assert server.process.wait(600) == 0
        assert "Traceback" not in server.log.read_text()


def test_wrong_input_is_one_clear_error(small_index, tmp_path, capsys):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        cases = {
            f"127.0.0.1 port {port}": ["--index", small_index, "--port", port],
            "2 problems": ["--index", tmp_path, "--port", -1],
        }
        for reason, words in cases.items():
            assert main(["search", "serve", *map(str, words)]) == 2
            error = capsys.readouterr().err
            assert error.count("error:") == 1 and reason in error


def refuses(url):
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port)) != 0


def test_the_server_is_gone_after_the_block_and_its_port_is_free(small_index, tmp_path):
    with server_process(small_index, tmp_path / "log") as (process, url):
        assert requests.post(url, json={"queries": ["polonium"]}, timeout=600).json()["result"][0]
    assert process.returncode is not None
    assert refuses(url)
    with server_process(small_index, tmp_path / "log", port=urlsplit(url).port) as (_, again):
        assert again == url


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_was_killed_or_hangs_does_not_hold_up_the_end(small_index, tmp_path, number):
    with server_process(small_index, tmp_path / "log") as (process, _):
        process.send_signal(number)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_dies_leaves_no_server_behind(small_index, tmp_path, number):
    code = (
        "import signal, sys; from pathlib import Path; from examples.search_world import server_process\n"
        "with server_process(Path(sys.argv[1]), Path(sys.argv[2])) as (process, url):\n"
        "    print(url, process.pid, flush=True)\n"
        "    signal.pause()\n"
    )
    words = [sys.executable, "-c", code, str(small_index), str(tmp_path / "log")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        url, pid = parent.stdout.readline().split()
        server = psutil.Process(int(pid))
        parent.send_signal(number)
        assert parent.wait(600) == -number
    wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    wait_for(lambda: refuses(url))
    assert "Error" not in (tmp_path / "log").read_text()


def test_a_server_that_cannot_start_is_an_error_with_its_reason(tmp_path):
    with pytest.raises(RuntimeError, match="log"), server_process(tmp_path, tmp_path / "log"):
        pass
    assert "not a finished index" in (tmp_path / "log").read_text()


def worker(server) -> psutil.Process:
    """Return the process that serves."""
    (child,) = psutil.Process(server.process.pid).children()
    return child


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_server_process_that_dies_is_replaced_once(small_index, tmp_path, number):
    with serving(small_index, tmp_path / "log") as server:
        worker(server).send_signal(number)
        wait_for(lambda: number.name in server.log.read_text())
        assert server.post({"queries": ["polonium"]}).status_code == 200  # waits for the next one at the same socket
        second = worker(server)
        second.send_signal(number)
        assert server.process.wait(600) == 1
        assert ("shrunk" in server.log.read_text()) == (number == signal.SIGBUS)
        assert "twice in a row" in server.log.read_text() and "Traceback" not in server.log.read_text()
        assert not second.is_running()


@pytest.mark.parametrize("kind", ["replaced", "shrunk", "garbage", "touched"])
def test_an_index_that_is_written_to_is_refused_and_ends_the_server(small_index, tmp_path, kind):
    index = Path(shutil.copytree(small_index, tmp_path / "index"))
    with serving(index, tmp_path / "log") as server:
        largest = max((index / "index").iterdir(), key=lambda path: path.stat().st_size)
        if kind == "replaced":  # the server goes on with that which it opened
            index.rename(tmp_path / "old")
            shutil.copytree(small_index, index)
            for path in (index / "index").iterdir():
                path.write_bytes(b"")
        elif kind == "garbage":
            size = largest.stat().st_size
            with largest.open("r+b") as file:
                file.write(os.urandom(size))
        elif kind == "shrunk":
            os.truncate(largest, 0)
        else:
            os.utime(largest)
        answer = server.post({"queries": ["polonium"]})
        if kind == "replaced":
            assert answer.status_code == 200 and answer.json()["result"][0]
            return
        assert answer.status_code == 503 and str(largest) in answer.json()["detail"]
        assert server.process.wait(600) == 2
    log = (tmp_path / "log").read_text()
    assert str(largest) in log and "build the index again" in log and "Traceback" not in log


def test_a_server_process_does_not_outlive_its_parent(small_index, tmp_path):
    with serving(small_index, tmp_path / "log") as server:
        child = worker(server)
        server.process.kill()
        wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
