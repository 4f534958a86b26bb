"""The door to public data files: which of a directory are read, their rows with their origin, and what is left out.

Whatever a builder does not use is in its manifest: files and columns that it does not read, and rows that became none. What
the user may not expect is a warning, too.
"""

import logging
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from verl_trgrpo.common.files import json_lines, not_there
from verl_trgrpo.common.foreign import (
    JSON_LIMIT,
    NotJSONError,
    is_entry,
    open_foreign,
    parse_json,
    read_foreign,
    real_path,
)
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.rows import REQUIRED_COLUMNS, extra_info_of, ground_truth_of
from verl_trgrpo.data.verl_files import read_rows

FILE_TYPES = (".jsonl", ".jsonl.gz", ".json", ".parquet", ".arrow")

# What stands beside the rows of public data and has none: descriptions, and the blobs of the hub's cache.
_NO_DATA = re.compile(
    r"(dataset_info|state|dataset_dict)\.json|(readme|licen[cs]e|citation|copying|notice)(\..*)?|.*\.(md|lock|py|bib)",
    re.I,
)
_NO_DIRECTORIES = ("blobs", "refs", "__pycache__")
# How deep files are looked for: a snapshot in the hub's cache is four directories below the cache.
_DEPTH = 6

# Columns that tell about a row and are part of neither question nor answer.
DESCRIPTIVE = frozenset((
    "id", "idx", "index", "number", "no", "uid", "uuid", "uniqueid", "questionid", "problemid", "exampleid", "year", "date",
    "url", "link", "source", "sources", "datasource", "dataset", "origin", "license", "author", "level", "difficulty",
    "grade", "subject", "subfield", "topic", "category", "domain", "type", "problemtype", "questiontype", "answertype",
    "language", "split", "metadata", "meta", "extrainfo", "tags", "solution", "solutions", "rationale", "explanation",
    "cot", "reasoning", "equation", "generatedsolution",
))  # fmt: skip
"""In the spelling of `plain_name`; other columns that a builder does not read are a warning."""

# Columns with a problem and with its answer in any spelling, in the order in which they are looked for; docs/data.md lists them.
PROBLEM_COLUMNS = ("problem", "question", "prompt", "content", "input", "query", "messages")
ANSWER_COLUMNS = ("answer", "final_answer", "expected_answer", "ground_truth", "target", "correct", "label")

_TEST_NAME = re.compile(r"(?<![a-z])(test|heldout|held_out|eval)(?![a-z])", re.IGNORECASE)
# Sets that are for testing whatever the split is called, by the names of files and of directories that hold them.
_TEST_SET = re.compile(
    r"(?<![a-z])(aime|aimo|amc|math[-_]?500|minerva(math)?|olympiad_?(bench)?|hmmt|gpqa)(?![a-z])", re.IGNORECASE
)

# Reasons for leaving out files and rows, in the manifest.
NOT_ASKED_FOR = "not asked for"
"""Why a file or row is left out of which the options say so."""
NOT_DRAWN = "not drawn for the limit"
UNUSABLE = "the row cannot be used"

_MOST_SHOWN = 5

_Item = TypeVar("_Item")

logger = logging.getLogger(__name__)


def counts(kept: int, dropped: Mapping[str, int]) -> dict[str, Any]:
    """Return how many rows of a source were read and kept, and how many were dropped for which reason."""
    reasons = {reason: number for reason, number in dropped.items() if number}
    return {"read": kept + sum(reasons.values()), "kept": kept, "dropped": reasons}


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


def plain_name(name: str) -> str:
    """Return a name as names are compared: regardless of case, spaces, hyphens, underscores and dots."""
    return re.sub(r"[\s_.-]", "", name).casefold()


