"""The quickstart's puzzles as veRL parquet: none of them was seen in the tiny model's warm start."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from pathlib import Path

from verl_trgrpo.data import schema
from verl_trgrpo.data.build import DataSet, build_data_set
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tiny.puzzles import WARM_START, prompt_messages

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
    manifest = build_data_set(
        "quickstart",
        directory,
        {**counts, "seed": seed},
        lambda: _make(seed, train, test),
        command=["verl-trgrpo", "quickstart"],
        libraries=["reasoning-gym", "numpy"],
    )
    return manifest is not None


def _make(seed: int, train: Mapping[int, int], test: Mapping[int, int]) -> DataSet:
    puzzles: dict[str, list[Puzzle]] = {"train": [], "test": []}
    for n_people in sorted({*train, *test}):
        tests = test.get(n_people, 0)
        stream = generate_puzzles(n_people, tests + train.get(n_people, 0), seed, exclude=WARM_START)
        # Test first: another number of train puzzles would leave the test set as it is.
        puzzles["test"] += itertools.islice(stream, tests)
        puzzles["train"] += stream
    files = {}
    for split, found in puzzles.items():
        random.Random(f"{split}.parquet/{seed}").shuffle(found)
        files[split] = [
            schema.build_row(
                data_source=f"kk_{len(puzzle.names)}ppl",
                prompt=prompt_messages(puzzle),
                ability="logic",
                ground_truth=format_solution(puzzle.names, puzzle.solution),
                extra_info={},
            )
            for puzzle in found
        ]
    return DataSet(files, schema.arrow_schema([]))
