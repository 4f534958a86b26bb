"""A retrieval server as a child process, for the length of a run."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

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
    command = [sys.executable, "-m", "verl_trgrpo.cli.main", "search", "serve", "--index", str(index)]
    with log_file.open("ab") as log:
        own_log = log.tell()
        process = subprocess.Popen(
            [*command, "--port", str(port or 0)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        address = _wait_until_healthy(process, log_file, own_log)
        yield f"{address}/retrieve"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
