"""Word problems as veRL parquet: those to train on, to test on, and to warm up with are different ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.write import DataFile
from verl_trgrpo.small_lm.demonstrations import demonstration
from verl_trgrpo.small_lm.word_problems import LARGEST, LONGEST, WordProblem, two_step_problems
from verl_trgrpo.tasks.math.rows import INSTRUCTION
from verl_trgrpo.tiny.training import Demonstration, Segment

TEST, TRAIN, WARM_START = 256, 2048, 1600
DATA_SOURCE = "math"


# What the files depend on, for their manifest.
ARGUMENTS = {"test": TEST, "train": TRAIN, "warm_start": WARM_START, "largest": LARGEST, "longest": LONGEST}


def warm_start_demonstrations(seed: int) -> list[Demonstration]:
    """Return a worked solution of each of the warm start's problems; `seed` chooses wordings and mistakes."""
    rng = random.Random(seed)
    return [
        Demonstration(prompt_messages(problem), [Segment(demonstration(problem, rng), True)])
        for problem in _problems()["warm_start"]
    ]


def prompt_messages(problem: WordProblem) -> list[dict[str, str]]:
    """Return the chat messages that ask for the answer: the question, and the instruction of the mathematics task."""
    return [{"role": "user", "content": f"{problem.question} {INSTRUCTION}"}]


def _problems() -> dict[str, list[WordProblem]]:
    # Test first: another number of others would leave the test set as it is.
    stream = two_step_problems(TEST + WARM_START + TRAIN)
    return {name: [*islice(stream, n)] for name, n in (("test", TEST), ("warm_start", WARM_START), ("train", TRAIN))}


SCHEMA = arrow_schema([pa.field("question", pa.string())])


def data_files() -> Iterator[DataFile]:
    """Yield the problems to train on and to test on, none of which the warm start has seen."""
    problems = _problems()
    for split in ("train", "test"):
        rows = [
            build_row(
                data_source=DATA_SOURCE,
                prompt=prompt_messages(problem),
                ability="math",
                ground_truth=str(problem.answer),
                extra_info={"question": problem.question},
            )
            for problem in problems[split]
        ]
        yield DataFile(split, rows)
