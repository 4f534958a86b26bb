"""Slow and plain counterparts of what the tests check, written without the package's logic."""

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Statement = tuple[Any, ...]


def holds(statement: Statement, assignment: tuple[bool, ...]) -> bool:
    operator, *operands = statement
    if operator == "telling-truth":
        return assignment[operands[0]]
    if operator == "lying":
        return not assignment[operands[0]]
    values = [holds(operand, assignment) for operand in operands]
    return {
        "not": not values[0],
        "and": all(values),
        "or": any(values),
        "->": not values[0] or values[-1],
        "<=>": values[0] == values[-1],
    }[operator]


def solutions(statements: tuple[Statement, ...]) -> list[tuple[bool, ...]]:
    return [
        assignment
        for assignment in itertools.product([True, False], repeat=len(statements))
        if all(holds(statement, assignment) == assignment[i] for i, statement in enumerate(statements))
    ]


def rename(statement: Statement, order: tuple[int, ...], rng: random.Random | None = None) -> Statement:
    """Person i becomes person order[i]; with `rng`, commutative operands are shuffled, without it they are sorted."""
    operator, *operands = statement
    if operator in ("telling-truth", "lying"):
        return (operator, order[operands[0]])
    operands = [rename(operand, order, rng) for operand in operands]
    if operator in ("and", "or", "<=>"):
        if rng is None:
            operands.sort(key=repr)
        else:
            rng.shuffle(operands)
    return (operator, *operands)


def renamed(statements: tuple[Statement, ...], order: tuple[int, ...], rng: random.Random | None = None) -> Any:
    """The puzzle in which person i became person order[i], as speaker and where mentioned."""
    result: list[Any] = [None] * len(statements)
    for speaker, statement in enumerate(statements):
        result[order[speaker]] = rename(statement, order, rng)
    return tuple(result)


def smallest_renaming(statements: tuple[Statement, ...]) -> str:
    """The naive canonical form: the minimum over all n! orders of the people."""
    orders = itertools.permutations(range(len(statements)))
    return min(repr(renamed(statements, order)) for order in orders)


def random_statement(n_people: int, rng: random.Random, depth: int) -> Statement:
    if depth == 0 or rng.random() < 0.2:
        return (rng.choice(["telling-truth", "lying"]), rng.randrange(n_people))
    operator = rng.choice(["not", "and", "or", "->", "<=>"])
    count = 1 if operator == "not" else rng.randint(2, 3) if operator in ("and", "or") else 2
    return (operator, *(random_statement(n_people, rng, depth - 1) for _ in range(count)))


def public_row(puzzle: Any) -> dict[str, Any]:
    """The puzzle as a row of the public data set."""
    roles = ["knight" if is_knight else "knave" for is_knight in puzzle.solution]
    said = [f"{name} is a {role}" for name, role in zip(puzzle.names, roles, strict=True)]
    return {
        "quiz": puzzle.quiz,
        "names": list(puzzle.names),
        "solution": list(puzzle.solution),
        "solution_text_format": "\n".join(f"({k}) {line}" for k, line in enumerate(said, start=1)),
        "statements": repr(puzzle.statements),
    }


def write_jsonl(path: Path, puzzles: Iterable[Any]) -> Path:
    """Write puzzles as a file of the public data set."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(public_row(puzzle)) + "\n" for puzzle in puzzles), encoding="utf-8")
    return path


def count_puzzles(n_people: int) -> int:
    """Number of different puzzles with one solution that the sampler can make, by Burnside's lemma.

    Puzzles are counted once that only differ in names, in the order of people and in the order of operands.
    """
    every = list(itertools.product([True, False], repeat=n_people))
    total = 0
    for order in itertools.permutations(range(n_people)):
        # Set of assignments that fit, as bits -> number of puzzles, so far, that the renaming leaves as they are.
        found = Counter({(1 << len(every)) - 1: 1})
        for cycle in _cycles(order):
            fitting: Counter[int] = Counter()
            for statement in _sampled_statements(n_people, cycle[0]):
                spoken, fits = statement, -1
                for person in cycle:
                    fits &= sum(1 << k for k, a in enumerate(every) if holds(spoken, a) == a[person])
                    spoken = rename(spoken, order)
                if spoken == statement:
                    fitting[fits] += 1
            product: Counter[int] = Counter()
            for (one, count), (other, more) in itertools.product(found.items(), fitting.items()):
                product[one & other] += count * more
            found = product
        total += sum(count for fits, count in found.items() if fits.bit_count() == 1)
    return total // math.factorial(n_people)


def _cycles(order: tuple[int, ...]) -> list[list[int]]:
    cycles: list[list[int]] = []
    for start in range(len(order)):
        if not any(start in cycle for cycle in cycles):
            cycles.append([start])
            while (following := order[cycles[-1][-1]]) != start:
                cycles[-1].append(following)
    return cycles


def _sampled_statements(n_people: int, speaker: int) -> Iterator[Statement]:
    leaves = [(kind, person) for kind in ("telling-truth", "lying") for person in range(n_people)]
    leaves.remove(("lying", speaker))
    yield from leaves
    yield from (("not", leaf) for leaf in leaves)
    yield from (("->", *pair) for pair in itertools.permutations(leaves, 2))
    for pair in itertools.combinations(sorted(leaves, key=repr), 2):
        yield from ((operator, *pair) for operator in ("and", "or", "<=>"))
