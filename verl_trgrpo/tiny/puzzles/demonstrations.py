"""Puzzles and demonstrations for the warm start of the tiny model, kept apart from those for reinforcement learning."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import replace

from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.wording import choose_names


class WarmStartPuzzles:
    """Container of the canonical keys that the warm start may use: those whose SHA-256 begins with a 0 bit.

    Handed to `generate_puzzles` as ``exclude``, it leaves puzzles that the warm-started model has never seen.
    """

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hashlib.sha256(key.encode()).digest()[0] < 128


class HeldOutPuzzles:
    """Container of the canonical keys that the warm start never sees: all that are not in `WarmStartPuzzles`."""

    def __contains__(self, key: object) -> bool:
        return key not in WarmStartPuzzles()


def warm_start_puzzles(n_people: int, count: int, seed: int) -> list[Puzzle]:
    """Return `count` different puzzles of `WarmStartPuzzles`; ValueError when there are not that many."""
    return list(generate_puzzles(n_people, count, seed, exclude=HeldOutPuzzles()))


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


def varied_puzzles(puzzles: dict[int, list[Puzzle]], shares: dict[int, float], rng: random.Random) -> Iterator[Puzzle]:
    """Yield variations of `puzzles` without end; ``shares[n]`` is the share with n people, all shares adding up to 1."""
    sizes = sorted(puzzles)
    weights = [shares[size] for size in sizes]
    while True:
        (size,) = rng.choices(sizes, weights)
        yield vary(rng.choice(puzzles[size]), rng)


def _relabel(statement: Statement, labels: list[int], rng: random.Random) -> Statement:
    operator, operands = statement[0], statement[1:]
    if operator in LEAVES:
        return (operator, labels[operands[0]])
    renamed = [_relabel(operand, labels, rng) for operand in operands]
    if operator in ("and", "or", "<=>"):
        rng.shuffle(renamed)
    return (operator, *renamed)
