"""Slow and plain counterparts of what the tests check, written without the package's logic."""

import itertools
import random
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


def renamed(statements: tuple[Statement, ...], order: tuple[int, ...], rng: random.Random | None = None) -> Any:
    """Person i becomes person order[i]; with `rng`, commutative operands are shuffled, without it they are sorted."""

    def walk(statement: Statement) -> Statement:
        operator, *operands = statement
        if operator in ("telling-truth", "lying"):
            return (operator, order[operands[0]])
        operands = [walk(operand) for operand in operands]
        if operator in ("and", "or", "<=>"):
            if rng is None:
                operands.sort(key=repr)
            else:
                rng.shuffle(operands)
        return (operator, *operands)

    result: list[Any] = [None] * len(statements)
    for speaker, statement in enumerate(statements):
        result[order[speaker]] = walk(statement)
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
