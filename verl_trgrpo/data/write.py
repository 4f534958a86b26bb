"""Write the files of a data set and their manifest, all together or not at all.

A builder is a module of a task with an options class, a generator of files, and one call::

    @dataclass(frozen=True, kw_only=True)
    class MyOptions(BuilderOptions):
        limit: int | None = None

    def data_files(options, progress=no_progress) -> Iterator[DataFile]:
        yield DataFile("train", [build_row(...), ...])
        yield DataFile("test", [build_row(...), ...])

    def build(options, progress=no_progress):
        return write_dataset(
            options.out, data_files(options, progress), arrow_schema(), builder="my_task",
            made_from=options.arguments(), command=options.command("my-task"), force=options.force,
        )

As a generator, `data_files` does no work before `write_dataset` has found that the data set is not there yet.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, read_json, staged_directory, write_json
from verl_trgrpo.common.findings import raise_invalid, range_errors
from verl_trgrpo.common.options import command_line
from verl_trgrpo.common.text import changes, count_of
from verl_trgrpo.data.rows import SCHEMA_VERSION, check_rows

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "manifest.json"

# Options that count rows, where a builder has them and they are not left out (None).
_COUNTS = dict.fromkeys(("train", "test", "limit", "val_per_set"), "[1, inf)")


class DataFile(NamedTuple):
    """One file of a data set.

    Args:
        name: name of the split, such as train; rows of all other files are for testing.
        rows: see `build_row`.
        counts: what was read, kept and dropped, by source; see `counts`.
    """

    name: str
    rows: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Mapping[str, Any]] = {}


def counts(kept: int, dropped: Mapping[str, int]) -> dict[str, Any]:
    """Return how many rows of a source were read and kept, and how many were dropped for which reason."""
    reasons = {reason: number for reason, number in dropped.items() if number}
    return {"read": kept + sum(reasons.values()), "kept": kept, "dropped": reasons}


@dataclass(frozen=True, kw_only=True)
class BuilderOptions:
    """Options that every builder has; a builder's own class adds fields and extends `problems`.

    Args:
        out: directory for the files.
        seed: same sources and seed, same files.
        force: build even if the directory has this data set, one of other arguments, or data files of unknown origin.
    """

    out: Path
    seed: int = 0
    force: bool = False

    def __post_init__(self) -> None:
        raise_invalid(self.problems())

    def problems(self) -> list[str]:
        """Return a message for each invalid field."""
        return range_errors({name: value for name, value in vars(self).items() if value is not None}, _COUNTS)

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return the fields that the rows depend on, by name, and `more`."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("out", "force")}
        return own | more

    def command(self, task: str) -> list[str]:
        """Return the words of the command that builds the data set of `task` with these options."""
        return command_line(f"verl-trgrpo data build {task}", replace(self, force=False))


def write_dataset(
    out: Path,
    files: Iterable[DataFile],
    schema: pa.Schema,
    *,
    builder: str,
    made_from: Mapping[str, Any],
    command: Sequence[str],
    inputs: Mapping[str, Path] | None = None,
    libraries: Sequence[str] = (),
    force: bool = False,
    replace_other: bool = False,
) -> dict[str, Any] | None:
    """Write a data set, unless it is already there, made from the same.

    The files, ``NAME.parquet``, and ``manifest.json`` appear at the end, when all are written (see `staged_directory`).

    Args:
        out: directory of the files.
        files: the files; a generator is not started if the data set is already there or refused.
        schema: Arrow schema of each file.
        builder: short name of the builder.
        made_from: all that the rows depend on except `inputs`, JSON types only, without paths: same values, same files.
        command: words of the command that builds the data set, for the manifest.
        inputs: local files that are read, by purpose. They are compared by content and recorded as the argument "source".
        libraries: names of installed packages that the rows depend on.
        force: write even if `out` has the same data set, one made from something else, or data files of unknown origin.
        replace_other: also without `force`, replace a data set of the same builder that was made from something else.

    Returns:
        the manifest, or None if the data set was already there.

    Raises:
        ValueError: `out` cannot be written, holds one of the inputs or what only `force` replaces; rows that veRL cannot
            use; a file without rows; or an error of `files`.
    """
    inputs = inputs or {}
    if inside := [path.name for path in inputs.values() if path.resolve().parent == out.resolve()]:
        raise ValueError(f"out={out} holds the input {', '.join(inside[:5])}; choose another directory")
    if inputs:
        made_from = {**made_from, "source": {name: [path.name, file_sha256(path)] for name, path in inputs.items()}}
    identity = {
        "builder": builder,
        "schema_version": SCHEMA_VERSION,
        "package_version": __version__,
        "library_versions": {name: version(name) for name in sorted({*libraries, "pyarrow"})},
        "arguments": json.loads(json.dumps(made_from)),  # tuples become lists, as in the manifest
    }
    found = read_json(out / MANIFEST)
    own = [*found["files"], MANIFEST] if found.get("builder") == builder else []
    if not force:
        if identity.items() <= found.items() and _is_intact(out, found):
            return None
        _refuse_to_replace(out, builder, own, {} if replace_other else found, identity["arguments"])
    with staged_directory(out, replaces=own) as stage:
        facts: dict[str, Any] = {}
        read: dict[str, Any] = {}
        for name, rows, its_counts in files:
            facts[f"{name}.parquet"] = _write_file(stage / f"{name}.parquet", rows, schema)
            read.update(its_counts)
        manifest = {**identity, "command": shlex.join(command), "counts": read, "files": facts}
        write_json(stage / MANIFEST, manifest)
    return manifest


def _refuse_to_replace(
    out: Path, builder: str, own: Sequence[str], found: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
    """Raise a ValueError if `out` has data files that `builder` did not write, or a data set of other arguments."""
    here = [*out.glob("*.parquet"), *out.glob(MANIFEST)]
    if foreign := sorted(path.name for path in here if path.name not in own):
        raise ValueError(
            f"out={out} has {', '.join(foreign[:5])}, not written by {builder}; choose another directory, or replace "
            "with --force"
        )
    before = found.get("arguments") if own else None
    if isinstance(before, dict) and before != asked:
        raise ValueError(
            f"out={out} has a data set of other arguments ({'; '.join(changes(before, asked))}); choose another "
            "directory, or replace with --force"
        )


def _is_intact(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether every file of `manifest` is in `directory` with the recorded sha256."""
    files = {directory / name: facts["sha256"] for name, facts in manifest["files"].items()}
    return all(path.is_file() and file_sha256(path) == digest for path, digest in files.items())


def _write_file(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> dict[str, Any]:
    """Write rows with index and split added; equal rows give equal bytes under one version of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    split = "train" if path.stem == "train" else "test"
    rows = [
        {**row, "extra_info": {"index": index, "split": split, **row["extra_info"]}} for index, row in enumerate(rows)
    ]
    if not rows:
        raise ValueError(f"{path.name} would have no rows; give a source that has some")
    check_rows(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="snappy")
    return {"rows": len(rows), "sha256": file_sha256(path)}


def build_report(out: Path, manifest: Mapping[str, Any] | None) -> str:
    """Return what `write_dataset` read, dropped and wrote, as lines for a terminal."""
    if manifest is None:
        return f"{out} already has this data set, built with the same arguments; --force builds it again\n"
    lines = []
    for source, found in manifest["counts"].items():
        dropped = "".join(f"; {count} dropped: {reason}" for reason, count in found["dropped"].items())
        lines.append(f"{source}: {found['kept']} kept of {found['read']} read{dropped}")
    lines += [f"{out / name}: {count_of(facts['rows'], 'row')}" for name, facts in manifest["files"].items()]
    return "".join(f"{line}\n" for line in lines)
