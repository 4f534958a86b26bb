"""From a command line to a data set on disk: what all builders share.

A door in ``data_prep`` is a description with examples and one call::

    sys.exit(run_builder(KkOptions, build, "data_prep/kk.py", __doc__))
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from verl_trgrpo import __version__
from verl_trgrpo.common.files import file_sha256, read_json, staged_directory, write_json
from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.options import command_line, run_program
from verl_trgrpo.common.progress import Progress
from verl_trgrpo.common.text import changes, count_of
from verl_trgrpo.data import parquet, schema


@dataclass(frozen=True)
class DataSet:
    """What a builder makes.

    files: by name of the split, such as train: its rows, see `schema.build_row`; all but train are for tests.
    schema: of each file.
    counts: of each source that was read, see `counts`.
    """

    files: Mapping[str, Sequence[Mapping[str, Any]]]
    schema: pa.Schema
    counts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def counts(kept: int, dropped: Mapping[str, int]) -> dict[str, Any]:
    """Return how many rows of a source were read and kept, and why the others were dropped, for the manifest."""
    reasons = {why: n for why, n in dropped.items() if n}
    return {"read": kept + sum(reasons.values()), "kept": kept, "dropped": reasons}


def build_data_set(
    builder: str,
    out: Path,
    arguments: Mapping[str, Any],
    make: Callable[[], DataSet],
    *,
    command: Sequence[str],
    libraries: Sequence[str] = (),
    force: bool = False,
) -> dict[str, Any] | None:
    """Build the data set that `make` returns, or find it already built with the same arguments.

    The files, ``NAME.parquet``, and ``manifest.json`` appear at the end, when all are written (see `staged_directory`).

    Args:
        builder: short name of what builds it; a directory with another builder's data set is not replaced.
        out: directory of the files.
        arguments: everything the rows depend on, JSON types only, without paths: equal arguments, equal files.
        make: makes the rows.
        command: words of the command that builds it.
        libraries: names of installed packages that the rows depend on.
        force: build even where `out` has the same data set already, or data files that are not from here.

    Returns:
        the manifest, or None where the data set was there.

    Raises:
        ValueError: an output directory that cannot be written or has data files of another origin, rows that veRL would
            stumble over, a file without rows, or whatever `make` raises.
    """
    # What determines the files: equal entries in a manifest, equal files.
    identity = {
        "builder": builder,
        "schema_version": schema.SCHEMA_VERSION,
        "package_version": __version__,
        "library_versions": {name: version(name) for name in sorted({*libraries, "pyarrow"})},
        "arguments": dict(arguments),
    }
    recorded = read_json(out / parquet.MANIFEST)
    own = [*recorded["files"], parquet.MANIFEST] if recorded.get("builder") == builder else []
    if not force:
        if identity.items() <= recorded.items() and parquet.is_intact(out, recorded):
            return None
        here = [*out.glob("*.parquet"), *out.glob(parquet.MANIFEST)]
        if foreign := sorted(path.name for path in here if path.name not in own):
            raise ValueError(
                f"{out} has {', '.join(foreign[:5])}, which {builder} has not made; choose another directory, or force "
                "the build to replace it"
            )
    with staged_directory(out, replaces=own) as stage:
        data_set = make()
        facts = {f"{name}.parquet": _write(stage / f"{name}.parquet", data_set, name) for name in data_set.files}
        manifest = {
            **identity,
            "command": shlex.join(command),
            "counts": dict(data_set.counts),
            "files": facts,
        }
        write_json(stage / parquet.MANIFEST, manifest)
    return manifest


def _write(path: Path, data_set: DataSet, name: str) -> dict[str, Any]:
    split = "train" if name == "train" else "test"
    rows = [
        {**row, "extra_info": {"index": index, "split": split, **row["extra_info"]}}
        for index, row in enumerate(data_set.files[name])
    ]
    if not rows:
        raise ValueError(f"{path.name} would have no rows; give a source that has some")
    schema.check_rows(rows)
    parquet.write_parquet(path, rows, data_set.schema)
    return {"rows": len(rows), "sha256": file_sha256(path)}


@dataclass(frozen=True, kw_only=True)
class BuilderOptions:
    """Options that every builder has; a builder's own class adds fields and overrides `problems`.

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
        """Return what is wrong with the fields, each with value, reason and remedy."""
        return []

    def build(
        self,
        script: str,
        make: Callable[[], DataSet],
        *,
        inputs: Mapping[str, Path] | None = None,
        libraries: Sequence[str] = (),
        **arguments: Any,
    ) -> dict[str, Any] | None:
        """Build the data set that `make` returns with these options; see `build_data_set`.

        Args:
            script: name of the builder and of its door in ``data_prep``.
            make: makes the rows.
            inputs: local files that are read, by what each is for; none may lie in `out`, which is replaced.
            libraries: see `build_data_set`.
            **arguments: what the rows depend on besides the options and the content of `inputs`.
        """
        inputs = inputs or {}
        inside = [path.name for path in inputs.values() if path.resolve().parent == self.out.resolve()]
        if inside:
            raise ValueError(
                f"{self.out} holds {', '.join(inside[:5])}, which the data set is made from, and would be replaced; "
                "choose another output directory"
            )
        known = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("out", "force")}
        if inputs:  # told apart by content, not by place
            known["source"] = {label: [path.name, file_sha256(path)] for label, path in inputs.items()}
        asked = json.loads(json.dumps(known | arguments))  # tuples become lists, as in the manifest
        if not self.force:
            self._check_arguments(script, asked)
        return build_data_set(
            script,
            self.out,
            asked,
            make,
            command=command_line(f"python data_prep/{script}.py", replace(self, force=False)),
            libraries=libraries,
            force=self.force,
        )

    def _check_arguments(self, script: str, asked: Mapping[str, Any]) -> None:
        """Refuse to replace a data set of other arguments, which somebody may be using."""
        recorded = read_json(self.out / parquet.MANIFEST)
        found = recorded.get("arguments") if recorded.get("builder") == script else None
        if isinstance(found, dict) and found != asked:
            raise ValueError(
                f"{self.out} has a data set of other arguments ({'; '.join(changes(found, asked))}); choose another --out, "
                "or replace it with --force"
            )


