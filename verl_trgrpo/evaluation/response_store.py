"""Store responses on disk, one JSON line each, appended as they finish, so that an evaluation can continue where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field

from verl_trgrpo.common.files import check_no_circle, lock, open_plain, write_json
from verl_trgrpo.common.foreign import LINE_LIMIT, MIB, ForeignFileError
from verl_trgrpo.common.text import changes
from verl_trgrpo.common.typed import Schema, Text, Whole, read_typed, typed_lines
from verl_trgrpo.data.rows import THINKING_OPENED, Row
from verl_trgrpo.tasks.reward_input import reward_input

ARGUMENTS = "arguments.json"


@dataclass(frozen=True)
class Response:
    """One finished response to the row of a position, and the number of the sample, both from 0.

    Args:
        text: the decoded response; with searches, observations included.
        tokens: number of tokens that the model wrote itself.
        cut: True if it ended at a length limit.
        extra: further input of the reward (``thinking_opened``; ``model_text``, ``rollout_metrics`` of searching responses).
    """

    row: int
    sample: int
    text: str
    tokens: int
    cut: bool
    extra: dict[str, Any] = field(default_factory=dict)

    def reward_input(self, row: Row) -> dict[str, Any]:
        """Return the `extra_info` of the reward, as in training."""
        opened = bool(self.extra.get(THINKING_OPENED))
        return reward_input(
            row.extra_info, row.messages, from_loop=self.extra, thinking_opened=opened, cut_off=self.cut
        )


class Arguments(Schema):
    """``arguments.json``: all that determines the responses, which is compared as a whole."""


class ResponseLine(Schema):
    """A response on disk."""

    row: Whole
    sample: Whole
    text: str
    tokens: Whole
    cut: bool
    extra: dict[Text, Any] = Field(default_factory=dict)


class ResponseStore:
    """The responses of one evaluation; see `open_store`."""

    def __init__(self, directory: Path, data: Sequence[Path]) -> None:
        stems = [path.stem for path in data]
        self._names = [f"{stem}-{i + 1}" if stems.count(stem) > 1 else stem for i, stem in enumerate(stems)]
        self._directory = directory
        for number in range(len(data)):
            # A process that was killed while it wrote leaves half a line.
            with os.fdopen(open_plain(self.path(number)), "r+b") as file:
                file.truncate(_last_end(file, self.path(number)))

    def path(self, number: int, ending: str = ".jsonl") -> Path:
        """Return the path of the responses to data file `number`, or of another file about it."""
        return self._directory / f"{self._names[number]}{ending}"

    def read(self, number: int) -> list[Response]:
        """Return the responses to data file `number` so far, by row and sample; of a damaged line there is a warning."""
        read = (line for _, line in typed_lines(ResponseLine, self.path(number)) if line)
        found = [Response(**{name: getattr(line, name) for name in ResponseLine.model_fields}) for line in read]
        return sorted(found, key=lambda response: (response.row, response.sample))

    def append(self, number: int, response: Response) -> None:
        """Append a response to data file `number`; it survives if this process is killed afterwards."""
        with os.fdopen(open_plain(self.path(number), os.O_APPEND), "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(response)) + "\n")


def _last_end(file: BinaryIO, path: Path) -> int:
    """Return the number of bytes up to the end of the last line that has ended.

    Raises:
        ForeignFileError: what follows is longer than a line may be.
    """
    size = place = file.seek(0, os.SEEK_END)
    while place and size - place <= LINE_LIMIT:
        start = max(0, place - MIB)
        file.seek(start)
        if (found := file.read(place - start).rfind(b"\n")) >= 0:
            return start + found + 1
        place = start
    if place:
        raise ForeignFileError(f"{path} ends in a line of more than {LINE_LIMIT:,} bytes; restore or remove the file")
    return 0


@contextmanager
def open_store(directory: Path, arguments: Mapping[str, Any], data: Sequence[Path]) -> Iterator[ResponseStore]:
    """Open or create a directory of responses to data files, for one process at a time.

    The `arguments` are everything that determines the responses, as JSON types.

    Raises:
        ValueError: the directory has responses made with other arguments, or their record is damaged, or it is in use.
        OSError: it cannot be written.
    """
    check_no_circle(directory)
    directory.mkdir(parents=True, exist_ok=True)
    busy = f"{directory} is in use by another evaluation ({{holder}}); wait for this process or choose another --out"
    with lock(directory / ".lock", busy):
        path = directory / ARGUMENTS
        if not os.path.lexists(path):
            write_json(path, arguments)
        if differing := changes(read_typed(path, Arguments).content(), json.loads(json.dumps(arguments))):
            raise ValueError(
                f"{directory} holds another evaluation ({'; '.join(differing)}); choose another --out or delete the directory"
            )
        yield ResponseStore(directory, data)
