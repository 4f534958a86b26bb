"""Knights-and-Knaves puzzles of the quickstart, none of them seen in the warm start of its model.

Puzzles are split by a hash of their canonical key, which is the same under all names and orders: warm starts show one half, and
the data sets of demonstrations are made from the other.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_trgrpo.tasks.data_set import DataSet
from verl_trgrpo.tasks.knights_and_knaves.puzzles import kk_schema, puzzle_row
from verl_trgrpo.tasks.knights_and_knaves.rows import generate_splits

# The quickstart's model: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoint"
# Longest response of that model.
MAX_RESPONSE_TOKENS = 176

# The quickstart's puzzles by number of people. With two people there are too few to learn from and be tested on.
TRAIN = {3: 1024}
TEST = {3: 256}


@dataclass(frozen=True)
class KeyHalf:
    """Container of the canonical keys of puzzles whose SHA-256 begins with the bit 0 or 1."""

    bit: int

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hashlib.sha256(key.encode()).digest()[0] >> 7 == self.bit


# Handed to `generate_puzzles` as ``exclude``, one half leaves the other.
WARM_START, HELD_OUT = KeyHalf(0), KeyHalf(1)


def build_dataset(
    directory: Path, seed: int = 0, train: Mapping[int, int] = TRAIN, test: Mapping[int, int] = TEST
) -> bool:
    """Write the quickstart's ``train.parquet``, ``test.parquet`` and a manifest unless they are there.

    No test puzzle equals a train puzzle or a warm-start puzzle, also not after renaming or reordering people. Equal seeds give
    equal files; `train` and `test` have the numbers of puzzles by number of people. Returns True if the files were built.

    Raises:
        ValueError: there are not as many puzzles, or the directory cannot be written or has data files of another origin.
    """
    counts = {
        name: {f"{n}ppl": count for n, count in split.items()} for name, split in (("train", train), ("test", test))
    }
    data_set = DataSet(
        directory,
        builder="quickstart",
        made_from={**counts, "seed": seed},
        command=["verl-trgrpo", "quickstart"],
        libraries=["reasoning-gym", "numpy"],
        replace_other=True,
    )
    if data_set.is_there():
        return False
    splits = generate_splits(dict(sorted(train.items())), dict(sorted(test.items())), seed, exclude=WARM_START)
    rows = {}
    for split, puzzles in splits.items():
        random.Random(f"{split}.parquet/{seed}").shuffle(puzzles)
        rows[split] = [puzzle_row(puzzle, terse=True, extra_info=()) for puzzle in puzzles]
    data_set.write(rows, kk_schema(extra_info=()))
    return True
