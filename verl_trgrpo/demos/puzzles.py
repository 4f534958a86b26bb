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

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.data.write import DataSet
from verl_trgrpo.tasks.knights_and_knaves.puzzles import kk_schema, puzzle_row
from verl_trgrpo.tasks.knights_and_knaves.rows import generate_splits

# The quickstart's model: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoint"
# Longest response of that model.
MAX_RESPONSE_TOKENS = 176

# The quickstart's puzzles by number of people. With two people there are too few to learn from and be tested on.
TRAIN = {3: 1024}
TEST = {3: 256}
FILES = ("train.parquet", "test.parquet")


@dataclass(frozen=True)
class KeyHalf:
    """Container of the canonical keys of puzzles whose SHA-256 begins with the given bit.

    Args:
        bit: 0 or 1.
        sizes: number of different puzzles in this half by number of people, where all of them were enumerated.
    """

    bit: int
    sizes: Mapping[int, int]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hashlib.sha256(key.encode()).digest()[0] >> 7 == self.bit


# Handed to `generate_puzzles` as ``exclude``, one half leaves the other.
WARM_START, HELD_OUT = KeyHalf(0, {2: 48, 3: 7515}), KeyHalf(1, {2: 47, 3: 7573})


def check_available(asked: Mapping[int, int], half: KeyHalf) -> None:
    """Raise ValueError if a half has not as many different puzzles as `asked` by number of people, as far as is known."""
    raise_invalid(
        [
            f"{count} different puzzles with {n_people} people: only {half.sizes[n_people]} exist here; request fewer"
            for n_people, count in sorted(asked.items())
            if count > half.sizes.get(n_people, count)
        ]
    )


def build_dataset(
    directory: Path, seed: int = 0, train: Mapping[int, int] = TRAIN, test: Mapping[int, int] = TEST
) -> bool:
    """Write the quickstart's ``train.parquet``, ``test.parquet`` and a manifest unless they are there.

    No test puzzle equals a train puzzle or a warm-start puzzle, also not after renaming or reordering people.

    Args:
        directory: of the files.
        seed: equal seeds give equal files.
        train: numbers of train puzzles by number of people.
        test: numbers of test puzzles by number of people.

    Returns:
        True if the files were built.

    Raises:
        ValueError: there are not as many puzzles, or the directory cannot be written or has data files of another origin.
    """
    check_available({n: train.get(n, 0) + test.get(n, 0) for n in {*train, *test}}, HELD_OUT)
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
