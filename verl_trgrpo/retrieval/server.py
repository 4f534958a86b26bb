"""Run the server: one process, or several that share one listening socket."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from verl_trgrpo.retrieval import require
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.retrieval.options import ServerOptions

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from starlette.applications import Starlette

# Seconds that an idle connection lives: longer than clients keep it in their pools.
_KEEP_ALIVE = 75
# Seconds in which a worker has to show that it lives, importing its modules on a busy machine included.
_HEALTHY_WITHIN = 60


def serve(options: ServerOptions, ready: Callable[[str, int], None]) -> None:
    """Serve until SIGTERM or SIGINT; requests in work are finished first.

    Args:
        options: what to serve, and how.
        ready: called with the address, like http://127.0.0.1:8000, and the number of documents, when connections are
            accepted.

    Raises:
        ValueError: the index or the address cannot be used.
        RuntimeError: a package is missing.
    """
    require("starlette", "uvicorn")
    from uvicorn import Config, Server
    from uvicorn.supervisors import Multiprocess

    index = Index(options.index)
    with _listen(options.host, options.port) as listener:
        config = Config(
            partial(_app, options),
            factory=True,
            workers=options.workers,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(options.deadline) + 5,
            timeout_worker_healthcheck=_HEALTHY_WITHIN,
        )
        # uvicorn finishes its work and then raises the signal once more, SIGINT as KeyboardInterrupt.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        ready(_address(listener), index.documents)
        if options.workers > 1:
            Multiprocess(config, [listener]).run()
        else:
            with suppress(KeyboardInterrupt):
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


def _app(options: ServerOptions) -> Starlette:
    """Return the application; a worker process ends when the process that started it is gone."""
    from verl_trgrpo.retrieval.app import create_app

    def end_with(parent: BaseProcess) -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    if parent := multiprocessing.parent_process():
        threading.Thread(target=end_with, args=[parent], daemon=True).start()
    return create_app(options, Index(options.index))
