"""The quickstart's puzzles as veRL parquet: none of them was seen in the tiny model's warm start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_trgrpo.data.write import DataFile, write_dataset
from verl_trgrpo.tasks.knights_and_knaves.rows import generate_splits, kk_schema, puzzle_row
from verl_trgrpo.tiny.puzzles import WARM_START

# Puzzles by number of people. With two people there are only 95 different ones, too few to learn from and be tested on.
TRAIN = {3: 1024}
TEST = {3: 256}

FILES = ("train.parquet", "test.parquet")


def build_dataset(
    directory: Path, seed: int = 0, train: Mapping[int, int] = TRAIN, test: Mapping[int, int] = TEST
) -> bool:
    """Write ``train.parquet``, ``test.parquet`` and a manifest, or find them there; return whether they were built.

    `train` and `test` are numbers of puzzles by number of people; equal seeds give equal files. No test puzzle equals a
    train puzzle or a warm-start puzzle, also not after renaming or reordering people.

    Raises ValueError when the directory cannot be written or has data files of unknown origin, or when there are not as
    many puzzles.
    """
    counts = {
        name: {f"{n}ppl": count for n, count in split.items()} for name, split in (("train", train), ("test", test))
    }
    manifest = write_dataset(
        directory,
        _data_files(seed, train, test),
        kk_schema(extra_info=()),
        builder="quickstart",
        made_from={**counts, "seed": seed},
        command=["verl-trgrpo", "quickstart"],
        libraries=["reasoning-gym", "numpy"],
        replace_other=True,
    )
    return manifest is not None


def _data_files(seed: int, train: Mapping[int, int], test: Mapping[int, int]) -> Iterator[DataFile]:
    splits = generate_splits(dict(sorted(train.items())), dict(sorted(test.items())), seed, exclude=WARM_START)
    for split, puzzles in splits.items():
        random.Random(f"{split}.parquet/{seed}").shuffle(puzzles)
        yield DataFile(split, [puzzle_row(puzzle, terse=True, extra_info=()) for puzzle in puzzles])
