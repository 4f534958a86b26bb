"""Write a train file without its contaminated rows, and a manifest that says which rows were dropped and why."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo import __version__
from verl_trgrpo.data.checks.files import UnreadableError, read_rows
from verl_trgrpo.data.contamination import Contamination, ContaminationOptions
from verl_trgrpo.data.parquet import file_sha256
from verl_trgrpo.data.show import escape
from verl_trgrpo.data.staging import flush

_BATCH = 1000
_SHOWN = 10


def manifest_path(out: Path) -> Path:
    """Return where the manifest of `out` goes: ``NAME.manifest.json`` beside ``NAME.parquet``."""
    return out.with_name(out.stem + ".manifest.json")


def check_output(out: Path, options: ContaminationOptions, force: bool = False) -> None:
    """Raise ValueError where `out` is one of the inputs, is no parquet name, or has a file that is not from here."""
    if out.suffix != ".parquet":
        raise ValueError(f"out is {out}; veRL tells files by their ending, name it .parquet")
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"out is {out}; choose a file in a directory that exists")
    if out.resolve() in [path.resolve() for path in (options.train, *options.tests)]:
        raise ValueError(f"out is {out}, one of the inputs; choose another name")
    if out.exists() and not force and not _is_own(out):
        raise ValueError(f"{out} exists and has no manifest from here; choose another name, or replace it with --force")


def write_clean(found: Contamination, options: ContaminationOptions, out: Path, force: bool = False) -> dict[str, Any]:
    """Write the train file's other rows to `out`, with its schema, and return the manifest written beside it.

    `extra_info.index` is numbered anew if it was the position of every row, as in the files of this project's builders;
    else it stays as it is. Whatever stops the process, `out` is the old file or the whole new one, and a manifest is
    there only with the file it describes.

    Raises ValueError like `check_output`, when no row would be left, or when `out` cannot be written.
    """
    check_output(out, options, force)
    if len(found.matches) == found.train_rows:
        raise ValueError(f"all {found.train_rows} rows of {options.train} are contaminated; nothing would be left")
    manifest = {
        "package_version": __version__,
        "train": _input(options.train),
        "against": [_input(path) for path in options.tests],
        "parameters": {"ngram": options.ngram, "threshold": options.threshold},
        "rows_read": found.train_rows,
        "rows_kept": found.train_rows - len(found.matches),
        "rows_in_train": dict(found.test_rows_hit),
        "dropped": [asdict(match) for match in found.matches],
    }
    created: list[Path] = []
    try:
        data, text = _temporary(out, created), _temporary(manifest_path(out), created)
        renumber = _index_is_position(options.train)
        _write_rows(options.train, data, {match.train_row for match in found.matches}, renumber)
        manifest |= {"index": "renumbered" if renumber else "kept", "output": {out.name: file_sha256(data)}}
        text.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for path in (data, text):
            flush(path)
        # A stop between these steps leaves data without a manifest, never a manifest of other data.
        manifest_path(out).unlink(missing_ok=True)
        data.replace(out)
        text.replace(manifest_path(out))
        flush(out.parent)
    except OSError as error:
        raise ValueError(
            f"cannot write {out} ({error.strerror or error}); choose a directory that is writable"
        ) from error
    finally:
        for path in created:
            path.unlink(missing_ok=True)
    return manifest


def render(found: Contamination, out: Path | None) -> str:
    """Return the result as text for a terminal."""
    reasons = {reason: sum(m.reason == reason for m in found.matches) for reason in _reasons(found)}
    shown = "".join(f"; {count} {reason}" for reason, count in reasons.items())
    lines = [f"{len(found.matches)} of {found.train_rows} train rows are contaminated{shown}"]
    for name, rows in found.test_rows.items():
        lines.append(f"  {name}: {found.test_rows_hit[name]} of {rows} rows are in the train file")
    for match in found.matches[:_SHOWN]:
        share = f" {match.share:.2f}" if match.share < 1 else ""
        lines.append(f"  train row {match.train_row}: {match.reason}{share}, {match.test_file} row {match.test_row}")
    if len(found.matches) > _SHOWN:
        lines.append(f"  and {len(found.matches) - _SHOWN} more (--json, or the manifest, has all)")
    if out is not None:
        lines.append(f"{out}: {found.train_rows - len(found.matches)} rows; dropped rows are in {manifest_path(out)}")
    elif found.matches:
        lines.append("nothing was written; --out CLEAN.parquet writes the other rows")
    return "".join(f"{escape(line)}\n" for line in lines)


def _reasons(found: Contamination) -> list[str]:
    return sorted({match.reason for match in found.matches})


def _input(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": file_sha256(path)}


def _is_own(out: Path) -> bool:
    try:
        manifest = json.loads(manifest_path(out).read_text(encoding="utf-8"))
        return manifest["output"][out.name] == file_sha256(out)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _index_is_position(path: Path) -> bool:
    try:
        rows = read_rows(path, ["extra_info.index"])
        return all(_index_of(row) == position for position, row in enumerate(rows))
    except UnreadableError as error:
        raise ValueError(f"{path}: {error}") from error


def _index_of(row: dict[str, Any]) -> Any:
    extra_info = row.get("extra_info")
    return extra_info.get("index") if isinstance(extra_info, dict) else None


def _write_rows(source: Path, target: Path, dropped: set[int], renumber: bool) -> None:
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow, compression="snappy") as writer:
        position = 0
        for batch in _kept(file, dropped):
            if renumber:
                batch = _renumbered(batch, position)
            position += batch.num_rows
            writer.write_batch(batch)


def _kept(file: pq.ParquetFile, dropped: set[int]) -> Iterator[pa.RecordBatch]:
    position = 0
    for batch in file.iter_batches(batch_size=_BATCH):
        mask = pa.array([position + i not in dropped for i in range(batch.num_rows)], pa.bool_())
        position += batch.num_rows
        yield batch.filter(mask)


def _renumbered(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    number = batch.schema.get_field_index("extra_info")
    column = batch.column(number)
    kind = column.type.field("index").type
    index = pa.array(range(start, start + batch.num_rows), pa.int64()).cast(kind)
    names = [field.name for field in column.type]
    arrays = [index if name == "index" else column.field(name) for name in names]
    replaced = pa.StructArray.from_arrays(arrays, fields=list(column.type))
    columns = [replaced if i == number else batch.column(i) for i in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _temporary(path: Path, created: list[Path]) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".writing", dir=path.parent)
    os.close(descriptor)
    created.append(Path(name))
    created[-1].chmod(0o644)
    return created[-1]
