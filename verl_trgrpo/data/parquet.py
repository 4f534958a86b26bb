"""Data sets on disk: deterministic parquet files and a manifest, which appear together or not at all."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MANIFEST = "manifest.json"


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write `rows` to `path`; equal rows give equal bytes under one version of pyarrow."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    pq.write_table(table, path, compression="snappy")


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest` as `manifest.json`, readable and with a stable order of keys."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Return the manifest in `directory`, or None where there is none or it cannot be read."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def is_intact(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether every file that `manifest` lists is in `directory` with the recorded sha256."""
    try:
        return all(file_sha256(directory / name) == facts["sha256"] for name, facts in manifest["files"].items())
    except (OSError, KeyError, TypeError, AttributeError):
        return False


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's content in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def staged_files(directory: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give a temporary directory to write the files `names` into, and put them into `directory` at the end.

    The temporary directory lies inside `directory`, which is created if needed, so an unwritable place shows before
    any work is done and the final step is a rename within one file system. When the block ends normally every file is
    flushed to disk and renamed, in the order of `names`. On any exception, KeyboardInterrupt included, the old files
    stay or are put back. A process that is killed leaves the old files too, and a hidden ``.building-*`` directory; if
    it dies between two renames, the manifest (to be named last) no longer matches and `is_intact` says so.

    Raises:
        ValueError: where `directory` cannot be created or written, or a directory has the name of one of the files.
    """
    for name in names:
        if (directory / name).is_dir():
            raise ValueError(f"{directory / name} is a directory; move it or choose another output directory")
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".building-", dir=directory))
    except OSError as error:
        raise ValueError(
            f"cannot write to {directory} ({error.strerror}); choose a directory that is writable"
        ) from error
    try:
        yield stage
        _replace_together(stage, directory, names)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
    shutil.rmtree(stage, ignore_errors=True)


def _replace_together(stage: Path, directory: Path, names: Sequence[str]) -> None:
    for name in names:
        _flush(stage / name)
    backup = stage / "replaced"
    backup.mkdir()
    present = [name for name in names if (directory / name).exists()]
    for name in present:
        shutil.copy2(directory / name, backup / name)
    try:
        for name in names:
            (stage / name).replace(directory / name)
        _flush(directory)
    except BaseException:
        for name in names:
            if (backup / name).exists():
                (backup / name).replace(directory / name)
            elif name not in present:
                (directory / name).unlink(missing_ok=True)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
