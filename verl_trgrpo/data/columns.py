"""The types of a file's columns, and whether veRL can concatenate files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import Finding, error, first_line, warning


def column_findings(name: str, schema: pa.Schema) -> Iterator[Finding]:
    """Yield which columns veRL or the rewards would stumble over."""
    types = dict(zip(schema.names, schema.types, strict=True))
    missing = [column for column in ("data_source", "prompt", "reward_model") if column not in types]
    if missing:
        yield error(name, f"it has no {', '.join(missing)}; it has {', '.join(types) or 'no columns'}")
    wanted = {
        "data_source": (_is_text, "a string"),
        "prompt": (_is_chat, "a list of structs with the strings role and content"),
        "reward_model": (lambda kind: "ground_truth" in _fields(kind), "a struct with ground_truth"),
        "extra_info": (pa.types.is_struct, "a struct"),
    }
    for column, (fits, form) in wanted.items():
        if column in types and not fits(types[column]):
            yield error(name, f"{column} is {types[column]}; it must be {form}")
    if "extra_info" not in types:
        yield warning(name, "it has no extra_info; veRL then gives every row the index 0")
    if "ability" not in types:
        yield warning(name, "it has no ability; veRL does not need it, but other files of the run may have it")


def concatenation_findings(schemas: Mapping[str, pa.Schema]) -> Iterator[Finding]:
    """Yield which files (name -> schema) cannot become one data set with the first, by having `datasets` do it."""
    import datasets  # slow import, needed here only

    names = [*schemas]
    for name in names[1:]:
        first = names[0]
        path, here, there = first_difference(schemas[first], schemas[name]) or ("", "", "")
        shown = f"{path} is {here} in {first} and {there} here" if path else ""
        try:
            # `concatenate_datasets` leaves out data sets without rows, so one row of nulls it is.
            datasets.concatenate_datasets(
                [datasets.Dataset(pa.Table.from_pylist([{}], schema=schemas[file])) for file in (first, name)]
            )
        except Exception as problem:  # `datasets` raises many types for what it does not know
            yield error(name, f"cannot be loaded with {first}: {shown or first_line(problem)}; cast one of them")
        else:
            if "missing" in (here, there):
                yield warning(name, f"{shown}; veRL fills in null")


def first_difference(one: pa.Schema, other: pa.Schema) -> tuple[str, str, str] | None:
    """Return path and types where two schemas first differ, the order of fields aside; None where they do not.

    A type is "missing" where only the other schema has the field. Differing types come before missing fields.
    """
    ours, theirs = dict(_leaves("", pa.struct(list(one)))), dict(_leaves("", pa.struct(list(other))))
    pairs = [(path, ours.get(path, "missing"), theirs.get(path, "missing")) for path in dict.fromkeys([*ours, *theirs])]
    different = [pair for pair in pairs if pair[1] != pair[2] and "null" not in pair]
    return min(different, key=lambda pair: "missing" in pair, default=None)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """Yield the path of every field that has none below it, and its type."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}" if path else field.name, field.type)
    elif _is_list(kind) and pa.types.is_struct(kind.value_type):
        yield from _leaves(f"{path}[]", kind.value_type)
    else:
        yield path, str(kind)


def _is_text(kind: pa.DataType) -> bool:
    value: Any = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_chat(kind: pa.DataType) -> bool:
    fields = _fields(kind.value_type) if _is_list(kind) else {}
    return all(name in fields and _is_text(fields[name]) for name in ("role", "content"))


def _fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
