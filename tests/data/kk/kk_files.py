"""Files that the tests write and read, and the command line under test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from kk_oracle import public_row

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "data_prep" / "kk.py"


def arguments(out, *more, people="3", train="6", test="3"):
    return ["--out", str(out), "--people", *people.split(), "--train", train, "--test", test, *map(str, more)]


def script(environment, *words):
    command = [sys.executable, str(SCRIPT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def environment_for(directory):
    """A subprocess that imports this tree, reaches no network and keeps its caches to itself."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "HF_HOME": str(directory / "cache"), "HF_HUB_OFFLINE": "1"}


def rows(path):
    return pq.read_table(path).to_pylist()


def write_jsonl(path, puzzles):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(public_row(puzzle)) + "\n" for puzzle in puzzles), encoding="utf-8")
    return path


def files_in(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def data_in(directory):
    """All that must not depend on where the files are: everything but the command."""
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8")) | {"command": ""}
    return files_in(directory) | {"manifest.json": manifest}


def repeat_recorded_command(out, directory, environment):
    """Remove the files in `out` and run the command of its manifest, word for word, in `directory`."""
    command = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["command"]
    for path in out.iterdir():
        path.unlink()
    (directory / "data_prep").symlink_to(SCRIPT.parent)
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment | {"PATH": path},
        check=True,
        capture_output=True,
        timeout=120,
    )
