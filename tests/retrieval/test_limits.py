"""Whatever clients can hold has a limit and comes back: a load for each limit that would exceed it, and requests in turn."""

import dataclasses
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import pytest
import requests

from tests.retrieval.servers import PASSAGES, Gate, Server, write_corpus
from tests.waiting import wait_for
from verl_trgrpo.retrieval.index import IndexOptions, build_index
from verl_trgrpo.retrieval.limits import Limits

POST = b"POST /retrieve HTTP/1.1\r\nHost: x\r\n"
WHALE = {"queries": ["whale"] * 4}
SMALL = {
    "connections": 20,
    "head_bytes": 4000,
    "headers": 20,
    "body_bytes": 20_000,
    "answer_bytes": 4_200_000,
    "held_bytes": 10_000_000,
    "pending": 12,
    "turn": 0.0,
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whale")
    corpus = write_corpus(directory / "corpus", PASSAGES | {"5": "whale " * 150_000})
    build_index(IndexOptions(corpus, directory / "index"))
    return directory / "index"


@pytest.fixture(scope="module")
def sizes(index, tmp_path_factory) -> Iterator[tuple[Server, Gate]]:
    """A server with small limits and much time."""
    gate = Gate(tmp_path_factory.mktemp("gate") / "gate")
    with gate.serving(index, idle=300, **SMALL) as server:
        yield server, gate
        gate.open()


@pytest.fixture(scope="module")
def times(index, tmp_path_factory) -> Iterator[tuple[Server, Gate]]:
    """A server with little time."""
    gate = Gate(tmp_path_factory.mktemp("gate") / "gate")
    with gate.serving(index, deadline=1, idle=1) as server:
        yield server, gate
        gate.open()


def connect(server: Server, data: bytes) -> socket.socket:
    """Connect with a small buffer and send; nothing is read."""
    client = socket.socket()
    client.settimeout(600)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.connect((urlsplit(server.url).hostname, urlsplit(server.url).port))
    with suppress(OSError):  # refused meanwhile
        client.sendall(data)
    return client


def request(body: object) -> bytes:
    data = json.dumps(body).encode()
    return POST + b"Content-Length: %d\r\n\r\n" % len(data) + data


def status(client: socket.socket) -> int:
    """Return the status of the answer, 0 if the connection ends without one."""
    with closing(client), suppress(ConnectionResetError):
        return int((client.recv(100) or b"- 0").split()[1])
    return 0


def refused(code: int, data: bytes) -> Callable[[Server, Gate], None]:
    """Build a load of one request that is refused."""

    def load(server: Server, gate: Gate) -> None:
        assert status(connect(server, data)) == code

    return load


def connections(server: Server, gate: Gate) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connect(server, b""))
        assert server.held()["connections"] <= SMALL["connections"]  # the idle ones made room
    for unfinished in (b"", b"POST", POST + b"X: ", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"):
        with ExitStack() as stack, requests.Session() as session:
            assert session.get(f"{server.url}/health").ok
            for _ in range(3 * SMALL["connections"]):
                stack.enter_context(connect(server, unfinished))
            assert server.post({"queries": ["polonium"]}).status_code == 200
    with ExitStack() as stack:
        for _ in range(SMALL["connections"]):
            stack.enter_context(connect(server, POST + b"Content-Length: 9\r\n\r\n"))
        wait_for(lambda: status(connect(server, b"")) == 503)
    wait_for(lambda: server.get("/health").ok)  # it has seen that they are closed


def held_bytes(server: Server, gate: Gate) -> None:
    """Answers that are not read hold memory; small ones are served all the same; later they can be read as a whole."""
    gate.open()
    with closing(connect(server, request(WHALE))) as first:
        wait_for(lambda: server.held()["held_bytes"] > 3_000_000)
        answer = server.post(WHALE)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert server.post({"queries": ["polonium"] * 2}).status_code == 200
        read = b""
        while len(read) < 3_600_000:
            read += first.recv(1 << 20)
    half_a_body = POST + b"Content-Length: 20000\r\n\r\n" + b" " * 19_000
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(server, half_a_body))
        wait_for(lambda: server.held()["held_bytes"] == 5 * 19_000)


def pending(server: Server, gate: Gate) -> None:
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, {"queries": ["a"] * 4})
        wait_for(lambda: server.pending() == 4)
        for _ in range(3):
            answer = server.post({"queries": ["b"] * 5})
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        gate.open()
        assert first.result().status_code == 200


