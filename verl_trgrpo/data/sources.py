"""Read rows of public data files, each with its origin, and draw from them."""

import json
import logging
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verl_trgrpo.common.files import json_lines
from verl_trgrpo.common.foreign import JSON_LIMIT, is_entry, open_foreign, read_foreign, real_path
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.rows import extra_info_of
from verl_trgrpo.data.verl_files import read_rows

FILE_TYPES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".arrow")

# What `datasets` writes beside the rows.
_DESCRIPTIONS = ("dataset_info.json", "state.json", "dataset_dict.json")

_TEST_NAME = re.compile(r"(?<![a-z])(test|heldout|held_out|eval)(?![a-z])", re.IGNORECASE)
# Sets that are for testing whatever the split is called, by the names of files and of directories that hold them.
_TEST_SET = re.compile(
    r"(?<![a-z])(aime|aimo|amc|math[-_]?500|minerva(math)?|olympiad_?(bench)?|hmmt|gpqa)(?![a-z])", re.IGNORECASE
)

# A reason for dropping rows, in the manifest.
NOT_DRAWN = "not drawn for the limit"

_Item = TypeVar("_Item")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One row as it stands in its source, with its number there from 1: in ``.jsonl`` files that of the line."""

    row: Mapping[str, Any]
    where: str
    number: int

    @property
    def origin(self) -> str:
        """Return ``where#number``, which `extra_info` keeps."""
        return f"{self.where}#{self.number}"


def find_files(path: Path) -> list[Path]:
    """Return `path` if it is a file, or the data files of that directory in order of their names.

    Raises:
        ValueError: there is none, or its type is unknown.
    """
    endings = ", ".join(FILE_TYPES)
    if path.is_dir():
        files = sorted(data_entries(path.iterdir()))
        if not files:
            below = sorted(file.parent for file in path.glob("*/*") if file.is_file() and _is_data(file))
            hint = f"; {below[0]} has some, give this file" if below else ""
            raise ValueError(f"{path} has no data files; expected files that end with {endings}{hint}")
        return files
    if not path.is_file():
        raise ValueError(f"{path} does not exist; check the path")
    if not _is_data(path):
        raise ValueError(f"{path} has an unknown type; expected a file that ends with {endings}")
    return [path]


def read_records(path: Path, where: str = "") -> Iterator[Record]:
    """Yield the rows of one file, with `where` (default: its name) as their source.

    Raises:
        ValueError: a row is not an object, or the file cannot be read.
    """
    where = where or path.name
    try:
        for number, row in _numbered_rows(path):
            if not isinstance(row, Mapping):
                raise _malformed(where, number, f"it is of type {type(row).__name__}; expected an object")
            yield Record(row, where, number)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"cannot read {path} ({error}); check the path, or get the file again") from error


def load_hub(
    dataset: str,
    revision: str,
    split: str,
    configuration: str | None = None,
    data_files: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Load one split of a data set on the Hugging Face hub; its rows have ``name/configuration/split`` as their source.

    The `datasets` library caches the files (HF_HOME). Raises a ValueError if the split cannot be loaded, offline for example.
    """
    where = "/".join(part for part in (dataset, configuration, split) if part)
    try:
        import datasets  # slow import, needed here only

        rows = datasets.load_dataset(dataset, configuration, split=split, revision=revision, data_files=data_files)
    except Exception as error:  # the hub's client and the network beneath it raise many unrelated types
        raise ValueError(
            f"could not load {where} at revision {revision!r} ({first_line(error)}); check the network and the name, or "
            "give downloaded files as the source"
        ) from error
    return (Record(row, where, number) for number, row in enumerate(rows, start=1))


def parse_records(records: Iterable[Record], parse: Callable[[Record], _Item]) -> Iterator[_Item]:
    """Yield ``parse(record)`` for each record; a ValueError from `parse` is raised again with the row's number."""
    for record in records:
        try:
            item = parse(record)
        except ValueError as error:
            raise _malformed(record.where, record.number, str(error)) from error
        yield item


def draw(items: Sequence[_Item], count: int | None, seed: str) -> list[_Item]:
    """Return `count` of the items, drawn with `seed`, in their order; all if `count` is None or not smaller."""
    if count is None or count >= len(items):
        return list(items)
    positions = random.Random(seed).sample(range(len(items)), count)
    return [items[position] for position in sorted(positions)]


def warn_of_test_files(paths: Iterable[Path]) -> None:
    """Warn if a train file is a test file by its path or by ``split`` in its first row."""
    for path in paths:
        first = next((record.row for record in read_records(path)), {})
        if message := message_of_test_file(path, says_test(first)):
            logger.warning("%s is %s", path, message)


def says_test(row: Mapping[str, Any]) -> bool:
    """Return whether a row says that it is of a test split."""
    return "test" in (row.get("split"), extra_info_of(row).get("split"))


def message_of_test_file(path: Path, rows_say_test: bool) -> str:
    """Return a warning about a train file with rows of a test split, or whose path names a set for testing, such as aime_2024."""
    by_name = _TEST_NAME.search(path.name) or any(map(_TEST_SET.search, path.absolute().parts[-4:]))
    if not by_name and not rows_say_test:
        return ""
    reason = "its name is that of a test file" if by_name else "its rows say split: test"
    return f"used for training, but {reason}; make sure that no test uses it"


def _malformed(where: str, number: int, reason: str) -> ValueError:
    return ValueError(f"{where}, row {number}: {reason}; correct the row in a copy of the source, or remove the row")


def data_entries(paths: Iterable[Path]) -> list[Path]:
    """Return the data files among the entries of a directory. Raises a ForeignFileError for one that may not be read."""
    return [path for path in paths if _is_data(path) and is_entry(path)]


def _is_data(path: Path) -> bool:
    return path.name.endswith(FILE_TYPES) and not path.name.startswith(".") and path.name not in _DESCRIPTIONS


def _numbered_rows(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".parquet":
        return enumerate(read_rows(path, columns=None), start=1)
    if path.suffix == ".arrow":
        return enumerate(_arrow_rows(path), start=1)
    if path.suffix == ".json":
        rows = json.loads(read_foreign(real_path(path), JSON_LIMIT).strip() or b"[]")
        if not isinstance(rows, list):
            raise ValueError(f"{path} holds a {type(rows).__name__}; expected a list of rows")
        return enumerate(rows, start=1)
    return json_lines(path)


def _arrow_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow file that `datasets` wrote."""
    import datasets

    try:
        open_foreign(real_path(path)).close()
        yield from datasets.Dataset.from_file(str(path))
    except Exception as error:  # pyarrow and the file system raise several types
        raise ValueError(f"{path} is not a readable Arrow file ({first_line(error)}); get the file again") from error
