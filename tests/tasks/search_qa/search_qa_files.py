"""Sources that the tests write, and the command line under test."""

import json

from tests.data.builder_files import load_script, run_script

command_line = load_script("search_qa")

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
    return run_script("search_qa", environment, *words)
