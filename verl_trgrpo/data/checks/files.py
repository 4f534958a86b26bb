"""Whole files: reading them, the types of their columns, and whether veRL can concatenate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.data.checks.findings import ERROR, WARNING, Findings

# Other columns, images for example, are not read.
COLUMNS = ("data_source", "prompt", "reward_model", "extra_info")

_BATCH = 1000


class UnreadableError(ValueError):
    """A file is no parquet file, or damaged."""


def read_schema(path: Path) -> tuple[pa.Schema, int]:
    """Return the Arrow schema of a parquet file and its number of rows.

    Raises UnreadableError where it cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(f"it is not a readable parquet file ({first_line(error)}); check the path") from error


def read_rows(path: Path, columns: Iterable[str] = COLUMNS) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file with those of `columns` that it has, a little at a time.

    Raises UnreadableError where the file is damaged.
    """
    try:
        with pq.ParquetFile(path) as file:
            present = [name for name in columns if name.split(".")[0] in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=_BATCH, columns=present):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UnreadableError(f"it is damaged ({first_line(error)}); get it again") from error


def check_columns(name: str, schema: pa.Schema, findings: Findings) -> None:
    """Note which columns veRL or the rewards would stumble over."""

    def problem(severity: str, text: str) -> None:
        findings.add("columns", severity, name, text)

    findings.ran("columns")
    twice = sorted({column for column in schema.names if schema.names.count(column) > 1})
    if twice:
        problem(ERROR, f"several columns are called {', '.join(twice)}; rename them")
        return
    types = {column: schema.field(column).type for column in schema.names}
    missing = [column for column in ("data_source", "prompt", "reward_model") if column not in types]
    if missing:
        problem(ERROR, f"it has no {', '.join(missing)}; it has {', '.join(types) or 'no columns'}")
    if "data_source" in types and not _is_text(types["data_source"]):
        problem(ERROR, f"data_source is {types['data_source']}; it must be a string")
    if "prompt" in types and not _is_chat(types["prompt"]):
        problem(ERROR, f"prompt is {types['prompt']}; it must be a list of structs with the strings role and content")
    if "reward_model" in types and not _has_fields(types["reward_model"], "ground_truth"):
        problem(ERROR, f"reward_model is {types['reward_model']}; it must be a struct with ground_truth")
    if "extra_info" not in types:
        problem(WARNING, "it has no extra_info; veRL then gives every row the index 0")
    elif not pa.types.is_struct(types["extra_info"]):
        problem(ERROR, f"extra_info is {types['extra_info']}; it must be a struct")
    if "ability" not in types:
        problem(WARNING, "it has no ability; veRL does not need it, but other files of the run may have it")


def check_concatenation(group: str, schemas: Mapping[str, pa.Schema], findings: Findings) -> None:
    """Note whether the files of `group` (name -> schema) can become one data set, by having `datasets` do it."""
    if len(schemas) < 2:
        findings.skipped("concatenation", f"{group}: one file")
        return
    try:
        import datasets  # slow import, needed here only
    except ImportError:
        findings.skipped("concatenation", "the package datasets is not installed")
        return
    findings.ran("concatenation")
    names = list(schemas)
    try:
        first = _one_null_row(schemas[names[0]], datasets)
    except Exception as error:  # `datasets` raises many types for what it does not know
        findings.add("concatenation", ERROR, names[0], f"datasets cannot read its types ({first_line(error)})")
        return
    for name in names[1:]:
        difference = first_difference(schemas[names[0]], schemas[name])
        shown = f"{difference[0]} is {difference[1]} in {names[0]} and {difference[2]} here" if difference else ""
        try:
            datasets.concatenate_datasets([first, _one_null_row(schemas[name], datasets)])
        except Exception as error:
            reason = shown or first_line(error)
            findings.add("concatenation", ERROR, name, f"cannot be loaded with {names[0]}: {reason}; cast one of them")
        else:
            if difference and "missing" in difference[1:]:
                findings.add("concatenation", WARNING, name, f"{shown}; veRL fills in null")


def first_difference(one: pa.Schema, other: pa.Schema) -> tuple[str, str, str] | None:
    """Return path and types where two schemas first differ, the order of fields aside; None where they do not.

    A type is "missing" where only the other schema has the field. Differing types come before missing fields.
    """
    differences = list(_differences("", pa.struct(list(one)), pa.struct(list(other))))
    return min(differences, key=lambda difference: "missing" in difference[1:], default=None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, shortened."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 200 else lines[0][:197] + "..."


def _differences(path: str, one: pa.DataType, other: pa.DataType) -> Iterator[tuple[str, str, str]]:
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        others = {field.name: field.type for field in other}
        for name in dict.fromkeys([*fields, *others]):
            where = f"{path}.{name}" if path else name
            if name in fields and name in others:
                yield from _differences(where, fields[name], others[name])
            else:
                yield where, str(fields.get(name, "missing")), str(others.get(name, "missing"))
    elif _is_list(one) and _is_list(other) and type(one) is type(other):
        yield from _differences(f"{path}[]", one.value_type, other.value_type)
    else:
        yield path, str(one), str(other)


def _one_null_row(schema: pa.Schema, datasets: Any) -> Any:
    # `concatenate_datasets` leaves out data sets without rows, so one row it is.
    columns = [pa.nulls(1, field.type) for field in schema]
    nullable = pa.schema([field.with_nullable(True) for field in schema], metadata=schema.metadata)
    return datasets.Dataset(pa.Table.from_arrays(columns, schema=nullable))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_chat(kind: pa.DataType) -> bool:
    if not _is_list(kind) or not _has_fields(kind.value_type, "role", "content"):
        return False
    message = kind.value_type
    return all(_is_text(message.field(name).type) for name in ("role", "content"))


def _has_fields(kind: pa.DataType, *names: str) -> bool:
    present = [field.name for field in kind] if pa.types.is_struct(kind) else []
    return all(name in present for name in names)


def display_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the shortest names that tell the files apart: the file names, or the paths as given."""
    names = [path.name for path in paths]
    return {path: path.name if names.count(path.name) == 1 else str(path) for path in paths}
