"""A retrieval server as a child process, for the length of a run.

As a program (``python -m``) it serves the index named by its argument until its standard input ends: the other end of that
pipe closes when the parent dies of whatever, SIGKILL included, so that no server is left behind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from verl_trgrpo.retrieval.options import ServerOptions
from verl_trgrpo.retrieval.server import serve


@contextlib.contextmanager
def retrieval_server(index: Path, log_file: Path, port: int = 0) -> Iterator[str]:
    """Serve `index` on loopback, yield the URL to send searches to, and stop the server at the end.

    Args:
        index: directory of an index.
        log_file: receives the server's output.
        port: 0 for a free one.

    Raises:
        RuntimeError: when the server does not come up.
    """
    command = [sys.executable, "-m", __name__, str(index), str(port)]
    pipe = subprocess.PIPE
    with (
        log_file.open("ab") as log,
        # A session of its own: Ctrl-C in a terminal must not take the server from a run that is about to stop.
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, start_new_session=True) as process,
    ):
        try:
            url = process.stdout.readline().strip()  # type: ignore[union-attr]
            if not url:
                raise RuntimeError(f"the retrieval server did not start; {log_file} says why")
            yield url
        finally:
            process.kill()


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock a waiting thread would hold at the end.
    os.read(0, 1)
    os._exit(0)


def _ready(address: str, documents: int) -> None:
    os.write(1, f"{address}/retrieve\n".encode())


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    options = ServerOptions(Path(sys.argv[1]), port=int(sys.argv[2]))
    serve(options, _ready)
