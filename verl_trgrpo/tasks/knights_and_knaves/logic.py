"""Statements of Knights-and-Knaves puzzles: their form, their checks and their solutions.

Person ``i`` of a puzzle speaks statement ``i``. A statement is a nested tuple in the form of the public data set
`K-and-K/knights-and-knaves`:

- ``("telling-truth", i)`` and ``("lying", i)``: person ``i`` is a knight, a knave;
- ``("not", s)``; ``("and", s, t, ...)`` and ``("or", s, t, ...)`` with two or more operands;
- ``("->", s, t)`` and ``("<=>", s, t)``.
"""

import ast
from functools import cache
from typing import Any

from verl_trgrpo.common.problems import shorten

Statement = tuple[Any, ...]

MAX_PEOPLE = 8
MAX_LITERAL_LENGTH = 10_000
MAX_DEPTH = 8

LEAVES = ("telling-truth", "lying")
_ARITY = {"not": (1, 1), "and": (2, 8), "or": (2, 8), "->": (2, 2), "<=>": (2, 2)}


def check_statements(statements: Any) -> None:
    """Raise ValueError unless `statements` is a tuple of 1 to `MAX_PEOPLE` well-formed statements.

    Every mentioned person must be one of the speakers, and a statement may nest at most `MAX_DEPTH` operators.
    """
    if not isinstance(statements, tuple) or not 1 <= len(statements) <= MAX_PEOPLE:
        raise ValueError(
            f"statements are {shorten(statements)}; they must be a tuple with one statement for each of "
            f"1 to {MAX_PEOPLE} people"
        )
    for speaker, statement in enumerate(statements):
        _check_statement(statement, len(statements), f"statement {speaker}", MAX_DEPTH)


def _check_statement(statement: Any, n_people: int, where: str, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"{where} nests more than {MAX_DEPTH} operators; write it more simply")
    if not isinstance(statement, tuple) or not statement or not isinstance(statement[0], str):
        raise ValueError(f"{where} contains {shorten(statement)}; expected a tuple that begins with an operator name")
    operator, operands = statement[0], statement[1:]
    if operator in LEAVES:
        person = operands[0] if len(operands) == 1 else None
        if isinstance(person, bool) or not isinstance(person, int) or not 0 <= person < n_people:
            raise ValueError(f"{where} contains {shorten(statement)}; expected one person from 0 to {n_people - 1}")
        return
    if operator not in _ARITY:
        raise ValueError(f"{where} uses the operator {operator!r}; known are {', '.join([*LEAVES, *_ARITY])}")
    low, high = _ARITY[operator]
    if not low <= len(operands) <= high:
        raise ValueError(f"{where}: {operator!r} has {len(operands)} operands; expected {low} to {high}")
    for operand in operands:
        _check_statement(operand, n_people, where, depth - 1)


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Read `text`, a Python literal such as ``"(('lying', 1), ('telling-truth', 0))"``, into checked statements.

    Only literals are read, nothing is evaluated. Raises ValueError for text that is too long or too deeply nested, is
    not a literal, or fails `check_statements`.
    """
    if not isinstance(text, str):
        raise ValueError(f"statements are of type {type(text).__name__}; expected a string holding a Python literal")
    if len(text) > MAX_LITERAL_LENGTH:
        raise ValueError(f"statements have {len(text)} characters; at most {MAX_LITERAL_LENGTH} are read")
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH + 2:
        raise ValueError(f"statements nest {deepest} brackets; at most {MAX_DEPTH + 2} are read")
    try:
        statements = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"statements are {shorten(text)}; that is not a Python literal ({error})") from None
    check_statements(statements)
    return statements


def evaluate(statement: Statement, assignment: tuple[bool, ...]) -> bool:
    """Return whether the checked `statement` is true when person ``i`` is a knight exactly where `assignment[i]`."""
    masks = tuple(int(is_knight) for is_knight in assignment)
    return bool(_truth_mask(statement, masks, 1))


def solve(statements: tuple[Statement, ...]) -> list[tuple[bool, ...]]:
    """Return every assignment (True = knight) that fits all `statements`, knights first.

    An assignment fits when each knight's statement is true and each knave's is false. The order is that of
    ``itertools.product([True, False], repeat=n)``. Raises ValueError for malformed statements.
    """
    check_statements(statements)
    n_people = len(statements)
    mask = solution_mask(statements)
    return [_assignment(number, n_people) for number in range(1 << n_people) if mask >> number & 1]


def solution_mask(statements: tuple[Statement, ...]) -> int:
    """Return the solutions of checked `statements` as a bit set over the ``2**n`` assignments.

    In the number of an assignment the first person is the most significant bit and a knight is 0, so that bit 0
    stands for "all knights". One Python integer holds the truth of a statement in all assignments at once, which
    makes this many times faster than evaluating assignment after assignment.
    """
    n_people = len(statements)
    knights = knight_masks(n_people)
    everything = (1 << (1 << n_people)) - 1
    mask = everything
    for knight, statement in zip(knights, statements, strict=True):
        mask &= ~(knight ^ _truth_mask(statement, knights, everything))
        if not mask:
            break
    return mask


def unique_solution(statements: tuple[Statement, ...]) -> tuple[bool, ...] | None:
    """Return the solution of checked `statements` when there is exactly one, else None."""
    mask = solution_mask(statements)
    if not mask or mask & (mask - 1):
        return None
    return _assignment(mask.bit_length() - 1, len(statements))


def _assignment(number: int, n_people: int) -> tuple[bool, ...]:
    return tuple(not number >> (n_people - 1 - person) & 1 for person in range(n_people))


def misfit_masks(statements: tuple[Statement, ...]) -> tuple[int, ...]:
    """Return for each person of checked `statements` the assignments in which what they say does not fit their role.

    They are bit sets like that of `solution_mask`.
    """
    knights = knight_masks(len(statements))
    everything = (1 << (1 << len(statements))) - 1
    return tuple(
        knight ^ _truth_mask(statement, knights, everything)
        for knight, statement in zip(knights, statements, strict=True)
    )


@cache
def knight_masks(n_people: int) -> tuple[int, ...]:
    """Return for each of `n_people` people the assignments in which they are a knight, as in `solution_mask`."""
    numbers = range(1 << n_people)
    return tuple(
        sum(1 << number for number in numbers if not number >> (n_people - 1 - person) & 1)
        for person in range(n_people)
    )


def _truth_mask(statement: Statement, knights: tuple[int, ...], everything: int) -> int:
    """Return the bit set of the assignments in which `statement` is true; `knights[i]` is that of "i is a knight"."""
    operator = statement[0]
    if operator == "telling-truth":
        return knights[statement[1]]
    if operator == "lying":
        return everything ^ knights[statement[1]]
    masks = [_truth_mask(operand, knights, everything) for operand in statement[1:]]
    mask = masks[0]
    if operator == "not":
        return everything ^ mask
    if operator == "->":
        return (everything ^ mask) | masks[1]
    if operator == "<=>":
        return everything ^ mask ^ masks[1]
    for other in masks[1:]:
        mask = mask & other if operator == "and" else mask | other
    return mask
