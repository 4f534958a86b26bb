"""Data sets on disk: deterministic parquet files and the manifest that describes them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
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
