"""The columns of a file, and whether veRL can concatenate files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from verl_trgrpo.common.problems import Finding, error, warning


def column_findings(name: str, schema: pa.Schema) -> Iterator[Finding]:
    """Yield which columns veRL or the rewards need and a file has not; what is in them the checks of rows tell."""
    missing = [column for column in ("data_source", "prompt", "reward_model") if column not in schema.names]
    if missing:
        yield error(name, f"it has no {', '.join(missing)}; it has {', '.join(schema.names) or 'no columns'}")
    if "extra_info" not in schema.names:
        yield warning(name, "it has no extra_info; veRL then gives every row the index 0")


def concatenation_findings(schemas: Mapping[str, pa.Schema]) -> Iterator[Finding]:
    """Yield which files (name -> schema) have columns of other types than the first, with which veRL concatenates them."""
    names = [*schemas]
    for name in names[1:]:
        if difference := first_difference(schemas[names[0]], schemas[name]):
            path, here, there = difference
            shown = f"{path} is {here} in {names[0]} and {there} here"
            if "missing" in (here, there):
                yield warning(name, f"{shown}; veRL fills in null")
            else:
                yield error(name, f"{shown}; veRL cannot load them together, cast one of them")


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
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        yield from _leaves(f"{path}[]", kind.value_type)
    else:
        yield path, str(kind)
