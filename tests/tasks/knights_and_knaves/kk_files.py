"""Files that the tests write, and builds of them."""

import json

from tests.data.builder_files import rows_of
from tests.tasks.knights_and_knaves.kk_oracle import public_row
from verl_trgrpo.tasks.knights_and_knaves.build import KkOptions, build


def write_jsonl(path, puzzles):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(public_row(puzzle)) + "\n" for puzzle in puzzles), encoding="utf-8")
    return path


def build_kk(out, *, people=(3,), train=6, test=3, **options):
    """Build into `out`; return the rows by split, and the manifest."""
    manifest = build(KkOptions(out=out, people=people, train=train, test=test, **options))
    return {split: rows_of(out / f"{split}.parquet") for split in ("train", "test")}, manifest
