"""Sources that the tests write."""

import json

from verl_trgrpo.cli.main import main
from verl_trgrpo.tasks.search_qa.rows import HUB_SPLITS


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


def write_collection(directory, count=6, splits=HUB_SPLITS):
    """The collection's layout, with `count` rows in each split."""
    for name, its_splits in splits.items():
        for split in its_splits:
            write_jsonl(directory / name / f"{split}.jsonl", [question(name, split, n) for n in range(count)])
    return directory


def run(out, *words):
    """Return the exit code of the command line, in this process."""
    return main(["data", "build", "search-qa", "--out", str(out), *map(str, words)])
