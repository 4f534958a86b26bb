"""Run the server in children of this process, and start it again where one dies."""

from __future__ import annotations

import contextlib
import importlib
import ipaddress
import logging
import os
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from verl_trgrpo.common.findings import findings_of
from verl_trgrpo.common.options import Options
from verl_trgrpo.common.progress import handle_signals
from verl_trgrpo.retrieval import TOKEN_VARIABLE
from verl_trgrpo.retrieval.index import Index, check_complete

if TYPE_CHECKING:
    from verl_trgrpo.retrieval.limits import Limits

logger = logging.getLogger(__name__)

_STOPS = (signal.SIGTERM, signal.SIGINT)
# Seconds after which a death is no longer in a row with the one before.
_LIVES = 60.0
# The kernel doubles it. With more, a client that reads slowly could not be told from one that does not read.
_SEND_BUFFER_BYTES = 1 << 17
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


def serve(options: ServerOptions, ready: Callable[[str, int], None], limits: Limits | None = None) -> None:
    """Serve until SIGTERM or SIGINT; requests in work are finished first.

    A child process does the work. If it dies, for example by SIGBUS where a file of the index has shrunk, another one takes its
    place at the same socket, where new connections wait for it. `ready` is called when connections are accepted for the first
    time, with the URL for searches and the number of documents.

    Raises:
        ValueError: the index or the address cannot be used, or a file of the index has changed.
        RuntimeError: the process died twice in a row.
    """
    for name in (
        "tantivy",
        "uvicorn",
        "verl_trgrpo.retrieval.app",
    ):  # for all children, and a missing one is named at once
        importlib.import_module(name)
    if options.stop_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    crashes = 0  # in a row
    with _listen(options.host, options.port) as listener:
        announce = cache(partial(ready, f"{_address(listener)}/retrieve"))  # once, not for each process
        while True:
            start = time.monotonic()
            death = _serve_once(options, listener, limits, announce)
            if death is None:
                return
            crashes = 1 if time.monotonic() - start > _LIVES else crashes + 1
            hint = f"; a file in {options.index} has shrunk, or its disk fails" if death == "SIGBUS" else ""
            if crashes == 2:
                raise RuntimeError(f"the search server died twice in a row, by {death}{hint}; build the index again")
            logger.error("the search server died by %s%s; it is started again", death, hint)


def _serve_once(
    options: ServerOptions, listener: socket.socket, limits: Limits | None, ready: Callable[[int], None]
) -> str | None:
    """Serve in a child process to its end. Return what it died of; None if it ended as it should."""
    fork, stopped = get_context("fork"), []
    receiver, sender = fork.Pipe(duplex=False)
    worker = fork.Process(target=_work, args=(options, listener, limits, sender))

    def stop(*_: object) -> None:
        stopped.append(True)
        listener.close()  # the worker closes its own: new connections are refused while it finishes
        worker.terminate()

    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    worker.start()
    with handle_signals(stop, *_STOPS):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        sender.close()
        with contextlib.suppress(EOFError):
            while not isinstance(said := receiver.recv(), str):
                ready(said)
            listener.close()
            worker.terminate()
            worker.join()
            raise ValueError(said)
        worker.join()
    if stopped or not worker.exitcode:
        return None
    return signal.Signals(-worker.exitcode).name if worker.exitcode < 0 else f"exit code {worker.exitcode}"


def _work(options: ServerOptions, listener: socket.socket, limits: Limits | None, sender: Connection) -> None:
    """Serve in this process; send the number of documents when it begins, and why it cannot begin or go on."""
    from uvicorn import Config, Server

    from verl_trgrpo.retrieval.app import create_app
    from verl_trgrpo.retrieval.limits import BoundedProtocol, Limits

    threading.Thread(target=_end_with_parent, daemon=True).start()
    limits = limits or Limits()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * limits.connections)), hard))
    try:
        index = Index(options.index)
    except ValueError as error:
        sender.send(str(error))
        return
    config = Config(
        create_app(index, options.token(), limits, cache(sender.send)),  # a pipe holds few messages that are not read
        http=BoundedProtocol,
        ws="none",  # a connection that becomes a web socket would leave the bounds
        lifespan="on",
        log_level="error",  # a line for each bad request would let clients fill the disk
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.idle,  # type: ignore[arg-type]
        timeout_graceful_shutdown=int(limits.deadline) + 5,
    )
    for number in _STOPS:  # uvicorn finishes its work, or at a second Ctrl-C drops it, and raises the signal once more
        signal.signal(number, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    sender.send(index.documents)
    Server(config).run([listener])


def _end_with_parent() -> None:
    parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family)  # type: ignore[arg-type]
    except OSError as error:
        raise ValueError(
            f"cannot listen at {host} port {port} ({error.strerror}); choose another port or host"
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _end_with_stdin() -> None:
    # Not through sys.stdin, whose lock this thread would still hold when the interpreter ends.
    while os.read(0, 1 << 12):
        pass
    os._exit(0)
