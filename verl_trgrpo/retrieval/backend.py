"""What a search backend is: lists of queries in, ranked hits out."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    """One passage that was found.

    id: the passage's id in the corpus; empty where a foreign server gives none.
    contents: the passage as it stands in the corpus; in wiki-18 the quoted title, a line break, the text.
    score: the higher the better; comparable within one query only; 0 where a foreign server gives none.
    """

    id: str
    contents: str
    score: float


class Backend(Protocol):
    """A place to search in. Every method may be called from several threads at once.

    name: as on the command line.
    batch_size: how many queries one call of `search` is best given.
    """

    name: str
    batch_size: int

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """Return at most `topk` (at least 1) hits for each query, best first; no words, no hits.

        Raises BackendError; never because of what a query says.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return facts for /health, such as the number of documents; it must be quick. Only who has the token sees them."""
        ...

    def close(self) -> None:
        """Give back connections and files."""
        ...


class BackendOptions(Protocol):
    """Options that can be sent to a worker process, which then opens the backend."""

    def open(self) -> Backend: ...


class BackendError(RuntimeError):
    """The backend could not answer."""


class BackendBusyError(BackendError):
    """The backend turns work away for now. `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BackendTimeoutError(BackendError):
    """The backend did not answer in time."""


def optional_module(name: str) -> ModuleType:
    """Import a module of the extra `search`; RuntimeError with the remedy where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RuntimeError(f'{error.name} is not installed; pip install "verl-trgrpo[search]"') from error


def as_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can smuggle into a string but UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
