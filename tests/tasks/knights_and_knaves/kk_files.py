"""Files that the tests write, and the command line under test."""

import json

from tests.data.builder_files import run_script
from tests.tasks.knights_and_knaves.kk_oracle import public_row


def arguments(out, *more, people="3", train="6", test="3"):
    return ["--out", str(out), "--people", *people.split(), "--train", train, "--test", test, *map(str, more)]


def script(environment, *words):
    return run_script("kk", environment, *words)


def write_jsonl(path, puzzles):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(public_row(puzzle)) + "\n" for puzzle in puzzles), encoding="utf-8")
    return path