def stem_of(file: Path) -> str:
    """Return the name of a data file without its ending; "" if it has none of the `FILE_TYPES`."""
    return next((file.name[: -len(end)] for end in FILE_TYPES if file.name.lower().endswith(end)), "")


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source by the part of the data set that they hold, and the reasons for leaving out others."""

    source: Path
    parts: dict[str, list[Path]]
    left_out: dict[str, str] = field(default_factory=dict)

    def single(self) -> dict[str, Path]:
        """Return the only file of each part. Raises a ValueError if one has two."""
        for part, (one, *others) in self.parts.items():
            if others:
                raise ValueError(f"{one} and {others[0]} are both {part}; keep one of the two")
        return {part: files[0] for part, files in self.parts.items()}

    def unused(self, used: Iterable[Path]) -> dict[str, str]:
        """Return the reasons for leaving out files by their place in the source, if those `used` are read."""
        used = {*used}
        others = [file for files in self.parts.values() for file in files if file not in used]
        return self.left_out | {str(file.relative_to(self.source)): NOT_ASKED_FOR for file in others}


def find_source_files(source: Path, out: Path, part_of: Callable[[Path], str], expected: str) -> SourceFiles:
    """Return the data files of a directory or the one that `source` is, by part, and those of none.

    Args:
        source: a file, or a directory, which is searched with those below it.
        out: directory of the data set to build, of which nothing is read.
        part_of: returns the part of a file, given by its path in the directory, or "" if it belongs to none.
        expected: the names that files may have, for messages.

    Raises:
        ValueError: there is no file of any part, or the source is of an unknown type.
        ForeignFileError: a file may not be read.
    """
    if not source.exists():
        raise ValueError(not_there(source))
    if source.is_file() and not stem_of(source):
        raise ValueError(
            f"{source} has an unknown type; expected a file that ends with {', '.join(FILE_TYPES)}; convert others "
            "with pandas, such as pandas.read_csv(NAME).to_parquet(NEW_NAME)"
        )
    parts: dict[str, list[Path]] = {}
    left_out: dict[str, str] = {}
    for file in [source] if source.is_file() else _files_below(source, out):
        shown = file.name if source.is_file() else str(file.relative_to(source))
        readable = stem_of(file) and (source.is_file() or is_entry(file))
        if part := part_of(Path(shown)) if readable else "":
            parts.setdefault(part, []).append(file)
        else:
            left_out[shown] = "belongs to no part of the data set" if stem_of(file) else "of a type that is not read"
    if not parts:
        found = f"; found {', '.join([*left_out][:5])}" if left_out else ""
        raise ValueError(f"{source} has no data files of the data set{found}; expected {expected}")
    return SourceFiles(source, parts, left_out)


def _files_below(directory: Path, out: Path) -> Iterator[Path]:
    """Yield the files in a directory and below it, in order, without hidden ones, descriptions and those of `out`."""
    for here, below, names in os.walk(directory):
        place = Path(here)
        deep = len(place.relative_to(directory).parts) >= _DEPTH
        kept = [name for name in below if not name.startswith(".") and name not in _NO_DIRECTORIES and not deep]
        below[:] = sorted(name for name in kept if (place / name).resolve() != out.resolve())
        for name in sorted(names):
            if not name.startswith(".") and not _NO_DATA.fullmatch(name):
                yield place / name


def read_records(path: Path, where: str = "") -> Iterator[Record]:
    """Yield the rows of one file, with `where` (default: its name) as their source.

    Raises:
        ValueError: a row is not an object, or the file cannot be read.
    """
    where = where or path.name
    try:
        for number, row in _numbered_rows(path):
            if not isinstance(row, Mapping):
                raise ValueError(f"{where}, row {number}: it is of type {type(row).__name__}; expected an object")
            yield Record(row, where, number)
    except (OSError, NotJSONError) as error:
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


class LeftOutRowError(ValueError):
    """A row is left out of the data set, as public data have them; the message is the reason that the manifest counts."""


class _Columns(Mapping[str, Any]):
    """A row whose columns are found in any spelling of `plain_name`; it notes in `asked` those that are asked for."""

    def __init__(self, row: Mapping[str, Any], asked: set[str]) -> None:
        self._row, self._asked = row, asked
        self._names: dict[str, Any] = {}
        for name in row:
            other = self._names.setdefault(plain_name(str(name)), name)
            if other != name and not is_empty(row[name]):
                if not is_empty(row[other]):
                    raise ValueError(
                        f"the columns {other} and {name} have one name in two spellings; rename one of the two"
                    )
                self._names[plain_name(str(name))] = name

    def __getitem__(self, name: str) -> Any:
        self._asked.add(name := plain_name(name))
        return self._row[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return map(str, self._row)

    def __len__(self) -> int:
        return len(self._row)


@dataclass(frozen=True)
class Parsed(Generic[_Item]):
    """What became of the rows of a source.

    Args:
        items: what `parse` made, in order.
        dropped: by reason, the origins of the rows that became none.
        unread: columns with values that no row was asked for.
        missed: those of `unread` that do not describe a row.
    """

    items: list[_Item]
    dropped: dict[str, list[str]]
    unread: list[str]
    missed: list[str] = field(default_factory=list)

    def counts(self, kept: int, dropped: Mapping[str, int]) -> dict[str, Any]:
        """Return the counts of the manifest; `dropped` are rows that were left out after they had been parsed."""
        rows = {reason: len(origins) for reason, origins in self.dropped.items()}
        found = counts(kept, {**dropped, **rows})
        unusable = self.dropped.get(UNUSABLE)
        found |= {"rows_not_used": unusable} if unusable else {}
        return found | ({"columns_not_read": self.unread} if self.unread else {})


def parse_records(
    records: Iterable[Record], parse: Callable[[Record], _Item], unneeded: Iterable[str] = ()
) -> Parsed[_Item]:
    """Return ``parse(record)`` for each record. A row for which it raises a ValueError is left out, with a warning.

    Args:
        records: rows of one or more files.
        parse: it gets rows whose columns are found in any spelling of `plain_name`.
        unneeded: columns that are left out of the rows, beside `DESCRIPTIVE`; others that `parse` does not ask for are a warning.

    Raises:
        ValueError: none of the rows of a file can be used; the message has the reason of the first.
    """
    items: list[_Item] = []
    dropped: dict[str, list[str]] = {}
    asked: set[str] = set()
    filled: dict[str, str] = {}  # columns with values: their spelling by plain name
    files: dict[str, list[str]] = {}  # what is wrong with rows, by the files that they are from
    good: set[str] = set()
    built: set[str] = set()  # files with rows in veRL's form
    unusable: list[str] = []
    for record in records:
        wrong = files.setdefault(record.where, [])
        if {*REQUIRED_COLUMNS} <= {*record.row} and ground_truth_of(record.row) is not None:
            built.add(record.where)
        filled |= {plain_name(str(name)): str(name) for name, value in record.row.items() if not is_empty(value)}
        try:
            items.append(parse(Record(_Columns(record.row, asked), record.where, record.number)))
            good.add(record.where)
        except ValueError as error:
            expected = isinstance(error, LeftOutRowError)
            dropped.setdefault(str(error) if expected else UNUSABLE, []).append(record.origin)
            wrong.append(f"{record.where}, row {record.number}: {error}")
            if not expected:
                unusable.append(wrong[-1])
    for where, wrong in files.items():
        if where not in good and where in built:
            raise ValueError(
                f"{where} has veRL's columns ({', '.join(REQUIRED_COLUMNS)}) already, so there is nothing to build; check the "
                "file with `verl-trgrpo data check --train FILE`, and name this file in data.train_files"
            )
        if where not in good:
            raise ValueError(
                f"{wrong[0]}; no row of {where} ({len(wrong)}) can be used; correct the rows in a copy of the source, or "
                "remove the file"
            )
    for problem in unusable[:_MOST_SHOWN]:  # of files with other rows: one that has none has one message
        logger.warning("%s; the row is left out, correct the row in a copy of the source", problem)
    if (more := len(unusable) - _MOST_SHOWN) > 0:
        logger.warning("%d more rows are left out; the manifest names them", more)
    unread = {name: shown for name, shown in filled.items() if name not in asked}
    if missed := [shown for name, shown in unread.items() if name not in DESCRIPTIVE.union(map(plain_name, unneeded))]:
        names = ", ".join(files), ", ".join(missed)
        logger.warning("%s: columns that are not read: %s; make sure that the prompts do not need them", *names)
    return Parsed(items, dropped, [*unread.values()], missed)


def is_empty(value: Any) -> bool:
    """Return whether a value of a row says nothing: null, blank, or a list or mapping of such values."""
    if isinstance(value, (list, tuple, Mapping)):
        return all(map(is_empty, value.values() if isinstance(value, Mapping) else value))
    return value is None or (isinstance(value, str) and not value.strip())


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


def has_test_name(path: Path) -> bool:
    """Return whether a file is for testing by its name, such as my_test.jsonl."""
    return bool(_TEST_NAME.search(path.name))


def message_of_test_file(path: Path | None, rows_say_test: bool) -> str:
    """Return a warning about a train file with rows of a test split, or whose path names a set for testing, such as aime_2024."""
    by_name = path and (has_test_name(path) or any(map(_TEST_SET.search, path.absolute().parts[-4:])))
    if not by_name and not rows_say_test:
        return ""
    reason = "its name is that of a test file" if by_name else "its rows say split: test"
    return f"used for training, but {reason}; make sure that no test uses it"


def _numbered_rows(path: Path) -> Iterator[tuple[int, Any]]:
    kind = path.suffix.lower()
    if kind == ".parquet":
        return enumerate(read_rows(path, columns=None), start=1)
    if kind == ".arrow":
        return enumerate(_arrow_rows(path), start=1)
    if kind == ".json":
        rows = parse_json(read_foreign(real_path(path), JSON_LIMIT).strip() or b"[]")
        if not isinstance(rows, list):
            raise ValueError(f"{path} holds a {type(rows).__name__}; expected a list of rows")
        return enumerate(rows, start=1)
    return json_lines(path)


def _arrow_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow file that `datasets` wrote, of which each batch is checked before a value is read."""
    import pyarrow as pa

    try:
        with open_foreign(real_path(path)) as opened, pa.ipc.open_stream(opened) as batches:
            for batch in batches:
                batch.validate(full=True)  # offsets that lead outside would end the process
                yield from batch.to_pylist()
    except Exception as error:  # pyarrow and the file system raise several types
        raise ValueError(f"{path} is not a readable Arrow file ({first_line(error)}); get the file again") from error
