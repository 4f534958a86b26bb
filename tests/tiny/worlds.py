"""Puzzles that the warm start never shows, and truths worked out independently of the package."""

from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tiny.puzzles import WARM_START


def unseen_puzzles(n_people: int, count: int, seed: int) -> list[Puzzle]:
    return list(generate_puzzles(n_people, count, seed, exclude=WARM_START))


def holds(statement, assignment) -> bool:
    """Whether a statement is true where person i is a knight if assignment[i]."""
    operator, *operands = statement
    if operator in ("telling-truth", "lying"):
        return assignment[operands[0]] == (operator == "telling-truth")
    truths = [holds(operand, assignment) for operand in operands]
    if operator == "not":
        return not truths[0]
    return {
        "and": truths[0] and truths[-1],
        "or": truths[0] or truths[-1],
        "->": truths[-1] or not truths[0],
        "<=>": truths[0] == truths[-1],
    }[operator]
