"""A canonical form of Knights-and-Knaves statements: equal exactly for puzzles that differ by who is called what.

The naive form, the minimum over all ``n!`` orders of the people, is too slow from seven people on. Here people are
first told apart by colour refinement (what they say and who says what about them), and only people that this leaves
indistinguishable are tried in every order that can matter. The result is exact: refinement and the choice of whom to
single out depend on the puzzle's structure alone, never on the names.
"""

from collections.abc import Mapping
from typing import Any

from verl_trgrpo.tasks.knights_and_knaves.logic import LEAVES, Statement, check_statements, parse_statements

_COMMUTATIVE = ("and", "or", "<=>")
_SELF = -1


def canonical_key(statements: tuple[Statement, ...]) -> str:
    """Return a key that two puzzles share exactly when they are the same puzzle in other words.

    The same means: equal after renaming or reordering the people (speakers and mentions move together) and after
    reordering the operands of ``and``, ``or`` and ``<=>``. Statements that merely mean the same, such as "not a
    knight" and "a knave", stay different. The key is itself a literal of statements, those of the canonical puzzle.
    Raises ValueError for malformed statements.
    """
    check_statements(statements)
    mentions = [_mentioned(statement) for statement in statements]
    colours = _refine(statements, mentions, [0] * len(statements))
    return repr(_smallest(statements, mentions, colours))


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


def relabel(statement: Statement, labels: list[int]) -> Statement:
    """Return `statement` with person ``i`` replaced by ``labels[i]`` and commutative operands sorted."""
    operator = statement[0]
    if operator in LEAVES:
        return (operator, labels[statement[1]])
    operands = [relabel(operand, labels) for operand in statement[1:]]
    if operator in _COMMUTATIVE:
        operands.sort()
    return (operator, *operands)


def _mentioned(statement: Statement) -> set[int]:
    if statement[0] in LEAVES:
        return {statement[1]}
    return set().union(*(_mentioned(operand) for operand in statement[1:]))


def _refine(statements: tuple[Statement, ...], mentions: list[set[int]], colours: list[int]) -> list[int]:
    """Return the coarsest stable colouring that is at least as fine as `colours`, as ranks from 0.

    Two people keep one colour only while they say the same and the same is said of them, with every other person
    seen only by colour.
    """
    n_people = len(statements)
    n_colours = len(set(colours))
    while n_colours < n_people:
        heard: list[list[tuple[int, Statement]]] = [[] for _ in range(n_people)]
        spoken: list[Statement] = [()] * n_people
        for speaker, statement in enumerate(statements):
            for person in mentions[speaker] | {speaker}:
                view = relabel(statement, [*colours[:person], _SELF, *colours[person + 1 :]])
                if person == speaker:
                    spoken[person] = view
                else:
                    heard[person].append((colours[speaker], view))
        signatures = [(colours[i], spoken[i], tuple(sorted(heard[i]))) for i in range(n_people)]
        ranks = {signature: rank for rank, signature in enumerate(sorted(set(signatures)))}
        colours = [ranks[signature] for signature in signatures]
        if len(ranks) == n_colours:
            break
        n_colours = len(ranks)
    return colours


def _smallest(statements: tuple[Statement, ...], mentions: list[set[int]], colours: list[int]) -> tuple[Statement, ...]:
    """Return the smallest relabelled puzzle over all ways to tell equally coloured people apart."""
    n_people = len(statements)
    shared = min((colour for colour in colours if colours.count(colour) > 1), default=None)
    if shared is None:
        return _permute(statements, colours)
    tried: list[int] = []
    candidates = []
    for person in range(n_people):
        if colours[person] != shared or any(_are_twins(statements, person, other) for other in tried):
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
        renamed[labels[speaker]] = relabel(statement, labels)
    return tuple(renamed)


def _are_twins(statements: tuple[Statement, ...], one: int, other: int) -> bool:
    """Return whether exchanging two people changes nothing; then trying both would give the same result twice."""
    labels = list(range(len(statements)))
    identity = _permute(statements, labels)
    labels[one], labels[other] = other, one
    return _permute(statements, labels) == identity
