"""Write the files of a data set and their manifest, all together or not at all.

A builder is a module of a task with an options class, and a function that asks, makes and writes::

    @dataclass(frozen=True, kw_only=True)
    class MyOptions(BuilderOptions):
        limit: Annotated[int | None, "[1, inf)"] = None

    def build(options, progress=no_progress):
        data_set = options.data_set("my_task", "my-task")
        if data_set.is_there():
            return None
        rows = [build_row(...), ...]
        return data_set.write({"train": rows[100:], "test": rows[:100]}, arrow_schema())
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from verl_trgrpo import __version__
from verl_trgrpo.common.files import directory_lock, file_sha256, settle_directory, staged_directory, write_json
from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.foreign import ForeignFileError
from verl_trgrpo.common.options import Options, command_line
from verl_trgrpo.common.text import changes, count_of
from verl_trgrpo.common.typed import Schema, Text, read_typed
from verl_trgrpo.data.questions.ask import Questions, usable
from verl_trgrpo.data.questions.context import TEST_ROLE, TRAIN_ROLE, Context, Found
from verl_trgrpo.data.rows import SCHEMA_VERSION
from verl_trgrpo.data.sources import NOT_ASKED_FOR
from verl_trgrpo.tasks.ground_truths import TaskKnowledge
from verl_trgrpo.tasks.registry import known_agents

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "manifest.json"
logger = logging.getLogger(__name__)


class FileRecord(Schema):
    """What a manifest says of a file."""

    sha256: Text | None = None


class Manifest(Schema):
    """``manifest.json``: what a data set is and was made from."""

    builder: Text | None = None
    arguments: dict[Text, Any] | None = None
    files: dict[Text, FileRecord] = Field(default_factory=dict)

    def own_files(self) -> dict[str, FileRecord]:
        """Return the files that a builder may have written: anybody may have made the manifest."""
        names = [name for name in self.files if Path(name).name == name and name.endswith(".parquet")]
        return {name: self.files[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class BuilderOptions(Options):
    """Options that every builder has; a builder's own class adds fields.

    Args:
        out: directory for the files.
        seed: same sources and seed, same files.
        force: build even if the directory has this data set, one of other arguments, or data files of unknown origin.
    """

    out: Path
    seed: int = 0
    force: bool = False

    def data_set(self, builder: str, task: str, **more: Any) -> DataSet:
        """Return the data set that the fields describe; `task` is the word of ``verl-trgrpo data build TASK``.

        The keywords are `inputs`, `libraries` and `left_out` of the data set, and further arguments that the rows depend on.
        """
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("out", "force")}
        given = {name: more.pop(name) for name in ("inputs", "libraries", "left_out") if name in more}
        unknown = [
            f"{name} ({reason})" for name, reason in given.get("left_out", {}).items() if reason != NOT_ASKED_FOR
        ]
        if unknown:
            shown = ", ".join(unknown[:5]), f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            logger.warning(
                "not read: %s%s; rename what is needed (%s --help)", *shown, f"verl-trgrpo data build {task}"
            )
        command = command_line(f"verl-trgrpo data build {task}", replace(self, force=False))
        return DataSet(self.out, builder, own | more, command, force=self.force, **given)


@dataclass(frozen=True)
class DataSet:
    """A data set to build: a builder asks whether it is there, makes its rows, and writes them.

    Args:
        out: directory of the files.
        builder: short name of the builder.
        made_from: all that the rows depend on except `inputs`, JSON types only, without paths: same values, same files.
        command: words of the command that builds the data set, for the manifest.
        inputs: local files that are read, by purpose. They are compared by content and recorded as the argument "source".
        libraries: names of installed packages that the rows depend on.
        force: write even if `out` has the same data set, one made from something else, or data files of unknown origin.
        replace_other: also without `force`, replace a data set of the same builder that was made from something else.
        left_out: files of the source that are not read, with the reasons, for the manifest.
    """

    out: Path
    builder: str
    made_from: Mapping[str, Any]
    command: Sequence[str]
    inputs: Mapping[str, Path] = field(default_factory=dict)
    libraries: Sequence[str] = ()
    force: bool = False
    replace_other: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)

    def is_there(self) -> bool:
        """Return whether `out` has this data set, made from the same; False with `force`.

        Raises:
            ValueError: `out` cannot be written, holds one of the inputs, a damaged manifest or what else only `force` replaces,
                or another process is building it.
        """
        if inside := [path.name for path in self.inputs.values() if path.resolve().parent == self.out.resolve()]:
            raise ValueError(f"out={self.out} holds the input {', '.join(inside[:5])}; choose another directory")
        settle_directory(self.out, self._owned)
        if not self.force:
            found = _manifest(self.out)
            if self._identity.items() <= found.content().items() and _is_intact(self.out, found):
                return True
        with directory_lock(self.out, self._owned):  # before the rows are made, which may take long
            self._check_replaceable()
        return False

    def write(
        self,
        splits: Mapping[str, Iterable[Mapping[str, Any]]],
        schema: pa.Schema,
        counts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Write ``SPLIT.parquet`` for each split and ``manifest.json``, which appear when all are written; return the manifest.

        The rows are those of `build_row`, of all splits but train for testing; `counts` are by source.

        Raises:
            ValueError: as `is_there`; rows that veRL cannot use; a split without rows.
        """
        with staged_directory(self.out, self._owned) as stage:
            self._check_replaceable()  # once more: meanwhile others may have written
            why = "; ".join(f"{name}: {_kept_text(found)}" for name, found in (counts or {}).items())
            files = {f"{split}.parquet": _numbered(split, rows, why) for split, rows in splits.items()}
            _ask(files)
            facts = {name: _write_file(stage / name, rows, schema) for name, rows in files.items()}
            manifest = {**self._identity, "command": shlex.join(self.command), "counts": counts or {}, "files": facts}
            manifest |= {"left_out": {**self.left_out}} if self.left_out else {}
            write_json(stage / MANIFEST, manifest)
        return manifest

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """Return the part of the manifest in which equal data sets are equal."""
        source = {name: [path.name, file_sha256(path)] for name, path in self.inputs.items()}
        made_from = {**self.made_from, **({"source": source} if source else {})}
        return {
            "builder": self.builder,
            "schema_version": SCHEMA_VERSION,
            "package_version": __version__,
            "library_versions": {name: version(name) for name in sorted({*self.libraries, "pyarrow"})},
            "arguments": json.loads(json.dumps(made_from)),  # tuples become lists, as in the manifest
        }

    def _owned(self, directory: Path) -> list[str]:
        """Return the files of this builder's data set in a directory, the manifest last."""
        with contextlib.suppress(ForeignFileError):
            found = _manifest(directory)
            if found.builder == self.builder:
                return [*(name for name in found.own_files() if (directory / name).is_file()), MANIFEST]
        return []

    def _check_replaceable(self) -> None:
        """Raise a ValueError if `out` has data files that the builder did not write, or a data set of other arguments."""
        if self.force:
            return
        own = self._owned(self.out)
        here = [*self.out.glob("*.parquet"), *self.out.glob(MANIFEST)]
        if foreign := sorted(path.name for path in here if path.name not in own):
            raise ValueError(
                f"out={self.out} has {', '.join(foreign[:5])}, not written by {self.builder}; choose another directory, or "
                "replace with --force"
            )
        before, asked = _manifest(self.out).arguments, self._identity["arguments"]
        if own and not self.replace_other and before is not None and before != asked:
            raise ValueError(
                f"out={self.out} has a data set of other arguments ({'; '.join(changes(before, asked))}); choose another "
                "directory, or replace with --force"
            )


