"""From rows to a data set on disk: the steps that all builders share."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo import __version__
from verl_trgrpo.common.files import staged_directory
from verl_trgrpo.data import parquet, schema


@dataclass(frozen=True)
class DataFile:
    """One parquet file to write: its name, its rows (see `schema.build_row`) and their Arrow schema."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    schema: pa.Schema


@dataclass(frozen=True)
class Counts:
    """How many rows of a source were read and kept, and why the others were dropped."""

    read: int
    kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it for the manifest, without reasons that dropped nothing."""
        return {"read": self.read, "kept": self.kept, "dropped": {why: n for why, n in self.dropped.items() if n}}


@dataclass(frozen=True)
class DataSet:
    """What a builder makes.

    files: to write.
    counts: of each source.
    skipped: malformed rows that were left out, as they were reported.
    notes: what else a reader should know, a short text or number under each name.
    """

    files: Sequence[DataFile]
    counts: Mapping[str, Counts]
    skipped: Sequence[str] = ()
    notes: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildPlan:
    """What determines a data set, and where it goes.

    builder: short name of what builds it; a directory with another builder's data set is not replaced.
    out: directory of the files.
    arguments: everything the rows depend on, JSON types only, without paths: equal arguments, equal files.
    command: words of the command that builds it.
    libraries: names of installed packages that the rows depend on.
    inputs: local files that are read; none may lie in `out`, which is replaced.
    force: build even where `out` has the same data set already, or data files that are not from here.
    """

    builder: str
    out: Path
    arguments: Mapping[str, Any]
    command: Sequence[str]
    libraries: Sequence[str] = ()
    inputs: Sequence[Path] = ()
    force: bool = False


@dataclass(frozen=True)
class BuildResult:
    """The manifest of the data set, and whether it was built now or found complete."""

    manifest: dict[str, Any]
    built: bool


def build_data_set(plan: BuildPlan, make: Callable[[], DataSet]) -> BuildResult:
    """Build the data set that `make` returns, or find it already built with the same arguments.

    The files and ``manifest.json`` appear at the end, when all are written (see `staged_directory`).

    Raises:
        ValueError: an output directory that cannot be written or has data files without a manifest from here, rows that
            veRL would stumble over, a file without rows, or whatever `make` raises.
    """
    _refuse_inputs(plan)
    recorded = parquet.read_manifest(plan.out)
    if not plan.force:
        if recorded is not None and _is_current(recorded, plan) and parquet.is_intact(plan.out, recorded):
            return BuildResult(recorded, built=False)
        _refuse_foreign(plan, recorded)
    old = [*_files_of(recorded), parquet.MANIFEST]
    with staged_directory(plan.out, replaces=old) as stage:
        data_set = make()
        facts = {file.name: _write(stage, file) for file in data_set.files}
        manifest = _manifest(plan, data_set, facts)
        parquet.write_manifest(stage, manifest)
    return BuildResult(manifest, built=True)


def _refuse_inputs(plan: BuildPlan) -> None:
    inside = [path.name for path in plan.inputs if path.resolve().parent == plan.out.resolve()]
    if inside:
        raise ValueError(
            f"{plan.out} holds {', '.join(inside[:5])}, which the data set is made from, and would be replaced; choose "
            "another output directory"
        )


def _refuse_foreign(plan: BuildPlan, recorded: Mapping[str, Any] | None) -> None:
    """Raise ValueError where files would be lost that this builder has not made."""
    builder = (recorded or {}).get("builder")
    if builder not in (None, plan.builder):
        raise ValueError(f"{plan.out} has a data set of {builder}; choose another directory, or force the build")
    own = {*_files_of(recorded), parquet.MANIFEST} if builder else set()
    here = [*plan.out.glob("*.parquet"), *plan.out.glob(parquet.MANIFEST)]
    foreign = sorted(path.name for path in here if path.name not in own)
    if foreign:
        raise ValueError(
            f"{plan.out} has {', '.join(foreign[:5])}, but no {parquet.MANIFEST} of {plan.builder} that lists it; choose "
            "another directory, or force the build to replace it"
        )


def _files_of(recorded: Mapping[str, Any] | None) -> list[str]:
    files = (recorded or {}).get("files")
    return [*files] if isinstance(files, Mapping) and (recorded or {}).get("builder") else []


def _write(stage: Path, file: DataFile) -> dict[str, Any]:
    if not file.rows:
        raise ValueError(f"{file.name} would have no rows; give a source that has some")
    schema.check_rows(file.rows)
    parquet.write_parquet(stage / file.name, file.rows, file.schema)
    return {"rows": len(file.rows), "sha256": parquet.file_sha256(stage / file.name)}


def _is_current(recorded: Mapping[str, Any], plan: BuildPlan) -> bool:
    return all(recorded.get(name) == value for name, value in _identity(plan).items())


def _identity(plan: BuildPlan) -> dict[str, Any]:
    """Return what determines the files: equal entries in a manifest, equal files."""
    return {
        "builder": plan.builder,
        "schema_version": schema.SCHEMA_VERSION,
        "package_version": __version__,
        "library_versions": _versions(plan),
        "arguments": dict(plan.arguments),
    }


def _versions(plan: BuildPlan) -> dict[str, str]:
    versions = {}
    for name in sorted({*plan.libraries, "pyarrow"}):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _manifest(plan: BuildPlan, data_set: DataSet, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_identity(plan),
        "command": shlex.join(plan.command),
        "counts": {name: counts.as_dict() for name, counts in data_set.counts.items()},
        "notes": dict(data_set.notes),
        "skipped": list(data_set.skipped),
        "files": dict(facts),
    }
