"""Data sets on disk: parquet files, written deterministically and read row by row, and the manifest beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.common.files import file_sha256
from verl_trgrpo.common.text import first_line

MANIFEST = "manifest.json"

# What veRL and the rewards read; other columns, images for example, are left where they are.
COLUMNS = ("data_source", "prompt", "reward_model", "extra_info")


class UnreadableError(ValueError):
    """A file is no parquet file, or damaged."""


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write `rows` to `path`; equal rows give equal bytes under one version of pyarrow."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="snappy")


def read_schema(path: Path) -> tuple[pa.Schema, int]:
    """Return the Arrow schema of a parquet file and its number of rows. Raises UnreadableError."""
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(f"{path} is not a readable parquet file ({first_line(error)}); check the path") from error


def read_rows(path: Path, columns: Iterable[str] = COLUMNS) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file with those of `columns` that it has, a little at a time. Raises UnreadableError."""
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=1000, columns=present):
                yield from batch.to_pylist()
    except FileNotFoundError as error:
        raise UnreadableError(f"{path} does not exist; check the path") from error
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UnreadableError(f"{path} is damaged ({first_line(error)}); get it again") from error


def display_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the shortest names that tell the files apart: the file names, or the paths as given."""
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}


def ground_truth_of(row: Mapping[str, Any]) -> Any:
    """Return a row's ground truth, None where there is none."""
    reward_model = row.get("reward_model")
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def extra_info_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row's extra_info, empty where it has none."""
    extra_info = row.get("extra_info")
    return extra_info if isinstance(extra_info, Mapping) else {}


def is_intact(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether every file that `manifest` lists is in `directory` with the recorded sha256."""
    files = {directory / name: facts["sha256"] for name, facts in manifest["files"].items()}
    return all(path.is_file() and file_sha256(path) == digest for path, digest in files.items())
