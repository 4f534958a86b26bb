"""The command line's own server as a process, and the corpus that it serves."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from verl_trgrpo.retrieval.server import server_process

COMMAND = [sys.executable, "-m", "verl_trgrpo", "search"]

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


@dataclass
class Server:
    """A server process, started by the command line."""

    process: subprocess.Popen
    url: str
    log: Path

    def post(self, body: object, **options: object) -> requests.Response:
        return requests.post(f"{self.url}/retrieve", json.dumps(body).encode(), timeout=600, **options)

    def get(self, path: str, **options: object) -> requests.Response:
        return requests.get(f"{self.url}{path}", timeout=600, **options)

    def pending(self) -> int:
        """Return the number of queries in work."""
        return self.get("/health").json()["pending"]


@contextmanager
def serving(index: Path, log: Path, *flags: object, command: Sequence[str] = COMMAND) -> Iterator[Server]:
    """Run `verl-trgrpo search serve` on a free port of loopback."""
    with server_process(index, log, *flags, command=command) as running:
        server = Server(running.process, running.url.removesuffix("/retrieve"), log)
        assert server.get("/health").json()["status"] == "ok"
        yield server


def wait_for(condition, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
