"""The types of a file's columns, and whether veRL can concatenate files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import Finding, error, first_line, not_checked, warning


def column_findings(name: str, schema: pa.Schema) -> Iterator[tuple[str, Finding]]:
    """Yield which columns veRL or the rewards would stumble over."""
    twice = sorted({column for column in schema.names if schema.names.count(column) > 1})
    if twice:
        yield "columns", error(name, f"several columns are called {', '.join(twice)}; rename them")
        return
    types = {column: schema.field(column).type for column in schema.names}
    missing = [column for column in ("data_source", "prompt", "reward_model") if column not in types]
    if missing:
        yield "columns", error(name, f"it has no {', '.join(missing)}; it has {', '.join(types) or 'no columns'}")
    wanted = {
        "data_source": (_is_text, "a string"),
        "prompt": (_is_chat, "a list of structs with the strings role and content"),
        "reward_model": (lambda kind: "ground_truth" in _fields(kind), "a struct with ground_truth"),
        "extra_info": (pa.types.is_struct, "a struct"),
    }
    for column, (fits, form) in wanted.items():
        if column in types and not fits(types[column]):
            yield "columns", error(name, f"{column} is {types[column]}; it must be {form}")
    if "extra_info" not in types:
        yield "columns", warning(name, "it has no extra_info; veRL then gives every row the index 0")
    if "ability" not in types:
        text = "it has no ability; veRL does not need it, but other files of the run may have it"
        yield "columns", warning(name, text)


def concatenation_findings(schemas: Mapping[str, pa.Schema]) -> Iterator[tuple[str, Finding]]:
    """Yield which files (name -> schema) cannot become one data set with the first, by having `datasets` do it."""
    check = "concatenation"
    try:
        import datasets  # slow import, needed here only
    except ImportError:
        yield check, not_checked("", "the package datasets is not installed")
        return
    (first, schema), *others = schemas.items()
    try:
        head = _one_null_row(schema, datasets)
    except Exception as problem:  # `datasets` raises many types for what it does not know
        yield check, error(first, f"datasets cannot read its types ({first_line(problem)})")
        return
    for name, other in others:
        path, here, there = first_difference(schema, other) or ("", "", "")
        shown = f"{path} is {here} in {first} and {there} here" if path else ""
        try:
            datasets.concatenate_datasets([head, _one_null_row(other, datasets)])
        except Exception as problem:
            reason = shown or first_line(problem)
            yield check, error(name, f"cannot be loaded with {first}: {reason}; cast one of them")
        else:
            if "missing" in (here, there):
                yield check, warning(name, f"{shown}; veRL fills in null")


def first_difference(one: pa.Schema, other: pa.Schema) -> tuple[str, str, str] | None:
    """Return path and types where two schemas first differ, the order of fields aside; None where they do not.

    A type is "missing" where only the other schema has the field. Differing types come before missing fields.
    """
    differences = list(_differences("", pa.struct(list(one)), pa.struct(list(other))))
    return min(differences, key=lambda difference: "missing" in difference[1:], default=None)


def _differences(path: str, one: pa.DataType, other: pa.DataType) -> Iterator[tuple[str, str, str]]:
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        ours, theirs = _fields(one), _fields(other)
        for name in dict.fromkeys([*ours, *theirs]):
            where = f"{path}.{name}" if path else name
            if name in ours and name in theirs:
                yield from _differences(where, ours[name], theirs[name])
            else:
                yield where, str(ours.get(name, "missing")), str(theirs.get(name, "missing"))
    elif _is_list(one) and type(one) is type(other):
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
    fields = _fields(kind.value_type) if _is_list(kind) else {}
    return all(name in fields and _is_text(fields[name]) for name in ("role", "content"))


def _fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
