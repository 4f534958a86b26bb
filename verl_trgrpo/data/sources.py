"""Rows of other people's files, one by one, each with the place it comes from, and how builders draw from them."""

import gzip
import hashlib
import json
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verl_trgrpo.common.problems import first_line
from verl_trgrpo.data.parquet import UnreadableError, file_sha256, read_rows, read_schema

FILE_TYPES = (".jsonl", ".jsonl.gz", ".json", ".parquet")

MAX_REPORTED = 5

# Why rows are left out, in the manifest.
MALFORMED = "malformed"
NOT_DRAWN = "not drawn for the limit"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Record:
    """One row as it stands in its source, the source's short name and the row's number in it.

    Rows count from 1. In ``.jsonl`` files the number is that of the line, empty lines counted.
    """

    row: Mapping[str, Any]
    where: str
    number: int

    @property
    def origin(self) -> str:
        """Return ``where#number``, which `extra_info` keeps."""
        return f"{self.where}#{self.number}"


class RowErrors:
    """What happens to malformed rows: they stop the build, or they are skipped and counted.

    `add` notes one. If rows are not skipped, `add` raises ValueError as soon as enough are known to show, and `finish`
    raises if there are any, so that a user sees the first few at once.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.problems: list[str] = []

    def add(self, where: str, number: int, reason: str) -> None:
        """Note that row `number` of `where` is malformed."""
        self.problems.append(f"{where}, row {number}: {reason}")
        if not self.skip and len(self.problems) > MAX_REPORTED:
            self.finish()

    def finish(self) -> None:
        """Raise ValueError for the rows noted, unless they are to be skipped."""
        if self.problems and not self.skip:
            shown = self.problems[:MAX_REPORTED]
            rest = "\n- there may be more" if len(self.problems) > MAX_REPORTED else ""
            raise ValueError(
                "malformed rows; correct them, or skip them with --on-error skip:\n- " + "\n- ".join(shown) + rest
            )


def find_files(path: Path) -> list[Path]:
    """Return `path` if it is a file, or the data files of that directory, in order of their names.

    Raises ValueError where there is none or the type is unknown.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and _is_data(file))
        if not files:
            raise ValueError(f"{path} has no data files; expected some that end with {', '.join(FILE_TYPES)}")
        return files
    if not path.is_file():
        raise ValueError(f"{path} does not exist; check the path")
    if not _is_data(path):
        raise ValueError(f"{path} is of an unknown type; expected a file that ends with {', '.join(FILE_TYPES)}")
    return [path]


def find_file(directory: Path, names: Iterable[str]) -> Path | None:
    """Return the data file in `directory` with one of `names` as its name without the type, or None.

    Raises ValueError where several fit.
    """
    wanted = {name + file_type for name in names for file_type in FILE_TYPES}
    found = [file for file in find_files(directory) if file.name in wanted]
    if len(found) > 1:
        raise ValueError(f"{directory} has {', '.join(file.name for file in found)}; keep one of them")
    return found[0] if found else None


def read_records(path: Path, errors: RowErrors) -> Iterator[Record]:
    """Yield the rows of one file; rows that are no JSON object go to `errors`.

    Raises ValueError where the file as a whole cannot be read.
    """
    try:
        for number, row in _numbered_rows(path, errors):
            if isinstance(row, Mapping):
                yield Record(row, path.name, number)
            else:
                errors.add(path.name, number, f"it is of type {type(row).__name__}; expected an object")
    except (OSError, EOFError, zlib.error, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"cannot read {path} ({error}); check the path, or get it again") from error


def draw(items: Sequence[Item], count: int | None, seed: str) -> list[Item]:
    """Return `count` of the items, drawn with `seed`, in their order; all where `count` is None or there are no more."""
    if count is None or count >= len(items):
        return list(items)
    positions = random.Random(seed).sample(range(len(items)), count)
    return [items[position] for position in sorted(positions)]


def hub_copy(dataset: str) -> Path | None:
    """Return the full path of a local copy of a hub repository, or None where `dataset` is a name on the hub."""
    path = Path(dataset)
    return path.resolve() if path.is_dir() else None


def hub_name(dataset: str) -> str:
    """Return the name on the hub, or the name of the directory with a copy: data must not depend on where it lies."""
    copy = hub_copy(dataset)
    return copy.name if copy else dataset


def load_hub(
    dataset: str,
    revision: str,
    split: str,
    configuration: str | None = None,
    data_files: Mapping[str, str] | None = None,
) -> Iterator[Record]:
    """Load one split of a data set on the Hugging Face hub, or of a local copy of its repository; return its rows.

    The hub's files are cached where the `datasets` library keeps them (HF_HOME). Rows are from
    ``name/configuration/split``, see `hub_name`.

    Raises ValueError where it cannot be loaded, offline for example.
    """
    copy = hub_copy(dataset)
    where = "/".join(part for part in (hub_name(dataset), configuration, split) if part)
    try:
        import datasets  # slow import, needed here only

        # For a directory the rows have to be made again: the library does not notice that a local file has changed.
        mode = "reuse_cache_if_exists" if copy else None
        rows = datasets.load_dataset(
            str(copy or dataset),
            configuration,
            split=split,
            revision=revision,
            data_files=data_files,
            download_mode=mode,
        )
    except Exception as error:  # the hub's client and the network beneath it raise many unrelated types
        raise ValueError(
            f"could not load {where} at revision {revision!r} ({first_line(error)}); check the network and the name, or "
            "copy the repository to a directory and name that directory as the source"
        ) from error
    return (Record(row, where, number) for number, row in enumerate(rows, start=1))


def visible_files(directory: Path) -> list[Path]:
    """Return all files below `directory` in order of their names, without hidden ones such as those in ``.git``."""
    found = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(directory).parts)]


def directory_sha256(directory: Path) -> str:
    """Return one sha256, in hexadecimal, of the names and contents of all `visible_files`."""
    digest = hashlib.sha256()
    for file in visible_files(directory):
        digest.update(f"{file.relative_to(directory).as_posix()} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _is_data(path: Path) -> bool:
    return path.name.endswith(FILE_TYPES) and not path.name.startswith(".")


def _numbered_rows(path: Path, errors: RowErrors) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".parquet":
        return enumerate(read_rows(path, read_schema(path)[0].names), start=1)
    if path.suffix == ".json":
        return enumerate(_read_json(path), start=1)
    return _read_json_lines(path, errors)


def _read_json(path: Path) -> list[Any]:
    rows = json.loads(path.read_bytes().strip() or b"[]")
    if not isinstance(rows, list):
        raise UnreadableError(f"{path} holds a {type(rows).__name__}; expected a list of rows")
    return rows


def _read_json_lines(path: Path, errors: RowErrors) -> Iterator[tuple[int, Any]]:
    # As bytes: only "\n" ends a line, while text files break at other characters that JSON allows in a text.
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    errors.add(path.name, number, f"it is not JSON ({error})")
                else:
                    yield number, row
