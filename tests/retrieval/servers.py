"""The command line's own server as a process, and the corpus that it serves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

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

    def pending(self) -> int:
        """Queries in work."""
        return self.get("/health").json()["pending"]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(600)


@contextmanager
def serving(*words: object, program: Sequence[str] = COMMAND, **environment: str) -> Iterator[Server]:
    """Run `verl-trgrpo search serve` on a free port of loopback."""
    process = subprocess.Popen(
        [*program, "serve", "--port", "0", *map(str, words)],
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