def _manifest(directory: Path) -> Manifest:
    return read_typed(directory / MANIFEST, Manifest, mark="builder")


def _is_intact(directory: Path, manifest: Manifest) -> bool:
    """Return whether every file of `manifest` is in `directory` with the recorded sha256."""
    files = manifest.own_files()
    return (
        bool(files)
        and files == manifest.files
        and all(
            (directory / name).is_file() and file_sha256(directory / name) == record.sha256
            for name, record in files.items()
        )
    )


def _numbered(split: str, rows: Iterable[Mapping[str, Any]], why: str) -> list[dict[str, Any]]:
    """Return rows with index and split added. Raises a ValueError for none; `why` says what became of those that were read."""
    shown = TRAIN_ROLE if split == "train" else TEST_ROLE
    numbered = [
        {**row, "extra_info": {"index": index, "split": shown, **row["extra_info"]}} for index, row in enumerate(rows)
    ]
    if not numbered:
        raise ValueError(f"{split}.parquet would have no rows{f' ({why})' if why else ''}; give a source that has some")
    return numbered


def _ask(files: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Ask all rows. Raises a ValueError for those that no reward or model can use; other findings are warnings."""
    questions = Questions(Context(TaskKnowledge(), known_agents(), Level.WARNING))
    found: list[Found] = []
    for name in sorted(files, key=lambda name: name != "train.parquet"):
        found += questions.rows(TRAIN_ROLE if name == "train.parquet" else TEST_ROLE, name, files[name])
    for text in usable(found):
        logger.warning("%s", text)


def _write_file(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> dict[str, Any]:
    """Write rows; equal rows give equal bytes under one version of pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="snappy")
    return {"rows": len(rows), "sha256": file_sha256(path)}


def manifest_text(out: Path, manifest: Mapping[str, Any] | None) -> str:
    """Return what a builder read, dropped and wrote, as lines for a terminal; `manifest` is None if it wrote nothing."""
    if manifest is None:
        return f"{out} already has this data set, built with the same arguments; --force builds it again\n"
    lines = [f"{source}: {_kept_text(found)}" for source, found in manifest["counts"].items() if found["read"]]
    lines += [f"{out / name}: {count_of(facts['rows'], 'row')}" for name, facts in manifest["files"].items()]
    return "".join(f"{line}\n" for line in lines)


def _kept_text(found: Mapping[str, Any]) -> str:
    """Return the counts of a source for a terminal."""
    dropped = "".join(f"; {count} dropped: {reason}" for reason, count in found["dropped"].items())
    return f"{found['kept']} kept of {found['read']} read{dropped}"
