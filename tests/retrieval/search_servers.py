"""Real servers for the tests: the command line's own, a slow one behind it, and one that speaks OpenSearch's protocol."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import requests

COMMAND = [sys.executable, "-m", "verl_trgrpo.cli.main", "search"]

PASSAGES = {
    "0": '"Marie Curie"\nMarie Curie discovered polonium and radium in Paris.',
    "1": '"Polonium"\nPolonium is a rare radioactive metal, found by Marie and Pierre Curie.',
    "2": '"Beyoncé"\nBeyoncé Knowles sings; her fans call her Queen Bey.',
    "3": '"東京"\n東京 (Tokyo) is the capital of Japan. 🗼',
    "4": '"The Who"\nThe Who are a band from London, with Roger Daltrey.',
}


def write_corpus(path: Path, passages: dict[str, str]) -> Path:
    lines = [json.dumps({"id": key, "contents": text}, ensure_ascii=False) for key, text in passages.items()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `verl-trgrpo search ...` to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@dataclass
class Server:
    """A server process, started by the command line."""

    process: subprocess.Popen
    url: str

    def post(self, body: object, **options: object) -> requests.Response:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return requests.post(f"{self.url}/retrieve", data=body, timeout=600, **options)

    def get(self, path: str, **options: object) -> requests.Response:
        return requests.get(f"{self.url}{path}", timeout=600, **options)

    def metric(self, name: str) -> float:
        """One number of /metrics; 0 where it has not been counted yet."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(600)


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[Server]:
    """Run `verl-trgrpo search serve` on a free port of loopback."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *map(str, words)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"listening on (http://\S+)/retrieve", line)
        assert found, line + (process.stderr.read() if process.poll() is not None or not line else "")
        server = Server(process, found[1])
        assert server.get("/health").json()["status"] == "ok"
        yield server
    finally:
        process.kill()
        process.communicate()


def wait_for(condition, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


class Handler(BaseHTTPRequestHandler):
    """Answers by `owner.answer(method, path, headers, body)`: status, headers, body; `owner.clients` are those who came."""

    protocol_version = "HTTP/1.1"

    def _reply(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        vars(self.server.owner).setdefault("clients", set()).add(self.client_address)
        status, headers, answer = self.server.owner.answer(self.command, self.path, self.headers, body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _reply  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def answering(owner) -> Iterator[str]:
    """Run a small HTTP server whose answers `owner` gives; the value is its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.owner = owner
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Gate:
    """A retrieval server that answers only while the gate is open."""

    gate: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0
    received: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method, path, headers, body):
        with self.lock:
            self.waiting += 1
            self.received.append((path, dict(headers), body))
        self.gate.wait(600)
        with self.lock:
            self.waiting -= 1
        hits = [[{"document": {"contents": f'"{query}"\ntext'}, "score": 1.5}] for query in json.loads(body)["queries"]]
        return 200, {"Content-Type": "application/json"}, json.dumps({"result": hits}).encode()
