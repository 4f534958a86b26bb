"""Statements of Knights-and-Knaves puzzles: their form, their checks, their solutions and a canonical form.

Person ``i`` of a puzzle speaks statement ``i``. A statement is a nested tuple in the form of the public data set
`K-and-K/knights-and-knaves`:

- ``("telling-truth", i)`` and ``("lying", i)``: person ``i`` is a knight, a knave;
- ``("not", s)``; ``("and", s, t, ...)`` and ``("or", s, t, ...)`` with two or more operands;
- ``("->", s, t)`` and ``("<=>", s, t)``.

Sets of assignments are bit sets over the ``2**n`` assignments, one Python integer each. In the number of an assignment
the first person is the most significant bit and a knight is 0, so that bit 0 stands for "all knights". The truth of a
statement in all assignments at once is many times faster than assignment after assignment.
"""

import ast
from collections.abc import Mapping
from functools import cache
from typing import Any

from verl_trgrpo.common.problems import shorten

Statement = tuple[Any, ...]

MAX_PEOPLE = 8
MAX_LITERAL_LENGTH = 10_000
MAX_DEPTH = 8

LEAVES = ("telling-truth", "lying")
_ARITY = {"not": (1, 1), "and": (2, 8), "or": (2, 8), "->": (2, 2), "<=>": (2, 2)}
_COMMUTATIVE = ("and", "or", "<=>")
_SELF = -1


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

    Only literals are read, nothing is evaluated. Raises ValueError for text that is too long, is not a literal, or fails
    `check_statements`.
    """
    if not isinstance(text, str):
        raise ValueError(f"statements are of type {type(text).__name__}; expected a string holding a Python literal")
    if len(text) > MAX_LITERAL_LENGTH:
        raise ValueError(f"statements have {len(text)} characters; at most {MAX_LITERAL_LENGTH} are read")
    try:
        statements = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"statements are {shorten(text)}; that is not a Python literal ({error})") from None
    check_statements(statements)
    return statements


def evaluate(statement: Statement, assignment: tuple[bool, ...]) -> bool:
    """Return whether the checked `statement` is true when person ``i`` is a knight exactly where `assignment[i]`."""
    return bool(_truth_mask(statement, tuple(map(int, assignment)), 1))


def solve(statements: tuple[Statement, ...]) -> list[tuple[bool, ...]]:
    """Return every assignment (True = knight) that fits all `statements`, knights first.

    An assignment fits when each knight's statement is true and each knave's is false. The order is that of
    ``itertools.product([True, False], repeat=n)``. Raises ValueError for malformed statements.
    """
    check_statements(statements)
    mask = _solution_mask(statements)
    return [_assignment(number, len(statements)) for number in range(1 << len(statements)) if mask >> number & 1]


def unique_solution(statements: tuple[Statement, ...]) -> tuple[bool, ...] | None:
    """Return the solution of checked `statements` when there is exactly one, else None."""
    mask = _solution_mask(statements)
    if not mask or mask & (mask - 1):
        return None
    return _assignment(mask.bit_length() - 1, len(statements))


def misfit_masks(statements: tuple[Statement, ...]) -> tuple[int, ...]:
    """Return for each person the assignments in which what they say does not fit their role, as bit sets."""
    knights = knight_masks(len(statements))
    everything = (1 << (1 << len(statements))) - 1
    return tuple(
        knight ^ _truth_mask(statement, knights, everything)
        for knight, statement in zip(knights, statements, strict=True)
    )


@cache
def knight_masks(n_people: int) -> tuple[int, ...]:
    """Return for each of `n_people` people the assignments in which they are a knight, as bit sets."""
    numbers = range(1 << n_people)
    return tuple(
        sum(1 << number for number in numbers if _assignment(number, n_people)[person]) for person in range(n_people)
    )


def _solution_mask(statements: tuple[Statement, ...]) -> int:
    mask = (1 << (1 << len(statements))) - 1
    for misfits in misfit_masks(statements):
        mask &= ~misfits
    return mask


def _assignment(number: int, n_people: int) -> tuple[bool, ...]:
    return tuple(not number >> (n_people - 1 - person) & 1 for person in range(n_people))


def _truth_mask(statement: Statement, knights: tuple[int, ...], everything: int) -> int:
    """Return the bit set of the assignments in which `statement` is true; `knights[i]` is that of "i is a knight"."""
    operator = statement[0]
    if operator == "telling-truth":
        return knights[statement[1]]
    if operator == "lying":
        return everything ^ knights[statement[1]]
    mask, *others = [_truth_mask(operand, knights, everything) for operand in statement[1:]]
    if operator == "not":
        return everything ^ mask
    for other in others:
        if operator == "and":
            mask &= other
        elif operator == "or":
            mask |= other
        elif operator == "->":
            mask = (everything ^ mask) | other
        else:
            mask = everything ^ mask ^ other
    return mask


def canonical_key(statements: tuple[Statement, ...]) -> str:
    """Return a key that two puzzles share exactly when they are the same puzzle in other words.

    The same means: equal after renaming or reordering the people (speakers and mentions move together) and after
    reordering the operands of ``and``, ``or`` and ``<=>``. Statements that merely mean the same, such as "not a
    knight" and "a knave", stay different. The key is itself a literal of statements, those of the canonical puzzle.
    Raises ValueError for malformed statements.

    The minimum over all ``n!`` orders of the people would be too slow from seven people on. Here people are first told
    apart by colour refinement (what they say and who says what about them), and only people that this leaves
    indistinguishable are tried in every order that can matter. The result is exact: refinement and the choice of whom to
    single out depend on the puzzle's structure alone, never on the names.
    """
    check_statements(statements)
    mentions = [_mentioned(statement) for statement in statements]
    return repr(_smallest(statements, mentions, _refine(statements, mentions, [0] * len(statements))))


def puzzle_key(row: Mapping[str, Any]) -> str | None:
    """Return the `canonical_key` of the puzzle in a row of a data file, None where there is none.

    Statements are looked for under `extra_info.statements` and `reward_model.ground_truth.statements`, a Python literal
    as text; they are read as a literal, never evaluated.
    """
    reward_model = row.get("reward_model")
    ground_truth = reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None
    for place in (row.get("extra_info"), ground_truth):
        statements = place.get("statements") if isinstance(place, Mapping) else None
        if isinstance(statements, str):
            try:
                return canonical_key(parse_statements(statements))
            except ValueError:
                continue
    return None


def _relabel(statement: Statement, labels: list[int]) -> Statement:
    """Return `statement` with person ``i`` replaced by ``labels[i]`` and commutative operands sorted."""
    operator = statement[0]
    if operator in LEAVES:
        return (operator, labels[statement[1]])
    operands = [_relabel(operand, labels) for operand in statement[1:]]
    if operator in _COMMUTATIVE:
        operands.sort()
    return (operator, *operands)


def _mentioned(statement: Statement) -> set[int]:
    if statement[0] in LEAVES:
        return {statement[1]}
    return set().union(*map(_mentioned, statement[1:]))


def _refine(statements: tuple[Statement, ...], mentions: list[set[int]], colours: list[int]) -> list[int]:
    """Return the coarsest stable colouring that is at least as fine as `colours`, as ranks from 0.

    Two people keep one colour only while they say the same and the same is said of them, with every other person
    seen only by colour.
    """
    n_colours = len(set(colours))
    while n_colours < len(statements):
        heard: list[list[tuple[int, Statement]]] = [[] for _ in statements]
        spoken: list[Statement] = [()] * len(statements)
        for speaker, statement in enumerate(statements):
            for person in mentions[speaker] | {speaker}:
                view = _relabel(statement, [*colours[:person], _SELF, *colours[person + 1 :]])
                if person == speaker:
                    spoken[person] = view
                else:
                    heard[person].append((colours[speaker], view))
        signatures = [(colours[i], spoken[i], tuple(sorted(heard[i]))) for i in range(len(statements))]
        ranks = {signature: rank for rank, signature in enumerate(sorted(set(signatures)))}
        colours = [ranks[signature] for signature in signatures]
        if len(ranks) == n_colours:
            break
        n_colours = len(ranks)
    return colours


def _smallest(statements: tuple[Statement, ...], mentions: list[set[int]], colours: list[int]) -> tuple[Statement, ...]:
    """Return the smallest relabelled puzzle over all ways to tell equally coloured people apart."""
    shared = min((colour for colour in colours if colours.count(colour) > 1), default=None)
    if shared is None:
        return _permute(statements, colours)
    tried: list[int] = []
    candidates = []
    for person, colour_of_person in enumerate(colours):
        if colour_of_person != shared or any(_are_twins(statements, person, other) for other in tried):
            continue
        tried.append(person)
        # The colours stay the ranks 0, 1, ...: everybody from `shared` on moves up, except the one singled out.
        single = [colour + (colour >= shared and i != person) for i, colour in enumerate(colours)]
        candidates.append(_smallest(statements, mentions, _refine(statements, mentions, single)))
    return min(candidates)


def _permute(statements: tuple[Statement, ...], labels: list[int]) -> tuple[Statement, ...]:
    """Return the puzzle in which person ``i`` became person ``labels[i]``, as speaker and where mentioned."""
    renamed: list[Statement] = [()] * len(statements)
    for speaker, statement in enumerate(statements):
        renamed[labels[speaker]] = _relabel(statement, labels)
    return tuple(renamed)


def _are_twins(statements: tuple[Statement, ...], one: int, other: int) -> bool:
    """Return whether exchanging two people changes nothing; then trying both would give the same result twice."""
    labels = list(range(len(statements)))
    identity = _permute(statements, labels)
    labels[one], labels[other] = other, one
    return _permute(statements, labels) == identity
