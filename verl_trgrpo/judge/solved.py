"""Decide whether a relation is left to be solved or rearranged, as the gold is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from verl_trgrpo.judge.arranged import names
from verl_trgrpo.judge.forms import QUANTITY, Form
from verl_trgrpo.judge.parser import Tree
from verl_trgrpo.judge.polynomials import NoPolynomialError, Polynomial, Quotient, factor_between
from verl_trgrpo.judge.question import Asked, arrangement

RELATION = re.compile(r"=|<|>|\\(?:leq|geq|neq)(?![a-zA-Z])")  # =; \leq
INEQUALITY = re.compile(r"<|>|\\(?:leq|geq|neq)(?![a-zA-Z])")  # <; \neq
_RELATIONS = ("=", "<", r"\leq", r"\neq")


def is_left_unsolved(golds: Sequence[str], text: str, given: Sequence[Form], question: Asked) -> bool:
    """Return whether a relation of the right value is not solved for what the gold is solved for, or not arranged as the gold.

    An inequality of one letter has to be solved in any case. Of a relation of several letters that is asked only if the question
    says so or has the same relation, so that to rearrange it is the task: a line through two points has many equations.

    Args:
        golds, text: the ground truths and the answer, normalized.
        given: the single values of the answer.
        question: what the answer is to.
    """
    wanted = frozenset[str]().union(*map(_solved_for, golds))
    solved = bool(wanted) or not any(map(RELATION.search, golds))
    left = [form for form in given if form.kind == "relation" and INEQUALITY.search(form.text)]
    if solved and any(len(_names(form.text)) == 1 and not _solved_for(form.text) for form in left):
        return True
    relation = arrangement(text)
    if relation is None or relation[0] not in _RELATIONS:
        return False
    asked = question.asks & {"solved"} if wanted else question.asks & {"a line in standard form"}
    if not (asked or _occurs_in(relation, question)):
        return False
    if wanted:
        return wanted.isdisjoint(_solved_for(text))
    return not solved and all(_shape(relation) != _shape(each) for each in map(arrangement, golds) if each is not None)


def _solved_for(text: str) -> frozenset[str]:
    """Return what is alone on one side of a relation, and not on another."""
    sides = [side.strip() for side in RELATION.split(text)]
    return frozenset(
        side.partition("(")[0]
        for side in sides[: len(sides) * (len(sides) > 1)]
        if QUANTITY.fullmatch(side) and all(side not in _names(each) for each in sides if each != side)
    )


def _names(text: str) -> frozenset[str]:
    found = [arrangement(side) for side in RELATION.split(text)]
    return frozenset[str]().union(*(names(each) for each in found if each is not None))


def _shape(relation: Tree) -> frozenset[frozenset[str]]:
    """Return the letters on the sides of a relation."""
    return frozenset(map(names, relation[1:]))


def _occurs_in(relation: Tree, question: Asked) -> bool:
    """Return whether the question has the same relation: one difference of the sides is a multiple of the other."""
    own = [each for each in question.formulas if each[0] == relation[0] and names(each) == names(relation)]
    letters = sorted(names(relation) | {"pi", "e"})
    ours = next(_differences([relation], letters), None)
    return ours is not None and any(factor_between(ours, each) is not None for each in _differences(own, letters))


def _differences(relations: Sequence[Tree], letters: list[str]) -> Iterator[Polynomial]:
    for _, left, right in relations:
        try:
            yield Quotient(("+", left, ("*", ("number", -1), right)), letters).top
        except NoPolynomialError:
            continue
