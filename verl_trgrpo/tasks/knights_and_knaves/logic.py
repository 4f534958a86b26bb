"""Statements of Knights-and-Knaves puzzles: their form, their truth, their solution and a canonical form.

Person ``i`` of a puzzle speaks statement ``i``. A statement is a nested tuple in the form of the public data set
`K-and-K/knights-and-knaves`:

- ``("telling-truth", i)`` and ``("lying", i)``: person ``i`` is a knight, a knave;
- ``("not", s)``; ``("and", s, t, ...)`` and ``("or", s, t, ...)`` with two or more operands;
- ``("->", s, t)`` and ``("<=>", s, t)``.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, reduce
from itertools import product
from operator import and_, eq, le, or_
from typing import Any

import numpy as np

from verl_trgrpo.common.text import shorten

Statement = tuple[Any, ...]
Arrange = Callable[[list[Statement]], None]

MAX_PEOPLE = 8
MAX_LITERAL_LENGTH = 10_000
MAX_DEPTH = 8

LEAVES = ("telling-truth", "lying")
_COMMUTATIVE = ("and", "or", "<=>")
_SELF = -1

# Of booleans and of arrays of booleans alike.
_OPERATORS: dict[str, Callable[..., Any]] = {"not": lambda value: value ^ True, "->": le, "<=>": eq}
_JOINING_OPERATORS: dict[str, Callable[..., Any]] = {"and": and_, "or": or_}


def parse_statements(text: Any) -> tuple[Statement, ...]:
    """Read a Python literal such as ``"(('lying', 1), ('telling-truth', 0))"`` into the statements of 1 to 8 people.

    Only literals are read, nothing is evaluated.

    Raises:
        ValueError: anything else, a person who is not one of the speakers, more than `MAX_LITERAL_LENGTH` characters, or
            more than `MAX_DEPTH` nested operators.
    """
    if not isinstance(text, str) or len(text) > MAX_LITERAL_LENGTH:
        raise ValueError(f"statements={shorten(text)}: expected a string of at most {MAX_LITERAL_LENGTH} characters")
    return _parsed(text)


@lru_cache(maxsize=64)  # several checks of a row read its statements
def _parsed(text: str) -> tuple[Statement, ...]:
    try:
        statements = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"statements={shorten(text)}: not a Python literal ({error})") from None
    if not isinstance(statements, tuple) or not 1 <= len(statements) <= MAX_PEOPLE:
        raise ValueError(f"statements={shorten(text)}: expected a tuple with one for each of 1 to {MAX_PEOPLE} people")
    for statement in statements:
        if not _is_statement(statement, len(statements), MAX_DEPTH):
            raise ValueError(
                f"statements contain {shorten(statement)}; expected at most {MAX_DEPTH} nested operators of "
                f"{', '.join([*LEAVES, *_OPERATORS, *_JOINING_OPERATORS])}, about people 0 to {len(statements) - 1}"
            )
    return statements


def _is_statement(value: Any, n_people: int, depth: int) -> bool:
    if not isinstance(value, tuple) or depth == 0:
        return False
    match value:
        case ("telling-truth" | "lying", person):
            return type(person) is int and 0 <= person < n_people
        case ("not", _) | ("->" | "<=>", _, _) | ("and" | "or", _, _, *_):
            return all(_is_statement(operand, n_people, depth - 1) for operand in value[1:])
    return False


def is_true(statement: Statement, knights: Any) -> Any:
    """Return whether `statement` is true when person ``i`` is a knight where ``knights[i]`` is true.

    `knights` has one entry per person, each a bool, or an array of bools for many assignments at once; so is the result.
    """
    operator, *operands = statement
    if operator in LEAVES:
        return knights[operands[0]] ^ (operator == "lying")
    values = [is_true(operand, knights) for operand in operands]
    if operator in _JOINING_OPERATORS:
        return reduce(_JOINING_OPERATORS[operator], values)
    return _OPERATORS[operator](*values)


@cache
def assignments(n_people: int) -> np.ndarray:
    """Return all assignments (True = knight), knights first: bool, shape (2**n_people, n_people)."""
    return np.array([*product([True, False], repeat=n_people)])


def misfits(statements: Sequence[Statement]) -> np.ndarray:
    """Return for each person, in which of the `assignments` their statement does not fit their role.

    Bool, shape (people, 2**people): a knight's statement must be true, a knave's must be false.
    """
    knights = assignments(len(statements)).T
    return np.array([is_true(statement, knights) for statement in statements]) != knights


def unique_solution(statements: Sequence[Statement]) -> tuple[bool, ...] | None:
    """Return the assignment in which every statement fits, if there is exactly one, else None."""
    fitting = np.flatnonzero(~misfits(statements).any(axis=0))
    return tuple(assignments(len(statements))[fitting[0]].tolist()) if len(fitting) == 1 else None


def canonical_key(statements: tuple[Statement, ...]) -> str:
    """Return a key that two puzzles share exactly when they are the same puzzle in other words.

    The same means: equal after renaming or reordering the people (speakers and mentions move together) and after
    reordering the operands of ``and``, ``or`` and ``<=>``. Statements that merely mean the same, such as "not a
    knight" and "a knave", stay different. The key is itself a literal of statements, those of the canonical puzzle.

    The minimum over all ``n!`` orders of the people would be too slow from seven people on. Here people are first told
    apart by colour refinement (what they say and who says what about them), and only people that this leaves
    indistinguishable are tried in every order that can matter. The result is exact: refinement and the choice of whom to
    single out depend on the puzzle's structure alone, never on the names.
    """
    mentions = [_mentioned(statement) for statement in statements]
    return repr(_smallest(statements, mentions, _refine(statements, mentions, [0] * len(statements))))


def puzzle_key(row: Mapping[str, Any]) -> str | None:
    """Return the `canonical_key` of the puzzle in a row of a data file, or None.

    The statements are a Python literal as a string under `extra_info.statements` or
    `reward_model.ground_truth.statements`; it is parsed, never evaluated.
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


def _relabel(statement: Statement, labels: Sequence[int], arrange: Arrange = list.sort) -> Statement:
    """Return `statement` with person ``i`` replaced by ``labels[i]`` and commutative operands arranged."""
    operator = statement[0]
    if operator in LEAVES:
        return (operator, labels[statement[1]])
    operands = [_relabel(operand, labels, arrange) for operand in statement[1:]]
    if operator in _COMMUTATIVE:
        arrange(operands)
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
        return permute(statements, colours)
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


def permute(
    statements: tuple[Statement, ...], labels: Sequence[int], arrange: Arrange = list.sort
) -> tuple[Statement, ...]:
    """Return the puzzle in which person ``i`` became person ``labels[i]``, as speaker and where mentioned.

    Args:
        statements: of the puzzle.
        labels: new numbers of the people.
        arrange: orders a list of commutative operands in place.
    """
    renamed: list[Statement] = [()] * len(statements)
    for speaker, statement in enumerate(statements):
        renamed[labels[speaker]] = _relabel(statement, labels, arrange)
    return tuple(renamed)


def _are_twins(statements: tuple[Statement, ...], one: int, other: int) -> bool:
    """Return whether exchanging two people changes nothing; then trying both would give the same result twice."""
    labels = list(range(len(statements)))
    identity = permute(statements, labels)
    labels[one], labels[other] = other, one
    return permute(statements, labels) == identity
