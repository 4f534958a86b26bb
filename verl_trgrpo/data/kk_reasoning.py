"""Worked responses for the ``short`` prompt style, for the warm start of a tiny model.

A careful response enumerates the assignments, a careless one guesses. A warm start that mixes both gives
reinforcement learning something to select.
"""

import random
from itertools import product

from verl_trgrpo.data.kk_logic import evaluate
from verl_trgrpo.data.kk_prompts import format_solution
from verl_trgrpo.data.kk_puzzles import Puzzle


def truth_table_reasoning(puzzle: Puzzle, rng: random.Random) -> str:
    """Return the search for the solution as text, such as ``TTT 2, TTF 1, TFT ok``.

    Assignments come in a fixed order, knights first, as one letter per person: T tells the truth, F does not. After
    each stands the number of the first person (from 1) whose statement does not fit, or ``ok`` where all fit, which
    ends the text. `rng` is unused: all ways to reason share one signature.
    """
    lines = []
    for assignment in product((True, False), repeat=len(puzzle.names)):
        letters = "".join("T" if is_knight else "F" for is_knight in assignment)
        misfits = (
            number
            for number, (is_knight, statement) in enumerate(zip(assignment, puzzle.statements, strict=True), start=1)
            if evaluate(statement, assignment) != is_knight
        )
        misfit = next(misfits, None)
        lines.append(f"{letters} {misfit or 'ok'}")
        if misfit is None:
            break
    return ", ".join(lines)


def careless_reasoning(puzzle: Puzzle, rng: random.Random) -> str:
    """Return ``guess``: no work at all. `puzzle` and `rng` are unused: all ways to reason share one signature."""
    return "guess"


def demonstration(puzzle: Puzzle, careful: bool, rng: random.Random) -> str:
    """Return a whole response, ``<think>...</think><answer>...</answer>``.

    A careful one reasons and is right; a careless one guesses and states a uniformly random assignment.
    """
    if careful:
        reasoning, answer = truth_table_reasoning(puzzle, rng), puzzle.solution
    else:
        reasoning, answer = careless_reasoning(puzzle, rng), tuple(rng.random() < 0.5 for _ in puzzle.names)
    return f"<think>{reasoning}</think><answer>{format_solution(puzzle.names, answer)}</answer>"
