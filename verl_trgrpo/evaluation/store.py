"""Responses on disk: one JSON line each, appended as they finish, so that an evaluation can go on where it stopped."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

ARGUMENTS = "arguments.json"


@dataclass(frozen=True)
class Response:
    """One finished response.

    row: position of its row in its file, from 0.
    sample: number of the sample of that row, from 0.
    text: what the model wrote; with searches, observations included.
    tokens: how many tokens the model wrote itself.
    cut: whether it ended at a limit of length.
    extra: what the reward needs beside the text (``model_text``, ``rollout_metrics`` of searching responses).
    """

    row: int
    sample: int
    text: str
    tokens: int
    cut: bool
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int]:
        return self.row, self.sample


class ResponseStore:
    """The responses of one evaluation in its directory; a context manager that lets in one process at a time."""

    def __init__(self, directory: Path, arguments: Mapping[str, Any], data: Sequence[Path]) -> None:
        """Open or create the directory.

        Args:
            directory: created if needed.
            arguments: everything that decides what the responses are, as JSON types.
            data: the data files; each gets a file of responses.

        Raises:
            ValueError: the directory has responses made with other arguments, cannot be written, or is in use.
        """
        self._directory = directory
        self._data = list(data)
        self._files: list[TextIO] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / ".lock").open("w")
        except OSError as error:
            raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another --out") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._check(json.loads(json.dumps(arguments)))
        except BlockingIOError:
            self._lock.close()
            raise ValueError(
                f"{directory} is in use by another evaluation; wait for it or choose another --out"
            ) from None
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> ResponseStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()
        self._lock.close()

    def path(self, number: int, ending: str = ".jsonl") -> Path:
        """Return the path of the responses to data file `number`, or of another file about it."""
        stem = self._data[number].stem
        same = [i for i, path in enumerate(self._data) if path.stem == stem]
        suffix = f"-{same.index(number) + 1}" if len(same) > 1 else ""
        return self._directory / f"{stem}{suffix}{ending}"

    def read(self, number: int) -> list[Response]:
        """Return the responses to data file `number` so far, by row and sample.

        Raises ValueError for a line that is not one of ours; the last line of a killed process is dropped.
        """
        path = self.path(number)
        if not path.is_file():
            return []
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with path.open("r+b") as file:
                file.truncate(len(whole))
        found = {}
        for line_number, line in enumerate(whole.splitlines(), start=1):
            try:
                response = Response(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}, line {line_number} is damaged ({error}); remove the line") from error
            found[response.key] = response
        return [found[key] for key in sorted(found)]

    def append(self, number: int, response: Response) -> None:
        """Write a response to data file `number`; it survives whatever happens to this process afterwards."""
        while len(self._files) < len(self._data):
            self._files.append(self.path(len(self._files)).open("a", encoding="utf-8"))
        self._files[number].write(json.dumps(asdict(response)) + "\n")
        self._files[number].flush()

    def _check(self, arguments: dict[str, Any]) -> None:
        path = self._directory / ARGUMENTS
        if not path.is_file():
            write_text(path, json.dumps(arguments, indent=2) + "\n")
            return
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}); choose another --out") from error
        names = [name for name in {**before, **arguments} if before.get(name) != arguments.get(name)]
        if names:
            changes = "; ".join(
                f"{name} was {_short(before.get(name))}, now {_short(arguments.get(name))}" for name in names
            )
            raise ValueError(
                f"{self._directory} holds another evaluation ({changes}); choose another --out or delete the directory"
            )


def write_text(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
