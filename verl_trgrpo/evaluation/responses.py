"""Responses on disk: one JSON line each, appended as they finish, so that an evaluation can go on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from verl_trgrpo.common.files import lock, write_text
from verl_trgrpo.common.problems import shorten

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
    """The responses of one evaluation; see `open_store`."""

    def __init__(self, paths: Sequence[Path], files: Sequence[TextIO]) -> None:
        self._paths, self._files = paths, files

    def path(self, number: int, ending: str = ".jsonl") -> Path:
        """Return the path of the responses to data file `number`, or of another file about it."""
        return self._paths[number].with_name(self._paths[number].stem + ending)

    def read(self, number: int) -> list[Response]:
        """Return the responses to data file `number` so far, by row and sample; ValueError for a damaged line."""
        found = {}
        # A line ends at a line feed only: the text may hold other separators.
        for line_number, line in enumerate(self._paths[number].read_bytes().split(b"\n")[:-1], start=1):
            try:
                response = Response(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{self._paths[number]}, line {line_number} is damaged ({error}); remove the line"
                ) from error
            found[response.key] = response
        return [found[key] for key in sorted(found)]

    def append(self, number: int, response: Response) -> None:
        """Write a response to data file `number`; it survives whatever happens to this process afterwards."""
        self._files[number].write(json.dumps(asdict(response)) + "\n")
        self._files[number].flush()


@contextmanager
def open_store(directory: Path, arguments: Mapping[str, Any], data: Sequence[Path]) -> Iterator[ResponseStore]:
    """Open or create a directory of responses, for one process at a time.

    Args:
        directory: created if needed.
        arguments: everything that decides what the responses are, as JSON types.
        data: the data files; each gets a file of responses.

    Raises:
        ValueError: the directory has responses made with other arguments, cannot be written, or is in use.
    """
    with ExitStack() as opened:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            busy = f"{directory} is in use by another evaluation ({{holder}}); wait for it or choose another --out"
            opened.enter_context(lock(directory / ".lock", busy))
        except OSError as error:
            raise ValueError(f"cannot write to {directory} ({error.strerror}); choose another --out") from error
        _check_arguments(directory, json.loads(json.dumps(arguments)))
        stems = [path.stem for path in data]
        names = [f"{stem}-{i + 1}" if stems.count(stem) > 1 else stem for i, stem in enumerate(stems)]
        paths = [directory / f"{name}.jsonl" for name in names]
        for path in paths:
            _drop_half_line(path)
        yield ResponseStore(paths, [opened.enter_context(path.open("a", encoding="utf-8")) for path in paths])


def _drop_half_line(path: Path) -> None:
    """Remove the last line of a process that was killed while it wrote."""
    if path.is_file():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _check_arguments(directory: Path, arguments: dict[str, Any]) -> None:
    path = directory / ARGUMENTS
    if not path.is_file():
        write_text(path, json.dumps(arguments, indent=2) + "\n")
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    names = [name for name in {**before, **arguments} if before.get(name) != arguments.get(name)]
    if names:
        changes = "; ".join(
            f"{name} was {shorten(before.get(name))}, now {shorten(arguments.get(name))}" for name in names
        )
        raise ValueError(
            f"{directory} holds another evaluation ({changes}); choose another --out or delete the directory"
        )
