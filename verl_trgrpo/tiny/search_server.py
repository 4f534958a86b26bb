"""A retrieval server as a child process, for the length of a run.

As a program (``python -m``) it serves the index named by its arguments until its standard input ends: the other end of that
pipe closes when the parent dies of whatever, SIGKILL included, so that no server is left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from verl_trgrpo.retrieval.options import ServerOptions
from verl_trgrpo.retrieval.server import serve

_START_SECONDS = 60.0
_STOP_SECONDS = 15.0

_ADDRESS = re.compile(rb"^listening on (\S+)/retrieve", re.MULTILINE)


@contextlib.contextmanager
def retrieval_server(index: Path, log_file: Path, port: int | None = None) -> Iterator[str]:
    """Serve `index` on loopback, yield the server's address, and stop it at the end.

    Args:
        index: directory of an index.
        log_file: receives the server's output.
        port: None for a free one.

    Raises:
        RuntimeError: when the server does not come up; the message shows the end of its log.
    """
    command = [sys.executable, "-m", __name__, str(index), str(port or 0)]
    with log_file.open("ab") as log:
        own_log = log.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with process:  # closes the pipe
        try:
            address = _wait_until_healthy(process, log_file, own_log)
            yield f"{address}/retrieve"
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_healthy(process: subprocess.Popen, log_file: Path, own_log: int) -> str:
    """Return the address, by the process's own word: at a given port somebody else may answer."""
    deadline = time.monotonic() + _START_SECONDS
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline and process.poll() is None:
        if found := _ADDRESS.search(log_file.read_bytes()[own_log:]):
            address = found[1].decode()
            with contextlib.suppress(OSError), no_proxy.open(f"{address}/health", timeout=2):
                return address
        time.sleep(0.1)
    ending = log_file.read_bytes()[own_log:].decode(errors="replace").strip().splitlines()[-5:]
    raise RuntimeError(f"the retrieval server did not start; see {log_file}: " + " | ".join(ending))


def _end_with_parent() -> None:
    """Wait until standard input ends, then stop this process as its parent would have done."""
    while os.read(sys.stdin.fileno(), 1):  # not through sys.stdin, whose lock a waiting thread would hold at the end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _ready(address: str, documents: int) -> None:
    sys.stdout.write(f"listening on {address}/retrieve ({documents} documents)\n")
    sys.stdout.flush()


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(ServerOptions(Path(sys.argv[1]), port=int(sys.argv[2])), _ready)
    except ValueError as error:
        sys.exit(str(error))
