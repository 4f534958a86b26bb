"""Run the server: one process, or several that share one listening socket."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from typing import Any

from verl_trgrpo.retrieval.backend import BackendOptions, optional_module
from verl_trgrpo.retrieval.metrics import Metrics, forget_worker, keep_in
from verl_trgrpo.retrieval.options import ServerOptions

logger = logging.getLogger(__name__)

# Connections that wait to be accepted, and seconds that an idle one lives: longer than clients keep them in their pools.
_BACKLOG = 2048
_KEEP_ALIVE = 75
# A worker that ends sooner than this after its start would do so for ever.
_TOO_SOON = 5.0


def serve(options: ServerOptions, backend: BackendOptions, ready: Callable[[str, dict[str, Any]], None]) -> None:
    """Serve until SIGTERM or SIGINT; requests in work are finished first.

    `ready` gets the address, like http://127.0.0.1:8000, and what the backend says about itself, when connections are
    accepted.

    Raises:
        ValueError: the index or the address cannot be used.
        RuntimeError: a package is missing, the backend cannot be reached, or a worker does not stay alive.
        KeyboardInterrupt: after SIGINT, when everything has ended.
    """
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        optional_module(module)
    opened = backend.open()
    facts = {"backend": opened.name, **opened.describe()}
    listener = _listen(options.host, options.port)
    with listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        if options.workers == 1:
            _run(options, opened, listener, None, lambda: ready(address, facts))
        else:
            opened.close()
            with tempfile.TemporaryDirectory(prefix="verl-trgrpo-search-") as directory:
                _supervise(options, backend, listener, directory, lambda: ready(address, facts))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)  # type: ignore[arg-type]
    except OSError as error:
        raise ValueError(
            f"cannot listen at {host} port {port} ({error.strerror}); choose another port or host"
        ) from error


def _run(
    options: ServerOptions,
    backend: Any,
    listener: socket.socket,
    metrics_directory: str | None,
    ready: Callable[[], None] = lambda: None,
    watch: Callable[[Any], None] = lambda server: None,
) -> None:
    import uvicorn

    from verl_trgrpo.retrieval.app import create_app

    config = uvicorn.Config(
        create_app(options, backend, Metrics(metrics_directory)),
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(options.deadline) + 5,
    )
    server = uvicorn.Server(config)

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    # uvicorn has its own handler while it serves, and afterwards raises the signal once more, for this one.
    previous = signal.signal(signal.SIGTERM, stop)
    watch(server)
    try:
        ready()
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, previous)
    if not server.started and not server.should_exit:
        raise RuntimeError("the server did not start; its log above says why")


def _work(options: ServerOptions, backend: BackendOptions, listener: socket.socket, metrics_directory: str) -> None:
    """Be a worker process."""
    keep_in(metrics_directory)
    # Ctrl-C goes to all processes of a terminal; the supervisor answers it for its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent(server: Any) -> None:
        def wait() -> None:
            parent = multiprocessing.parent_process()
            if parent is not None:
                parent.join()
                server.should_exit = True

        threading.Thread(target=wait, daemon=True).start()

    _run(options, backend.open(), listener, metrics_directory, watch=end_with_parent)


def _supervise(
    options: ServerOptions,
    backend: BackendOptions,
    listener: socket.socket,
    metrics_directory: str,
    ready: Callable[[], None],
) -> None:
    stopped_by: list[int] = []
    previous = {
        number: signal.signal(number, lambda received, frame: stopped_by.append(received))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    arguments = (options, backend, listener, metrics_directory)
    workers: dict[int, tuple[SpawnProcess, float]] = {}
    try:
        for number in range(options.workers):
            workers[number] = _start(arguments)
        ready()
        while not stopped_by:
            multiprocessing.connection.wait([worker.sentinel for worker, _ in workers.values()], timeout=0.2)
            for number, (worker, started) in workers.items():
                if worker.is_alive() or stopped_by:
                    continue
                forget_worker(worker.pid or 0, metrics_directory)
                if time.monotonic() - started < _TOO_SOON:
                    raise RuntimeError(f"a worker ended at once with exit code {worker.exitcode}")
                logger.warning("worker %s ended with exit code %s; starting another", worker.pid, worker.exitcode)
                workers[number] = _start(arguments)
    finally:
        # While any process holds it open, new connections would wait in vain instead of being refused.
        listener.close()
        for worker, _ in workers.values():
            worker.terminate()
        for worker, _ in workers.values():
            worker.join(options.deadline + 10)
            if worker.is_alive():
                worker.kill()
                worker.join()
        for handled, handler in previous.items():
            signal.signal(handled, handler)
    if signal.SIGINT in stopped_by:
        raise KeyboardInterrupt


def _start(arguments: tuple[ServerOptions, BackendOptions, socket.socket, str]) -> tuple[SpawnProcess, float]:
    process = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
    process.start()
    return process, time.monotonic()
