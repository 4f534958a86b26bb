"""The judge: a process that compares formulas, run as `python -m verl_trgrpo.tasks.math.reward.judge`.

A supervisor imports the libraries once and forks a worker, which serves requests from stdin. For each request the worker
sets a timer of CPU time whose signal keeps its default action: the kernel ends the worker, whatever code it is in. The
supervisor then answers "timed out" for it and forks another, which costs milliseconds. CPU time instead of wall time makes
a verdict independent of how busy the machine is.

Messages are JSON behind four bytes of length. Request: golds, answer (null: only read the golds), rounded_gold, limit
(seconds). Reply: equal, understood, timed_out. The first message says that the judge is ready, or why not.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from typing import Any

MEMORY_LIMIT = 2 << 30
_HEADER = struct.Struct("!I")
TIMED_OUT = {"equal": False, "understood": True, "timed_out": True}


def write_message(descriptor: int, message: Any) -> None:
    """Write one message; BrokenPipeError if nobody reads."""
    body = json.dumps(message).encode()
    data = _HEADER.pack(len(body)) + body
    while data:
        data = data[os.write(descriptor, data) :]


def read_message(descriptor: int) -> Any | None:
    """Read one message, and no byte more; None at the end of the stream."""
    header = _read_exactly(descriptor, _HEADER.size)
    body = _read_exactly(descriptor, _HEADER.unpack(header)[0]) if header else None
    return None if body is None else json.loads(body)


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        block = os.read(descriptor, size - len(data))
        if not block:
            return None
        data += block
    return data


def decide(request: dict[str, Any]) -> dict[str, bool]:
    """Answer one request."""
    from verl_trgrpo.tasks.math.reward.compare import compare, formulas
    from verl_trgrpo.tasks.math.reward.form import read_forms
    from verl_trgrpo.tasks.math.reward.formulas import GoldUnparseableError, same_formula, understand
    from verl_trgrpo.tasks.math.reward.latex import normalize

    understood = False
    for gold in request["golds"]:
        texts = formulas(read_forms(normalize(gold))[0])
        if any(understand(text) is None for text in texts):
            continue
        understood = True
        try:
            if request["answer"] is not None and compare(
                [gold], request["answer"], rounded_gold=request["rounded_gold"], same_formula=same_formula
            ):
                return {"equal": True, "understood": True, "timed_out": False}
        except GoldUnparseableError:
            continue
    return {"equal": False, "understood": understood, "timed_out": False}


def _work(requests: int, replies: int) -> None:
    """Serve requests until the stream ends. Out of memory, it ends early, and the supervisor answers."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    while (request := read_message(requests)) is not None:
        signal.setitimer(signal.ITIMER_PROF, request["limit"])
        reply = decide(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_message(replies, reply)


def _fork_worker(requests: int, replies: int) -> int:
    worker = os.fork()
    if worker == 0:
        status = 1
        try:
            _work(requests, replies)
            status = 0
        except BrokenPipeError:
            status = 0
        finally:
            os._exit(status)
    return worker


def main() -> None:
    """Supervise workers until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, replies = os.dup(0), os.dup(1)
    # Nothing that the libraries print may get into the replies, or ask the user for input.
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    sys.setrecursionlimit(2000)
    try:
        from verl_trgrpo.tasks.math.reward.formulas import warm_up

        warm_up()
    except Exception as error:
        write_message(replies, {"error": f"{type(error).__name__}: {error}"})
        return
    write_message(replies, {"ready": True})
    while True:
        _, status = os.waitpid(_fork_worker(requests, replies), 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return
        write_message(replies, TIMED_OUT)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