def threads(server: Server, gate: Gate) -> None:
    gate.close()
    before = len(gate.searched())
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(server.post, {"queries": ["a"]})
        wait_for(lambda: server.pending() == 2 and len(gate.searched()) > before)
        assert len(gate.searched()) == before + 1
        gate.open()


def turn(server: Server, gate: Gate) -> None:
    gate.close()
    before = len(gate.searched())
    with ThreadPoolExecutor(2) as pool:
        pool.submit(server.post, {"queries": ["a", "a", "a", "last"]})
        wait_for(lambda: len(gate.searched()) > before)
        pool.submit(server.post, {"queries": ["single"]})
        wait_for(lambda: server.pending() == 5)
        gate.open()
    order = gate.searched()[before:]
    assert order.index("single") < order.index("last")


def deadline(server: Server, gate: Gate) -> None:
    """A search, a head, a body, a body after its answer, an answer: what stands still ends. All at once, for each takes long."""
    gate.close()
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        late = pool.submit(server.post, {"queries": ["a", "b"]})
        head, body, endless = (
            stack.enter_context(connect(server, data))
            for data in (
                b"POST",
                POST + b"Content-Length: 100\r\n\r\n{",
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
            )
        )
        assert b" 404 " in endless.recv(1000)
        assert late.result().status_code == 504 and "1 s" in late.result().json()["detail"]
        assert (status(head), status(body)) == (408, 504)
        assert server.pending() <= 1  # what had no turn is dropped, what a thread is at still counts
        gate.open()
        wait_for(lambda: server.held()["connections"] == 0)
        stack.enter_context(connect(server, request(WHALE)))
        wait_for(lambda: server.held()["held_bytes"] > 0)
        wait_for(lambda: server.held()["connections"] == 0)


def idle(server: Server, gate: Gate) -> None:
    with ExitStack() as stack:
        for data in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
            stack.enter_context(connect(server, data))
        wait_for(lambda: server.held()["connections"] == 0)


LOADS = {
    "connections": connections,
    "head_bytes": refused(431, POST + b"X: " + b"a" * 4000),
    "headers": refused(431, POST + b"A: b\r\n" * 30),
    "body_bytes": refused(413, POST + b"Content-Length: 30000\r\n\r\n" + b" " * 30_000),
    "queries": refused(413, request({"queries": [""] * (Limits.queries + 1)})),
    "query_chars": refused(413, request({"queries": ["a" * (Limits.query_chars + 1)]})),
    "topk": refused(422, request({"queries": [], "topk": Limits.topk + 1})),
    "answer_bytes": refused(413, request({"queries": ["whale"] * 5})),
    "held_bytes": held_bytes,
    "pending": pending,
    "threads": threads,
    "turn": turn,
    "deadline": deadline,
    "idle": idle,
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Limits)])
def test_a_load_beyond_a_limit_is_refused_and_leaves_nothing(sizes, times, name):
    server, gate = times if name in ("deadline", "idle") else sizes
    gate.open()
    LOADS[name](server, gate)
    gate.open()
    wait_for(lambda: not any(server.held().values()))
    assert server.post({"queries": ["polonium"]}).status_code == 200
    assert "Traceback" not in server.log.read_text()


def test_a_client_that_leaves_takes_its_queries_along(sizes):
    server, gate = sizes
    gate.close()
    before = len(gate.searched())
    with closing(connect(server, request({"queries": ["a"] * 4}))):
        wait_for(lambda: server.pending() == 4 and len(gate.searched()) > before)
    wait_for(lambda: server.pending() == 1)  # the one that a thread is at
    gate.open()
    wait_for(lambda: server.pending() == 0)


def test_a_request_that_does_not_wait_for_the_last_answer_ends_the_connection(sizes):
    server, gate = sizes
    gate.open()
    with closing(connect(server, request({"queries": ["polonium"]}) * 1000)) as client:
        read = b""
        with suppress(ConnectionResetError):
            while data := client.recv(1 << 16):
                read += data
    assert read.count(b"HTTP/1.1") == 1 and b"connection: close" in read and read.endswith(b"]]}")


def test_a_connection_does_not_leave_its_limits_as_a_web_socket(sizes):
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    )
    assert status(connect(sizes[0], b"GET /retrieve HTTP/1.1\r\nHost: x\r\n" + upgrade)) == 405


def test_other_methods_are_refused_and_the_connection_goes_on(sizes):
    with requests.Session() as session:
        for _ in range(2):
            assert session.head(f"{sizes[0].url}/health").status_code == 200
            assert session.options(f"{sizes[0].url}/health").status_code == 405
            assert session.post(f"{sizes[0].url}/health", data=b"x").status_code == 405
