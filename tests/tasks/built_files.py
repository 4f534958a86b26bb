"""Builds of data sets, and the content of the files that they write."""

import json
import os
from pathlib import Path

import pyarrow.parquet as pq

from verl_trgrpo.cli.main import main

ROOT = Path(__file__).parents[2]


def build(out, *words):
    """Run ``verl-trgrpo data build``, which must succeed; return the rows of each file that is there then."""
    assert main(["data", "build", *map(str, words), "--out", str(out)]) == 0
    return {path.name: rows_of(path) for path in sorted(out.glob("*.parquet"))}


def environment_for(directory):
    """Environment of a subprocess that imports this tree, reaches no network and keeps its caches to itself."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "HF_HOME": str(directory / "cache"), "HF_HUB_OFFLINE": "1"}


def rows_of(path):
    return pq.read_table(path).to_pylist()


def manifest_of(out):
    return json.loads((out / "manifest.json").read_text(encoding="utf-8"))


def content_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
