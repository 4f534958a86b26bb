"""The judge: a process that compares formulas, started by `client` as `python -m verl_trgrpo.tasks.math.reward.judge`.

A supervisor imports the libraries once and forks a worker, which serves requests from a socket. For each request the worker
sets a timer of CPU time whose signal keeps its default action: the kernel ends the worker, whatever code it is in. The
supervisor then answers "timed out" for it and forks another, which costs milliseconds. CPU time instead of wall time makes
a verdict independent of how busy the machine is.

Request: golds, answer (None: only read the golds), rounded_gold, limit (seconds). Reply: equal, understood, timed_out. The
first message is None when the judge is ready, else the reason why it is not.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

MEMORY_LIMIT = 2 << 30
TIMED_OUT = {"equal": False, "understood": True, "timed_out": True}


def decide(request: dict[str, Any]) -> dict[str, bool]:
    """Answer one request."""
    from verl_trgrpo.tasks.math.reward.compare import compare, formulas
    from verl_trgrpo.tasks.math.reward.form import read_forms
    from verl_trgrpo.tasks.math.reward.formulas import same_formula, understand
    from verl_trgrpo.tasks.math.reward.latex import normalize

    understood = False
    for gold in request["golds"]:
        if any(understand(text) is None for text in formulas(read_forms(normalize(gold))[0])):
            continue
        understood = True
        if request["answer"] is not None and compare(
            [gold], request["answer"], rounded_gold=request["rounded_gold"], same_formula=same_formula
        ):
            return {"equal": True, "understood": True, "timed_out": False}
    return {"equal": False, "understood": understood, "timed_out": False}


def _work(connection: Connection) -> None:
    """Serve requests until the caller is gone. Out of memory, the worker ends early, and the supervisor answers."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_PROF, request["limit"])
        reply = decide(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(reply)


def main(connection: Connection) -> None:
    """Supervise workers until the caller is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(2000)
    try:
        from verl_trgrpo.tasks.math.reward.formulas import warm_up

        warm_up()
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    while True:
        worker = os.fork()
        if worker == 0:
            status = 1
            try:
                _work(connection)
                status = 0
            finally:
                os._exit(status)
        if os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0:
            return
        connection.send(TIMED_OUT)


if __name__ == "__main__":
    try:
        main(Connection(int(sys.argv[1])))
    except OSError:  # the caller is gone
        sys.exit(0)
