"""Knights-and-Knaves puzzles of the quickstart and of the small language model, none of them seen in a warm start.

Puzzles are split by a hash of their canonical key, which is the same under all names and orders: the warm starts show one half,
and the data sets of the demonstrations are made from the other.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.data.write import DataSet
from verl_trgrpo.tasks.knights_and_knaves.logic import permute
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, choose_names, generate_puzzles, quiz_text
from verl_trgrpo.tasks.knights_and_knaves.rows import generate_splits, kk_schema, puzzle_row

# The quickstart's model: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "puzzles"
# Longest response of that model.
MAX_RESPONSE_TOKENS = 176

# The quickstart's puzzles by number of people. With two people there are too few to learn from and be tested on.
TRAIN = {3: 1024}
TEST = {3: 256}
FILES = ("train.parquet", "test.parquet")

# The small language model's puzzles have two people. Of each half so many puzzles are used; of the held-out ones the first
# belong to the test file, the others to the train file. Within a file puzzles come back with other names, in another order and
# in other words.
PEOPLE, HALF, TEST_PUZZLES = 2, 40, 20
SMALL_LM_ROWS = {"test": 256, "train": 1024}


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


def build_small_lm_dataset(directory: Path) -> bool:
    """Write the small language model's ``train.parquet``, ``test.parquet`` and a manifest unless they are there.

    Returns:
        True if the files were built.

    Raises:
        ValueError: the directory cannot be written or has data files of another origin.
    """
    data_set = DataSet(
        directory,
        builder="small-lm-puzzles",
        made_from={**SMALL_LM_ROWS, "people": PEOPLE, "warm_start_puzzles": HALF, "test_puzzles": TEST_PUZZLES},
        command=["verl-trgrpo", "small-lm", "--task", "puzzles"],
        libraries=["reasoning-gym", "numpy"],
        replace_other=True,
    )
    if data_set.is_there():
        return False
    held_out = [*generate_puzzles(PEOPLE, HALF, 0, exclude=WARM_START)]
    rows = {}
    for split, puzzles in (("test", held_out[:TEST_PUZZLES]), ("train", held_out[TEST_PUZZLES:])):
        shown = islice(variants(puzzles, random.Random(split)), SMALL_LM_ROWS[split])
        rows[split] = [puzzle_row(puzzle, extra_info=("statements",)) for puzzle in shown]
    data_set.write(rows, kk_schema(extra_info=("statements",)))
    return True


def variants(puzzles: Sequence[Puzzle], rng: random.Random) -> Iterator[Puzzle]:
    """Yield variations of puzzles with their quiz, without end, no two with the same words, each puzzle equally often."""
    seen: set[str] = set()
    while True:
        for puzzle in puzzles:
            varied = vary(puzzle, rng)
            quiz = quiz_text(varied.names, varied.statements, rng)
            if quiz not in seen:
                seen.add(quiz)
                yield replace(varied, quiz=quiz)


def vary(puzzle: Puzzle, rng: random.Random) -> Puzzle:
    """Return the same puzzle with people in another order, other names, and operands swapped where order is free.

    The quiz is left empty.
    """
    n_people = len(puzzle.names)
    labels = rng.sample(range(n_people), n_people)
    statements = permute(puzzle.statements, labels, arrange=rng.shuffle)
    solution = tuple(is_knight for _, is_knight in sorted(zip(labels, puzzle.solution, strict=True)))
    return replace(puzzle, quiz="", names=choose_names(n_people, rng), statements=statements, solution=solution)
