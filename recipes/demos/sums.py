"""Sums and differences in one sentence, with answers of about ten tokens, on which a small language model can be trained far.

Made for recipes/compare/small_lm_sums.yaml: a prompt has about 40 tokens and an answer ten, so that a step of the single-file
trainer takes seconds of one core. Pairs of numbers are divided into those to train on, warm start included, and those to test on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.write import DataFile, write_dataset

# Rows of the files; demonstrations of the warm start.
TRAIN, TEST, WARM_START = 1024, 128, 480
# Of the pairs of numbers, so many of each operation are held out.
HELD_OUT_PAIRS = 20
INSTRUCTION = 'End with "Answer: X".'

_NAMES = ("Tom", "Ann", "Bob", "Sam", "Max", "Kim", "Dan", "Ben", "Eva", "Leo", "Amy", "Pam")
_THINGS = ("apples", "books", "coins", "cards", "keys", "balls", "pens", "eggs")
_QUESTIONS = {
    "+": (
        "{name} has {a} {things} and gets {b} more. How many now?",
        "{name} finds {a} {things}, then {b} more. How many in all?",
        "{name} buys {a} red {things} and {b} blue ones. How many in all?",
    ),
    "-": (
        "{name} has {a} {things} and loses {b}. How many are left?",
        "{name} gives away {b} of {a} {things}. How many are left?",
        "{name} had {a} {things} but sold {b}. How many now?",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sum:
    """A question about the sum or the difference of two numbers."""

    question: str
    operation: str
    numbers: tuple[int, int]

    @property
    def answer(self) -> int:
        """Return the right result."""
        first, second = self.numbers
        return first + second if self.operation == "+" else first - second


def split_pairs(held_out: bool) -> dict[str, list[tuple[int, int]]]:
    """Return the pairs of numbers of each operation, either those held out or the others; all results are from 1 to 20."""
    rng = random.Random("pairs of numbers")
    pairs = {
        "+": [(a, b) for a in range(2, 12) for b in range(2, 10)],
        "-": [(a, b) for a in range(4, 20) for b in range(2, 10) if a - b >= 1],
    }
    for numbers in pairs.values():
        rng.shuffle(numbers)
    return {sign: found[:HELD_OUT_PAIRS] if held_out else found[HELD_OUT_PAIRS:] for sign, found in pairs.items()}


def sums(name: str, count: int) -> list[Sum]:
    """Return `count` different questions of ``train``, ``test`` or ``warm_start``, as many sums as differences."""
    rng, pairs = random.Random(f"sums/{name}"), split_pairs(held_out=name == "test")
    found: dict[str, Sum] = {}
    while len(found) < count:
        sign = "+-"[len(found) % 2]
        a, b = rng.choice(pairs[sign])
        question = rng.choice(_QUESTIONS[sign]).format(name=rng.choice(_NAMES), things=rng.choice(_THINGS), a=a, b=b)
        found.setdefault(question, Sum(question, sign, (a, b)))
    return [*found.values()]


def prompt_messages(problem: Sum) -> list[dict[str, str]]:
    """Return the chat messages that ask for the answer; a system message spares the long one of the chat template."""
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": problem.question}]


def build_dataset(directory: Path) -> bool:
    """Write ``train.parquet``, ``test.parquet`` and a manifest unless they are there; return whether they were built."""
    manifest = write_dataset(
        directory,
        _data_files(),
        arrow_schema([pa.field("question", pa.string())]),
        builder="sums",
        made_from={"test": TEST, "train": TRAIN},
        command=["recipes/demos/warm_start.py", "sums"],
        replace_other=True,
    )
    return manifest is not None


def _data_files() -> Iterator[DataFile]:
    for split, count in (("train", TRAIN), ("test", TEST)):
        rows = [
            build_row(
                data_source="math",
                prompt=prompt_messages(problem),
                ability="math",
                ground_truth=str(problem.answer),
                extra_info={"question": problem.question},
            )
            for problem in sums(split, count)
        ]
        yield DataFile(split, rows)
