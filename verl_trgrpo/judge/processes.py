"""Sandboxed processes that judge answers, one for each question that is asked at a time, and the verdicts that they gave."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any

from verl_trgrpo.common.sandbox import Sandbox

MAX_JUDGES = 4
"""Judges of one function in a process, at most one for each core."""
_MAX_VERDICTS = 4096


class Judges:
    """Judge processes for one function; safe to use from several threads, of which as many are served at a time as
    there are judges.

    Args:
        function: as for `Sandbox`; it returns a bool or number.
        keep: keep verdicts by their arguments, where no argument can take over a worker: responses of a group often agree.
    """

    def __init__(self, function: str, *, keep: bool = False) -> None:
        self.function, self.keep = function, keep
        self.forget()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begin without processes, leaving the present ones to whoever else has them."""
        count = min(
            MAX_JUDGES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        self.judges = [Sandbox(self.function) for _ in range(count)]
        self._busy: set[Sandbox] = set()
        self._changed = threading.Condition()
        self._verdicts: OrderedDict[tuple[Any, ...], float | None] = OrderedDict()

    def ask(self, *arguments: Any, limit: float, renew: bool = False) -> tuple[float | None, float]:
        """Ask as `Sandbox.ask` does; a verdict that was kept takes 0 seconds.

        Raises:
            TimeoutError, RuntimeError: as `Sandbox.ask`; the value is not a finite number.
        """
        with self._changed:
            if self.keep and arguments in self._verdicts:
                self._verdicts.move_to_end(arguments)
                return self._verdicts[arguments], 0.0
            self._changed.wait_for(lambda: len(self._busy) < len(self.judges))
            judge = next(each for each in self.judges if each not in self._busy)  # others start if the first is busy
            self._busy.add(judge)
        try:
            value, seconds = judge.ask(*arguments, limit=limit, renew=renew)
        finally:
            with self._changed:
                self._busy.discard(judge)
                self._changed.notify()
        if not (value is None or (isinstance(value, (bool, int, float)) and abs(value) < 1e300)):
            raise TimeoutError("the answer has taken over the judge, whose verdict is not a finite number")
        value = value if value is None else float(value)
        if self.keep:
            with self._changed:
                self._verdicts[arguments] = value
                while len(self._verdicts) > _MAX_VERDICTS:
                    self._verdicts.popitem(last=False)
        return value, seconds

    def close(self) -> None:
        """End the judges and forget their verdicts; the next question starts another."""
        with self._changed:
            self._verdicts.clear()
        for judge in self.judges:
            judge.close()
