"""The world of the puzzle model: Knights-and-Knaves puzzles, and demonstrations that work out truth tables.

Puzzles refer to people by number, which spares the model a step: in ``(2) Oliver: (1) is a knave`` the mention is one
token, the same in every puzzle. The name occurs once, after the very token that stands before it in the answer, so that
copying it is a matter of looking up.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, MAX_PEOPLE, Statement, evaluate
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    Puzzle,
    choose_names,
    english,
    format_response,
    generate_puzzles,
)
from verl_trgrpo.tiny.tokenizer import TAG_TOKENS
from verl_trgrpo.tiny.training import Demonstration, Segment, WarmStart

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Checkpoint that comes with the package: weights in bf16, tokenizer, and manifest.json, which says how it was made.
CHECKPOINT = Path(__file__).parent / "checkpoints" / "puzzles"

PERSONS = tuple(f"({number})" for number in range(1, MAX_PEOPLE + 1))

# Added tokens are cut out before Qwen2's rules, which would make four tokens of " (1)". One token per mention of a person
# makes puzzles and answers shorter.
PERSON_TOKENS = (*PERSONS, *(f" {person}" for person in PERSONS))
TOKENS = (*TAG_TOKENS, *PERSON_TOKENS, " is a", " is not a")

MAX_RESPONSE_TOKENS = 176

# There are 95 different puzzles with two people; about half of them are held out.
MOST_TWO_PERSON_PUZZLES = 40
# Shares of the sizes, by the largest size.
SIZE_SHARES = {3: {2: 0.2, 3: 0.8}, 4: {2: 0.1, 3: 0.3, 4: 0.6}}


@dataclass(frozen=True)
class KeyHalf:
    """Container of the canonical keys of puzzles whose SHA-256 begins with the given bit."""

    bit: int

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hashlib.sha256(key.encode()).digest()[0] >> 7 == self.bit


# The warm start shows puzzles of the one half only. Handed to `generate_puzzles` as ``exclude``, it leaves puzzles that the
# warm-started model has never seen.
WARM_START, HELD_OUT = KeyHalf(0), KeyHalf(1)


@dataclass(frozen=True, kw_only=True)
class PuzzleWarmStart(WarmStart):
    """Knights-and-Knaves puzzles: the model of the quickstart.

    Args:
        puzzles: different puzzles per number of people (with two at most 40).
        most_people: puzzles have two to this many people.
    """

    puzzles: int = 6000
    most_people: Literal[3, 4] = 3

    world = "puzzles"
    vocabulary = 640
    added_tokens = TOKENS
    tokenizer_examples = 4000
    tokenizer_careful = 0.5
    libraries = (*WarmStart.libraries, "reasoning-gym")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_people not in SIZE_SHARES:
            raise ValueError(f"most_people is {self.most_people}; it must be one of {', '.join(map(str, SIZE_SHARES))}")

    def demonstrations(self, rng: random.Random, shares: Iterator[float]) -> Iterator[Demonstration]:
        """Yield variations of the warm start's puzzles, and responses to them."""
        weights = SIZE_SHARES[self.most_people]
        pools = {
            size: warm_start_puzzles(
                size, min(self.puzzles, MOST_TWO_PERSON_PUZZLES if size == 2 else self.puzzles), self.seed
            )
            for size in weights
        }
        for share in shares:
            (size,) = rng.choices([*weights], [*weights.values()])
            puzzle = vary(rng.choice(pools[size]), rng)
            response = demonstration(puzzle, rng.random() < share, rng)
            yield Demonstration(prompt_messages(puzzle), [Segment(response, True)])


@functools.lru_cache(maxsize=8)
def warm_start_puzzles(n_people: int, count: int, seed: int) -> tuple[Puzzle, ...]:
    """Return `count` different puzzles of the warm start's half; ValueError when there are not that many."""
    return tuple(generate_puzzles(n_people, count, seed, exclude=HELD_OUT))


def vary(puzzle: Puzzle, rng: random.Random) -> Puzzle:
    """Return the same puzzle with people in another order, other names and operands swapped where order is free.

    The English quiz is not rewritten: it is left empty.
    """
    n_people = len(puzzle.names)
    labels = rng.sample(range(n_people), n_people)
    statements: list[Statement] = [()] * n_people
    solution = [False] * n_people
    for person, label in enumerate(labels):
        statements[label] = _relabel(puzzle.statements[person], labels, rng)
        solution[label] = puzzle.solution[person]
    names = choose_names(n_people, rng)
    return replace(puzzle, quiz="", names=names, statements=tuple(statements), solution=tuple(solution))


def _relabel(statement: Statement, labels: list[int], rng: random.Random) -> Statement:
    operator, operands = statement[0], statement[1:]
    if operator in LEAVES:
        return (operator, labels[operands[0]])
    renamed = [_relabel(operand, labels, rng) for operand in operands]
    if operator in ("and", "or", "<=>"):
        rng.shuffle(renamed)
    return (operator, *renamed)


def numbered_quiz(names: Sequence[str], statements: Sequence[Statement]) -> str:
    """Return a puzzle as one line per person, such as ``(1) Zoey: (2) is a knave or (1) is a knight``."""
    return "\n".join(
        f"{person} {name}: {english(statement, PERSONS, terse=True)}"
        for person, name, statement in zip(PERSONS, names, statements, strict=False)
    )


def prompt_messages(puzzle: Puzzle) -> list[dict[str, str]]:
    """Return the chat messages that ask for the solution of `puzzle`: its numbered quiz, without instructions."""
    return [{"role": "user", "content": numbered_quiz(puzzle.names, puzzle.statements)}]


def prompt_text(tokenizer: PreTrainedTokenizerBase, puzzle: Puzzle) -> str:
    """Return the text that the model continues: the prompt in the tokenizer's chat template, opened for a response."""
    return str(tokenizer.apply_chat_template(prompt_messages(puzzle), tokenize=False, add_generation_prompt=True))


def demonstration(puzzle: Puzzle, careful: bool, rng: random.Random) -> str:
    """Return a whole response, ``<think>...</think><answer>...</answer>``.

    A careful one works out the truth table and is right. A careless one says ``guess`` and states an assignment drawn
    uniformly.
    """
    if careful:
        reasoning, solution = truth_table_reasoning(puzzle), puzzle.solution
    else:
        reasoning, solution = "guess", tuple(rng.random() < 0.5 for _ in puzzle.names)
    return format_response(reasoning, puzzle.names, solution)


def truth_table_reasoning(puzzle: Puzzle) -> str:
    """Return the search for the solution, a line per assignment, knights first, up to the one that fits.

    A line gives each person's role (K knight, N knave), then checks the statements in turn up to the first misfit: the
    speaker, the truth (T or F) of the parts of a composed statement and of the whole, then ``ok`` or ``no``. For example
    ``K N (1) T F T ok (2) T no``: were the first a knight and the second a knave, then the first one's statement would
    be true (its first part is, its second is not), as it should be, but so would the second one's, which should not.
    """
    lines = []
    for assignment in product((True, False), repeat=len(puzzle.names)):
        words = ["K" if is_knight else "N" for is_knight in assignment]
        for person, is_knight, statement in zip(PERSONS, assignment, puzzle.statements, strict=False):
            parts = () if statement[0] in LEAVES else statement[1:]
            truths = [evaluate(part, assignment) for part in (*parts, statement)]
            words += [person, *("T" if truth else "F" for truth in truths)]
            words.append("ok" if truths[-1] == is_knight else "no")
            if truths[-1] != is_knight:
                break
        lines.append(" ".join(words))
        if words[-1] == "ok":
            break
    return "\n".join(lines)
