"""Knights-and-Knaves puzzles with two people for the small language model, none of them seen in its warm start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from verl_trgrpo.demos.puzzles import WARM_START
from verl_trgrpo.tasks.data_set import DataSet
from verl_trgrpo.tasks.knights_and_knaves.logic import permute
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    Puzzle,
    choose_names,
    generate_puzzles,
    kk_schema,
    puzzle_row,
    quiz_text,
)

# Of each half so many puzzles are used; of the held-out ones the first belong to the test file, the others to the train file.
# Within a file puzzles come back with other names, in another order and in other words.
PEOPLE, HALF, TEST_PUZZLES = 2, 40, 20
ROWS = {"test": 256, "train": 1024}


def build_dataset(directory: Path) -> bool:
    """Write the small language model's train and test files and a manifest, and return True, unless they are there.

    Raises:
        ValueError: the directory cannot be written or has data files of another origin.
    """
    data_set = DataSet(
        directory,
        builder="small-lm-puzzles",
        made_from={**ROWS, "people": PEOPLE, "warm_start_puzzles": HALF, "test_puzzles": TEST_PUZZLES},
        command=["examples/small_lm.py", "--task", "puzzles"],
        libraries=["reasoning-gym", "numpy"],
        replace_other=True,
    )
    if data_set.is_there():
        return False
    held_out = [*generate_puzzles(PEOPLE, HALF, 0, exclude=WARM_START)]
    rows = {}
    for split, puzzles in (("test", held_out[:TEST_PUZZLES]), ("train", held_out[TEST_PUZZLES:])):
        shown = islice(variants(puzzles, random.Random(split)), ROWS[split])
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
    """Return the same puzzle without its quiz, people and operands in another order where it is free, and other names."""
    n_people = len(puzzle.names)
    labels = rng.sample(range(n_people), n_people)
    statements = permute(puzzle.statements, labels, arrange=rng.shuffle)
    solution = tuple(is_knight for _, is_knight in sorted(zip(labels, puzzle.solution, strict=True)))
    return replace(puzzle, quiz="", names=choose_names(n_people, rng), statements=statements, solution=solution)
