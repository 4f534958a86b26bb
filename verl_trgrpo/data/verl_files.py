"""Read data files, and open them as veRL's `RLHFDataset` does through the library `datasets`."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.foreign import JSON_LIMIT, lines_of, open_foreign, parse_json, read_foreign, real_path
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.rows import COLUMNS, UnreadableFileError, check_fetched, naming_damage, path_problem, read_schema

if TYPE_CHECKING:  # these imports take a second
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000

# Far more than data have; pyarrow's reader takes the stack for each level and crashes at some thousands.
_MAX_DEPTH = 500
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_KINDS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}


def matching_files(name: str) -> list[str]:
    """Return the files that a pattern matches, as `datasets` expands what veRL hands to it; any other name, or none, as it is."""
    local = "://" not in name and glob.has_magic(name) and not Path(name).expanduser().exists()
    # Unlike Path.glob, this leaves out hidden files, as `datasets` does
    found = sorted(glob.glob(str(Path(name).expanduser()), recursive=True)) if local else []  # noqa: PTH207
    return found or [name]


def data_paths(names: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the files of names of data files, all matches of a pattern, as in ``data.train_files``."""
    return tuple(Path(each).expanduser() for name in names for each in matching_files(str(name)))


@dataclass(frozen=True)
class DataFile:
    """A data file that veRL can open: its columns as `datasets` casts them, its number of rows, and the rows if it is JSON."""

    path: Path
    schema: pa.Schema
    rows: int
    content: pa.Table | None = None

    def tables(self, columns: Iterable[str]) -> Iterator[pa.Table]:
        """Yield the rows in parts with those of the columns that it has. Raises an UnreadableFileError if the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [name for name in dict.fromkeys(columns) if name in self.schema.names]
        if self.content is not None:
            yield self.content.select(names)
            return
        with naming_damage(self.path), open_foreign(real_path(self.path)) as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=names):
                yield pa.Table.from_batches([batch])

    def read(self, columns: Iterable[str], prompt_key: str = "prompt") -> Iterator[dict[str, Any]]:
        """Yield the rows one by one, with the column `prompt_key` under the name prompt; raises as `tables`."""
        with naming_damage(self.path):
            for part in self.tables([prompt_key if column == "prompt" else column for column in columns]):
                for row in part.to_pylist():
                    yield row if prompt_key == "prompt" else {**row, "prompt": row.get(prompt_key)}

    def sample(self, columns: Iterable[str], most: int) -> dict[int, dict[str, Any]]:
        """Return rows by number, at most `most`, evenly spread; raises as `tables`."""
        wanted = spread(self.rows, most)
        rows: dict[int, dict[str, Any]] = {}
        start = 0
        for part in self.tables(columns):
            here = [number for number in wanted if start <= number < start + part.num_rows]
            taken = part.take([number - start for number in here]).to_pylist() if here else []
            rows.update(zip(here, taken, strict=True))
            start += part.num_rows
        return rows


def spread(total: int, most: int) -> list[int]:
    """Return at most `most` numbers below `total`, evenly spread, with the first and the last."""
    count = min(total, most)
    return [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]


def read_rows(
    path: Path, columns: Iterable[str] | None = COLUMNS, prompt_key: str = "prompt"
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet, JSON or JSON Lines file as `DataFile.read` does; columns None for all. Nothing is checked.

    Raises:
        UnreadableFileError: the file does not exist, is of another kind, or is damaged.
    """
    file = open_as_verl(path) if _KINDS.get(path.suffix) == "json" else DataFile(path, *read_schema(path))
    if twice := [name for name, count in Counter(file.schema.names).items() if count > 1]:
        raise UnreadableFileError(f"{path} has several columns named {', '.join(twice)}; rename all but one")
    yield from file.read(file.schema.names if columns is None else columns, prompt_key)


def open_as_verl(path: Path) -> DataFile:
    """Open a Parquet, JSON or JSON Lines file as veRL does.

    Raises:
        UnreadableFileError: veRL would not open it, or would open other files.
    """
    kind = next((kind for ending, kind in _KINDS.items() if str(path).endswith(ending)), None)
    if kind is None:
        raise UnreadableFileError(
            f"{path} does not end in {', '.join(_KINDS)}, which veRL requires; convert or rename the file"
        )
    if problem := path_problem(path):
        raise UnreadableFileError(problem)
    import datasets  # takes a second

    _check_pattern(path)
    if kind == "json":
        return _open_json(path)
    schema, rows = read_schema(path)
    try:
        features = datasets.Features.from_arrow_schema(schema)
    except Exception as error:  # a feature that this version of datasets does not know, or an unusual type
        raise UnreadableFileError(
            f"{path} cannot be opened with datasets {datasets.__version__}, as veRL does ({first_line(error)}); write the "
            "file again without the metadata of Hugging Face, or install the version that wrote it"
        ) from error
    return DataFile(path, features.arrow_schema, rows)


def _check_pattern(path: Path) -> None:
    """Check that `datasets`, which takes a path for a pattern, finds this file and no other."""
    from datasets.data_files import DataFilesDict, sanitize_patterns

    try:
        found = DataFilesDict.from_patterns(sanitize_patterns(str(path)), base_path=str(Path.cwd()))["train"]
    except (FileNotFoundError, KeyError):
        found = []
    if len(found) != 1 or not Path(found[0]).exists() or not path.samefile(found[0]):
        names = ", ".join(Path(name).name for name in found[:3]) or "no file"
        raise UnreadableFileError(
            f"veRL reads the name {path} as a pattern, and would open {names}; rename the file without []*?"
        )


def _open_json(path: Path) -> DataFile:
    import pyarrow as pa
    from datasets.io.json import JsonDatasetReader

    check_fetched(path)
    check_json_depth(path)
    with open_foreign(real_path(path)) as file:
        is_list = file.read(4096).lstrip().startswith(b"[")
    try:
        if is_list:  # whose reader takes the last of a key that stands twice; that of lines refuses both
            parse_json(read_foreign(real_path(path), JSON_LIMIT))
        rows = JsonDatasetReader(str(path), streaming=True).read().with_format("arrow")
        parts = list(rows.iter(_ROWS_AT_ONCE))
        content = pa.concat_tables(parts) if parts else pa.table({})
    except Exception as error:  # the reader raises many types
        raise UnreadableFileError(
            f"{path} is not a JSON file that veRL reads ({first_line(error)}); check its lines"
        ) from error
    return DataFile(path, content.schema, content.num_rows, content)


def check_json_depth(path: Path) -> None:
    """Raise an UnreadableFileError for a JSON file that is nested so deeply that its reader would end the process."""
    with open_foreign(real_path(path), JSON_LIMIT) as file:
        depth = 0
        for number, line in enumerate(lines_of(file, path, JSON_LIMIT), start=1):
            if path.suffix == ".jsonl":
                depth = 0  # each line stands for itself
                if line.count(b"[") + line.count(b"{") <= _MAX_DEPTH:
                    continue
            for bracket in _JSON_STRING.sub(b"", line).translate(None, _NO_BRACKETS):
                depth += 1 if bracket in b"[{" else -1
                if depth > _MAX_DEPTH:
                    raise UnreadableFileError(
                        f"{path}, line {number}: values are nested more than {_MAX_DEPTH} deep; correct or remove the line"
                    )
