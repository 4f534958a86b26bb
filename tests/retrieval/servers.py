"""The command line's own server as a process, and the corpus that it serves."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from examples.search_world import server_process

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

    def held(self) -> dict[str, int]:
        """Return what other clients hold."""
        about = self.get("/health").json()
        return {name: about[name] - (name == "connections") for name in ("pending", "held_bytes", "connections")}

    def pending(self) -> int:
        """Return the number of queries in work."""
        return self.held()["pending"]


@contextmanager
def serving(index: Path, log: Path, *flags: object, command: Sequence[str] = COMMAND) -> Iterator[Server]:
    """Run `verl-trgrpo search serve` on a free port of loopback."""
    with server_process(index, log, *flags, command=command) as (process, url):
        server = Server(process, url.removesuffix("/retrieve"), log)
        assert server.get("/health").json()["status"] == "ok"
        yield server


class Gate:
    """A file without which the searches of a `gated_server` do not end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        self.path.touch()

    def close(self) -> None:
        self.path.unlink(missing_ok=True)

    def searched(self) -> list[str]:
        log = Path(f"{self.path}.log")
        return log.read_text().split() if log.exists() else []

    def serving(self, index: Path, **limits: float) -> AbstractContextManager[Server]:
        # The gate may stay shut for long on a busy machine.
        environment = {"GATE": str(self.path), "LIMITS": json.dumps({"deadline": 300, "threads": 1, **limits})}
        words = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", *words, sys.executable, str(Path(__file__).parent / "gated_server.py")]
        return serving(index, self.path.with_name("log"), command=command)
