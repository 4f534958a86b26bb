"""What the tiny model reads and writes: puzzles that refer to people by number, and worked truth tables.

Numbers spare the model a step: in ``(2) Oliver: (1) is a knave`` the mention is one token, the same in every puzzle. The
name occurs once, after the very token that stands before it in the answer, so that copying it is a matter of looking up.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, MAX_PEOPLE, Statement, evaluate
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_response
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.wording import english

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PERSONS = tuple(f"({number})" for number in range(1, MAX_PEOPLE + 1))

# How a response begins that works out the table: the first person of the first assignment.
CAREFUL_START = "<think>K"


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
            truths = [evaluate(part, assignment) for part in (*_parts(statement), statement)]
            words += [person, *("T" if truth else "F" for truth in truths)]
            words.append("ok" if truths[-1] == is_knight else "no")
            if truths[-1] != is_knight:
                break
        lines.append(" ".join(words))
        if words[-1] == "ok":
            break
    return "\n".join(lines)


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


def _parts(statement: Statement) -> tuple[Statement, ...]:
    """Return the operands of a composed statement, those that have a truth of their own; a negation has one."""
    return () if statement[0] in LEAVES else statement[1:]
