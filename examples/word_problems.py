"""Two-step word problems from reasoning-gym's ``gsm_symbolic`` for the small language model.

Of the generator's templates those are kept whose worked solution has exactly two calculations with whole numbers, the
second of which uses the result of the first. About a dozen templates are left; names, things and numbers vary. The problems to
train on, to test on and to warm up with are different ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.tasks.data_set import DataSet
from verl_trgrpo.tasks.math.rows import BOXED_INSTRUCTION

# Rows of the test file, demonstrations of the warm start, rows of the train file, in the order of the generator's stream: another
# number of the latter leaves the former as they are.
TEST, WARM_START, TRAIN = 256, 1600, 2048

# Problems with a larger number are left out: a model of this size cannot learn to calculate with them in minutes.
LARGEST = 100
# Questions of more words are left out, to save time.
LONGEST = 50
# Length of the generator's stream.
STREAM = 200_000

_NUMBER = r"\d+(?:\.\d+)?"
_CALCULATION = re.compile(rf"(?<![\w.])({_NUMBER}(?: *[-+*/x] *{_NUMBER})+) *= *({_NUMBER})")
_ASKED_FOR = " Give the result as your final answer. Do not include units."


@dataclass(frozen=True)
class Step:
    """One calculation.

    expression: such as ``9 - 3``.
    value: its result.
    sentence: the sentence that the calculation stood in, with ``{calculation}`` in its place.
    """

    expression: str
    value: int
    sentence: str


@dataclass(frozen=True)
class WordProblem:
    """A question with a whole number as its answer, and the two steps to it."""

    question: str
    answer: int
    steps: tuple[Step, Step]


def build_dataset(directory: Path) -> bool:
    """Write ``train.parquet``, ``test.parquet`` and a manifest unless they are there.

    Returns:
        True if the files were built.

    Raises:
        ValueError: the directory cannot be written or has data files of another origin.
    """
    data_set = DataSet(
        directory,
        builder="small-lm",
        made_from={"test": TEST, "train": TRAIN, "warm_start": WARM_START, "largest": LARGEST, "longest": LONGEST},
        command=["examples/small_lm.py"],
        libraries=["reasoning-gym"],
        replace_other=True,
    )
    if data_set.is_there():
        return False
    data_set.write(_rows(), arrow_schema([pa.field("question", pa.string())]))
    return True


def _rows() -> dict[str, list[dict[str, Any]]]:
    problems = split_problems()
    return {
        split: [
            build_row(
                data_source="math",
                prompt=prompt_messages(problem),
                ability="math",
                ground_truth=str(problem.answer),
                extra_info={"question": problem.question},
            )
            for problem in problems[split]
        ]
        for split in ("train", "test")
    }


def prompt_messages(problem: WordProblem) -> list[dict[str, str]]:
    """Return the chat messages that ask for the answer: the question, and the instruction of the mathematics task."""
    return [{"role": "user", "content": f"{problem.question} {BOXED_INSTRUCTION}"}]


def split_problems() -> dict[str, list[WordProblem]]:
    """Return the problems of ``test``, ``warm_start`` and ``train``, all different."""
    stream = two_step_problems()
    sizes = {"test": TEST, "warm_start": WARM_START, "train": TRAIN}
    return {name: [*itertools.islice(stream, size)] for name, size in sizes.items()}


def two_step_problems() -> Iterator[WordProblem]:
    """Yield the different problems of the generator's stream; about one of seven there is kept."""
    import reasoning_gym

    seen: set[str] = set()
    for entry in reasoning_gym.create_dataset("gsm_symbolic", seed=0, size=STREAM):
        problem = _two_steps(entry)
        if problem and problem.question not in seen:
            seen.add(problem.question)
            yield problem


def _two_steps(entry: dict) -> WordProblem | None:
    solution = entry["metadata"]["answer_cot"].split("####")[0]
    found = [(line, match) for line in solution.splitlines() for match in _CALCULATION.finditer(line)]
    if len(found) != 2 or solution.count("=") != 2:
        return None
    steps = tuple(
        Step(_spaced(match[1]), round(float(match[2])), line.replace(match[0], "{calculation}"))
        for line, match in found
    )
    numbers = [
        float(number) for number in re.findall(_NUMBER, entry["question"] + " ".join(s.expression for s in steps))
    ]
    exact = all(
        abs(calculate(step.expression) - float(match[2])) < 1e-9 for step, (_, match) in zip(steps, found, strict=True)
    )
    whole = all(number == int(number) <= LARGEST for number in [*numbers, *(float(match[2]) for _, match in found)])
    short = len(entry["question"].removesuffix(_ASKED_FOR).split()) <= LONGEST
    linked = str(steps[0].value) in steps[1].expression.split()
    if not (exact and whole and short and linked and entry["answer"] == str(steps[1].value)):
        return None
    question = entry["question"].removesuffix(_ASKED_FOR)
    return WordProblem(question, steps[1].value, (steps[0], steps[1]))


def _spaced(expression: str) -> str:
    return " ".join(re.findall(rf"{_NUMBER}|[-+*/]", expression.replace("x", "*")))


def calculate(expression: str) -> float:
    """Return the value of numbers and the four operations, separated by spaces; products before sums."""
    words = expression.split()
    terms, sign = [float(words[0])], 1.0
    total = 0.0
    for operation, word in zip(words[1::2], words[2::2], strict=True):
        if operation == "*":
            terms[-1] *= float(word)
        elif operation == "/":
            terms[-1] /= float(word)
        else:
            total += sign * terms[-1]
            sign = 1.0 if operation == "+" else -1.0
            terms[-1] = float(word)
    return total + sign * terms[-1]
