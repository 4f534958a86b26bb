"""Sources that the tests write, and the builder under test."""

import json

from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.search_qa.build import SearchQaOptions, build
from verl_trgrpo.tasks.search_qa.sources import HUB_SPLITS


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
    """The exit code of the command line, in this process."""
    return run_builder(SearchQaOptions, build, "data_prep/search_qa.py", "", argv=["--out", str(out), *map(str, words)])
