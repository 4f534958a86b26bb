"""Sources that the tests write, files that they read, and the command line under test."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "data_prep" / "search_qa.py"

_specification = importlib.util.spec_from_file_location("search_qa_script", SCRIPT)
assert _specification and _specification.loader
command_line = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(command_line)

# The splits that the public collection has.
SPLITS = {
    "nq": ("train", "dev", "test"),
    "triviaqa": ("train", "dev", "test"),
    "popqa": ("test",),
    "hotpotqa": ("train", "dev"),
    "2wikimultihopqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "bamboogle": ("test",),
}


def question(name, split, number, **changes):
    """A row as in the collection; its metadata is of another type in every set."""
    metadata = [{}, {"type": split}, ["x"], {"context": {"title": ["a"]}}][len(name) % 4]
    row = {
        "id": f"{split}_{number}",
        "question": f"which {name} {split} number is {number}",
        "golden_answers": [str(number), f"number {number}"],
        "metadata": metadata,
    }
    return row | changes


def write_jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_collection(directory, count=6, splits=SPLITS):
    """The collection's layout, with `count` rows in each split."""
    for name, its_splits in splits.items():
        for split in its_splits:
            write_jsonl(directory / name / f"{split}.jsonl", [question(name, split, n) for n in range(count)])
    return directory


def run(out, *words):
    """The exit code of the command line, in this process."""
    return command_line.main(["--out", str(out), *map(str, words)])


def script(environment, *words):
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def environment_for(directory):
    """A subprocess that imports this tree, reaches no network and keeps its caches to itself."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "HF_HOME": str(directory / "cache"), "HF_HUB_OFFLINE": "1"}


def rows(path):
    return pq.read_table(path).to_pylist()


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


def manifest(out):
    return json.loads((out / "manifest.json").read_text(encoding="utf-8"))
