"""Run the server: in this process, or as a child process for as long as a block runs."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from verl_trgrpo.common.findings import findings_of
from verl_trgrpo.common.options import Options
from verl_trgrpo.retrieval import TOKEN_VARIABLE
from verl_trgrpo.retrieval.index import Index, check_complete

# Seconds that an idle connection lives: longer than clients keep it in their pools.
_KEEP_ALIVE = 75
# Begins the line that the command prints when connections are accepted; the address follows.
READY = "listening on "


@dataclass(frozen=True)
class ServerOptions(Options):
    """Serve an index over HTTP in Search-R1's protocol.

    If the environment variable VERL_TRGRPO_SEARCH_TOKEN is set, requests need that bearer token.

    Args:
        index: Directory of an index from `verl-trgrpo search index`.
        host: Address to listen at.
        port: Port; 0 takes a free one.
        allow_anonymous: Let other machines in without a token, if host lets them reach the server.
        stop_with_stdin: Stop when standard input ends, for a program that starts the server and must not leave it behind.
    """

    index: Path
    host: str = "127.0.0.1"
    port: Annotated[int, "[0, 65535]"] = 8000
    allow_anonymous: bool = False
    stop_with_stdin: bool = False

    def problems(self) -> list[str]:
        """Return a message for each problem of index, host and token."""
        found = [*findings_of(lambda: check_complete(self.index), ""), *findings_of(self._check_access, "")]
        return [finding.message for finding in found]

    def _check_access(self) -> None:
        if self.token() is None and not self.allow_anonymous and not _is_loopback(self.host):
            raise ValueError(
                f"host={self.host} can be reached from other machines and there is no token; set the environment "
                f"variable {TOKEN_VARIABLE}, or let everybody in with --allow-anonymous"
            )

    def token(self) -> str | None:
        """Return the bearer token that requests must carry, or None.

        Raises:
            ValueError: a header cannot carry the token; the message does not contain it.
        """
        token = os.environ.get(TOKEN_VARIABLE)
        if token is not None and not re.fullmatch("[!-~]+", token):
            raise ValueError(
                f"{TOKEN_VARIABLE} is empty, or has spaces or characters that are not ASCII; use letters and digits"
            )
        return token


def _is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; names other than localhost count as open."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(options: ServerOptions, ready: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; requests in work are finished first.

    When connections are accepted, `ready` is called with the URL for searches and the number of documents.

    Raises:
        ValueError: the index or the address cannot be used.
    """
    from uvicorn import Config, Server

    from verl_trgrpo.retrieval.app import DEADLINE, BoundedProtocol, create_app

    if options.stop_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    index = Index(options.index)
    with _listen(options.host, options.port) as listener:
        config = Config(
            create_app(index, options.token()),
            http=BoundedProtocol,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(DEADLINE) + 5,
        )
        # uvicorn finishes its work and then raises the signal once more, SIGINT as KeyboardInterrupt.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        ready(f"{_address(listener)}/retrieve", index.documents)
        with contextlib.suppress(KeyboardInterrupt):
            Server(config).run([listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)  # type: ignore[arg-type]
    except OSError as error:
        raise ValueError(
            f"cannot listen at {host} port {port} ({error.strerror}); choose another port or host"
        ) from error


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _end_with_stdin() -> None:
    # Not through sys.stdin, whose lock this thread would still hold when the interpreter ends.
    while os.read(0, 1 << 12):
        pass
    os._exit(0)


class ServerProcess(NamedTuple):
    """A running server: its process, and the URL for searches."""

    process: subprocess.Popen[str]
    url: str


@contextlib.contextmanager
def server_process(
    index: Path,
    log_file: Path,
    *flags: object,
    port: int = 0,
    command: Sequence[str] = (sys.executable, "-m", "verl_trgrpo", "search"),
) -> Iterator[ServerProcess]:
    """Run ``verl-trgrpo search serve`` as a child process for the duration of a block.

    The server also ends if this process dies in any way, SIGKILL included: the pipe to its standard input is closed then.
    It gets further `flags`; `log_file` receives its errors.

    Raises:
        RuntimeError: the server does not start.
    """
    words = [*command, "serve", "--index", index, "--port", port, "--stop-with-stdin", *flags]
    with (
        log_file.open("ab") as log,
        subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Ctrl-C in a terminal must not stop the server before the run that uses it has stopped.
            start_new_session=True,
        ) as process,
    ):
        try:
            line = process.stdout.readline()  # type: ignore[union-attr]
            if not line.startswith(READY):
                raise RuntimeError(f"the search server did not start; see {log_file}")
            yield ServerProcess(process, line.removeprefix(READY).split()[0])
        finally:
            process.kill()
