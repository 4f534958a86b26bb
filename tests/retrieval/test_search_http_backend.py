"""Asking another server: what is sent, and how each way to fail is told."""

import json
import socket
import threading
import time
from contextlib import closing

import pytest

from tests.retrieval.search_servers import Gate, answering
from verl_trgrpo.retrieval import BackendBusyError, BackendError, BackendTimeoutError, Hit
from verl_trgrpo.retrieval.http_backend import HttpOptions


class Fixed:
    """Always the same answer."""

    def __init__(self, status, body=b"", headers=None):
        self.reply = status, headers or {}, body

    def answer(self, method, path, headers, body):
        return self.reply


def test_the_request_is_search_r1s_and_connections_are_kept():
    owner = Gate()
    owner.gate.set()
    with answering(owner) as url:
        backend = HttpOptions(url, token="secret").open()
        assert backend.search(["東京", "b"], 2) == [[Hit("", f'"{q}"\ntext', 1.5)] for q in ("東京", "b")]
        path, headers, body = owner.received[0]
        assert path == "/retrieve"
        assert json.loads(body) == {"queries": ["東京", "b"], "topk": 2, "return_scores": True}
        assert headers["Content-Type"] == "application/json"
        assert headers["Authorization"] == "Bearer secret"
        backend.close()
        HttpOptions(f"{url}/other/path").open().search(["a"], 1)
        assert owner.received[1][0] == "/other/path"
        assert "Authorization" not in owner.received[1][1]


def test_one_connection_serves_many_requests():
    owner = Gate()
    owner.gate.set()
    with answering(owner) as url:
        backend = HttpOptions(url).open()
        for _ in range(3):
            backend.search(["a"], 1)
        assert len(owner.received) == 3
        assert len(owner.clients) == 1


FAILURES = {
    "busy": (Fixed(503, headers={"Retry-After": "7"}), BackendBusyError, "busy"),
    "too many": (Fixed(429), BackendBusyError, "429"),
    "its own deadline": (Fixed(504), BackendTimeoutError, "504"),
    "broken": (Fixed(500, b"Traceback:\n  no"), BackendError, "answered 500: Traceback: no"),
    "elsewhere": (Fixed(302, headers={"Location": "/other"}), BackendError, "302"),
    "not JSON": (Fixed(200, b"<html>"), BackendError, "not in Search-R1's protocol"),
    "too few results": (Fixed(200, b'{"result": []}'), BackendError, "0 results for 1 queries"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_each_failure_has_its_error(name):
    owner, kind, reason = FAILURES[name]
    with answering(owner) as url, pytest.raises(kind) as caught:
        HttpOptions(url).open().search(["a"], 1)
    assert reason in str(caught.value)
    if name == "busy":
        assert caught.value.retry_after == 7


def test_a_server_that_is_not_there():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BackendError, match="cannot be reached"):
        HttpOptions(f"http://127.0.0.1:{port}").open().search(["a"], 1)


def test_a_silent_server_and_one_that_sends_drop_by_drop_end_at_the_deadline():
    owner = Gate()
    with answering(owner) as url:
        with pytest.raises(BackendTimeoutError, match=r"0\.3 s"):
            HttpOptions(url, timeout=0.3).open().search(["a"], 1)
        assert owner.waiting == 1
        owner.gate.set()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def drip():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                try:
                    while True:
                        connection.sendall(b" ")
                        time.sleep(0.05)
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(BackendTimeoutError, match="did not finish"):
            HttpOptions(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5).open().search(["a"], 1)
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://x:0", "http://[", "http://u:p@x"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match="url"):
        HttpOptions(url)


def test_wrong_options_are_all_reported_at_once():
    with pytest.raises(ValueError, match="3 problems"):
        HttpOptions("x", token="", timeout=-1)
