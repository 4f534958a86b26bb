"""Mutants of a Python file: the code with one token changed. Used by mutation.py."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

_OTHER_NAME = {
    name: other
    for pair in (
        ("maximum", "minimum"), ("amax", "amin"), ("max", "min"), ("any", "all"), ("logical_and_", "logical_or_"),
        ("add_", "sub_"), ("exp", "expm1"), ("log", "log1p"), ("match", "fullmatch"), ("startswith", "endswith"),
        ("partition", "rpartition"), ("find", "rfind"), ("lstrip", "rstrip"), ("clamp", "clone"), ("clamp_", "clone"),
        ("lower", "upper"), ("low", "high"), ("old_log_prob", "log_prob"),
    )
    for name, other in (pair, pair[::-1])
}  # fmt: skip
_OTHER_NAME |= {"mul_": "add_", "square": "abs", "sqrt": "abs", "abs_": "neg_", "clone": "detach"}


class SwapName(Operator):
    """A function, method, attribute or keyword replaced by its counterpart, such as `maximum` by `minimum`."""

    def mutation_positions(self, node):
        if node.type == "name" and node.value in _OTHER_NAME:
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        return parso.python.tree.Name(_OTHER_NAME[node.value], node.start_pos, prefix=node.prefix)

    @classmethod
    def examples(cls):
        return ()  # Cosmic Ray's own tests want some


@dataclass(frozen=True)
class Mutant:
    """One change: the `occurrence`-th place in the file where the operator applies. `definition` encloses it."""

    path: str
    operator: str
    occurrence: int
    line: int
    column: int
    definition: str

    def code(self, source: str) -> str | None:
        """Return the changed source, or None where the operator declines."""
        return mutate_code(source, _operator(self.operator), self.occurrence)


def _operator(name: str) -> Operator:
    return SwapName() if name == "SwapName" else get_operator(name)()


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans of the type annotations, whose mutants nothing could notice."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        for child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if child is not None:
                spans.append(((child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset)))
    return spans


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of one file."""
    annotations = _annotations(source)
    names = [name for name in operator_names() if not get_operator(name).arguments()]
    nodes = list(ast_nodes(get_ast(source)))
    for name in [*sorted(names), "SwapName"]:
        operator = _operator(name)
        positions = ((node, *span) for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (node, start, _) in enumerate(positions):
            if any(first <= tuple(start) < last for first, last in annotations):
                continue
            while node is not None and node.type not in ("funcdef", "classdef"):
                node = node.parent
            yield Mutant(path, name, occurrence, *start, node.name.value if node else "")


def sample(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """`size` mutants at random, at most two of each place, so that `+` with its eleven replacements does not fill it."""
    rng = random.Random(seed)
    rng.shuffle(mutants)
    places: Counter[tuple] = Counter()
    chosen = []
    for mutant in mutants:
        place = (mutant.path, mutant.line, mutant.column)
        places[place] += 1
        if places[place] <= 2:
            chosen.append(mutant)
    return sorted(chosen[:size], key=lambda m: (m.path, m.line, m.column, m.operator))
