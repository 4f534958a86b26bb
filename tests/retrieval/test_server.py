"""The server as a process, over real HTTP: answers, limits, overload, deadline, shutdown."""

import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.retrieval.servers import PASSAGES, serving, wait_for
from verl_trgrpo.cli.main import main
from verl_trgrpo.retrieval.server import server_process

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
        about = {"status": "ok", "documents": len(PASSAGES), "pending": 0}
        assert server.get("/health", headers=right).json() == about


class Gate:
    """A file without which the searches of a `gated_server` do not end."""

    def __init__(self, path):
        self.path = path

    def open(self):
        self.path.touch()

    def searched(self):
        log = Path(f"{self.path}.log")
        return log.read_text().split() if log.exists() else []

    def serving(self, index, *flags):
        command = [sys.executable, str(Path(__file__).parent / "gated_server.py")]
        return serving(index, self.path.with_name("log"), *flags, command=command)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("GATE", str(gate.path))
    monkeypatch.setenv("DEADLINE", "300")  # the gate may stay shut for long on a busy machine
    yield gate
    gate.open()


def test_bodies_and_answers_are_bounded_together(gate, small_index):
    gate.open()
    with gate.serving(small_index) as server:
        address = urlsplit(server.url)
        with closing(socket.create_connection((address.hostname, address.port), timeout=600)) as connection:
            connection.sendall(HEADERS + b"Content-Length: 100000\r\n\r\n" + b" " * 90_000)  # of 100,000 for all
            body = {"queries": ["polonium"], "x": "x" * 20_000}
            wait_for(lambda: server.post(body).status_code == 503)
        wait_for(lambda: server.post(body).status_code == 200)  # the connection and its bytes are gone
        refused = server.post({"queries": ["london", "polonium"]})
        assert refused.status_code == 413 and "smaller topk" in refused.json()["detail"]


def test_overload_is_503_and_not_a_queue_and_passes(gate, small_index):
    with gate.serving(small_index) as server, ThreadPoolExecutor(2) as pool:
        body = {"queries": ["a"]}
        accepted = [pool.submit(server.post, body) for _ in range(2)]
        wait_for(lambda: server.pending() == 2)
        for _ in range(5):
            refused = server.post(body)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert "waiting" in refused.json()["detail"]
        assert server.get("/health").status_code == 200
        gate.open()
        assert [future.result().status_code for future in accepted] == [200, 200]
        assert server.post({"queries": ["a", "b"]}).status_code == 200
        assert server.pending() == 0


def test_the_deadline_ends_a_request_and_its_waiting_work(gate, small_index, monkeypatch):
    monkeypatch.setenv("DEADLINE", "3")
    with gate.serving(small_index) as server:
        start = time.monotonic()
        late = server.post({"queries": ["a"]})
        assert late.status_code == 504 and "3" in late.json()["detail"]
        assert time.monotonic() - start >= 3
        while not gate.searched():  # the thread had no turn within three seconds, on a busy machine
            server.post({"queries": ["a"]})
        # The search still occupies the thread; what waits for it in vain is dropped, not kept.
        assert server.post({"queries": ["b"]}).status_code == 504
        assert server.pending() == 1
        gate.open()
        wait_for(lambda: server.pending() == 0)
        wait_for(lambda: server.post({"queries": ["c"]}).status_code == 200)  # its three seconds may be short
        assert set(gate.searched()) == {"a", "c"}


def test_a_body_that_does_not_come_ends_at_the_deadline(gate, small_index, monkeypatch):
    monkeypatch.setenv("DEADLINE", "0.5")
    with gate.serving(small_index) as server:
        address = urlsplit(server.url)
        with closing(socket.create_connection((address.hostname, address.port), timeout=600)) as connection:
            connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert connection.recv(100).startswith(b"HTTP/1.1 504")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_finishes_what_runs(gate, small_index, number):
    with gate.serving(small_index) as server, ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, {"queries": ["polonium"], "topk": 1})
        wait_for(lambda: gate.searched() == ["polonium"])
        server.process.send_signal(number)
        time.sleep(0.5)
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
    with server_process(small_index, tmp_path / "log") as server:
        assert requests.post(server.url, json={"queries": ["polonium"]}, timeout=600).json()["result"][0]
    assert server.process.returncode is not None
    assert refuses(server.url)
    with server_process(small_index, tmp_path / "log", port=urlsplit(server.url).port) as again:
        assert again.url == server.url


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_was_killed_or_hangs_does_not_hold_up_the_end(small_index, tmp_path, number):
    with server_process(small_index, tmp_path / "log") as server:
        server.process.send_signal(number)
    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_dies_leaves_no_server_behind(small_index, tmp_path, number):
    code = (
        "import signal, sys; from pathlib import Path; from verl_trgrpo.retrieval.server import server_process\n"
        "with server_process(Path(sys.argv[1]), Path(sys.argv[2])) as server:\n"
        "    print(server.url, server.process.pid, flush=True)\n"
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