def limit_problems(limit: int | None) -> list[str]:
    """Return what is wrong with an option for at most so many rows."""
    if limit is None or limit >= 1:
        return []
    return [f"limit is {limit}; ask for at least 1 row, or leave it out for all"]


Options = TypeVar("Options", bound=BuilderOptions)


def run_builder(
    options_class: type[Options],
    build: Callable[[Options, Progress], dict[str, Any] | None],
    prog: str,
    description: str,
    argv: Sequence[str] | None = None,
) -> int:
    """Parse a builder's options, build, and report on stdout; see `run_program`.

    Args:
        options_class: the builder's options.
        build: called with the options and a progress display; returns what `build_data_set` returns.
        prog: the script's path as its help names it, such as ``data_prep/kk.py``.
        description: what is built, with examples.
        argv: command-line words; those of this process if left out.
    """

    def work(options: Options, progress: Progress) -> str:
        return _report(options.out, build(options, progress))

    return run_program(options_class, work, prog, description, argv)


def _report(out: Path, manifest: Mapping[str, Any] | None) -> str:
    """Return what was read, dropped and written, as text."""
    if manifest is None:
        return f"{out} already has this data set, built with the same arguments; --force builds it again\n"
    lines = []
    for source, found in manifest["counts"].items():
        dropped = "".join(f"; {count} dropped: {reason}" for reason, count in found["dropped"].items())
        lines.append(f"{source}: {found['kept']} kept of {found['read']} read{dropped}")
    for name, facts in manifest["files"].items():
        lines.append(f"{out / name}: {count_of(facts['rows'], 'row')}")
    return "".join(f"{line}\n" for line in lines)
