"""Reads a training's log while it is written: for a run that is dead without having ended, and for what it lost quietly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from verl_trgrpo.runs.launch.hints import ENGINE_DEAD

# vLLM's last word when its engine process is gone. Between steps veRL then waits for ever: the ranks send weights that
# nobody takes. Amid a rollout it ends by itself.
_ENGINE_DEAD = ENGINE_DEAD.encode()
# veRL drops a prompt whose rollout or reward raised, says so in the log, and trains on the others.
_PROMPT_LOST = b"Error in _run_prompt"
# Long enough for a run that ends by itself, the usual end among them, to do so.
_GRACE = 30.0
# Bytes kept from one look to the next, so that no word is cut in two.
_OVERLAP = 64


class EngineDeadError(RuntimeError):
    """vLLM's engine process died and the training did not end."""


class LogWatch:
    """What a log says so far.

    Args:
        log_file: may not exist yet.
        grace: seconds between vLLM's last word and :class:`EngineDeadError`.
        clock: in seconds.
    """

    def __init__(self, log_file: Path, grace: float = _GRACE, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._grace, self._clock = log_file, grace, clock
        self._offset = 0
        self._tail = b""
        self._dead_since: float | None = None
        self.prompts_were_lost = False

    def look(self) -> None:
        """Read what is new."""
        text = self._tail + self._read()
        self._tail = text[-_OVERLAP:]
        self.prompts_were_lost |= _PROMPT_LOST in text
        if _ENGINE_DEAD in text and self._dead_since is None:
            self._dead_since = self._clock()

    def check_alive(self) -> None:
        """Read what is new, of a training that has not ended.

        Raises:
            EngineDeadError: when vLLM's engine has been dead for longer than the grace.
        """
        self.look()
        if self._dead_since is not None and self._clock() - self._dead_since > self._grace:
            raise EngineDeadError("vLLM's engine process died (killed, or out of memory) and veRL did not end")

    def _read(self) -> bytes:
        if not self._path.is_file():
            return b""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        return new
