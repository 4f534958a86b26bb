"""Rows that ask the same: repeated and contradicting ones of a role, and test rows that are train rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.questions.context import TEST_ROLE, TRAIN_ROLE, Context, DataQuestion, Remark
from verl_trgrpo.data.rows import RawRow, ground_truth_of, row_keys

_Place = tuple[str, int]


class SeenPrompts:
    """Find equal prompts among the rows asked so far. Ground truths are equal if the reward takes one for the other."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._different = {TRAIN_ROLE: 0, TEST_ROLE: 0}
        # By role: hash of a key of equal prompts -> first row that has it, and its ground truth.
        self._first: dict[str, dict[int, tuple[_Place, str]]] = {TRAIN_ROLE: {}, TEST_ROLE: {}}

    def remarks(self, role: str, row: RawRow, place: _Place) -> Iterator[Remark]:
        """Ask whether a prompt is new among files of its role, and a test prompt not in a train file; remember it.

        Published test files repeat each problem, to sample several responses of it; so of test rows only contradictions are
        named.
        """
        keys = row_keys(row, self._context.tasks.key(row))
        truth = json.dumps(ground_truth_of(row), sort_keys=True, default=str)
        met = self._met(role, keys)
        self._different[role] += bool(keys) and not any(key.startswith("text:") for key, _, _ in met)
        for key, where, other_truth in met[:1]:
            # What is equal but for its names rightly has another ground truth.
            if key.startswith("text:") and not self._are_equal(row, truth, other_truth):
                golds = f"{shorten(ground_truth_of(row), 60)}, there {shorten(json.loads(other_truth), 60)}"
                # Published test sets, such as PopQA, ask the same of different things; training would punish right answers.
                level = Level.ERROR if role == TRAIN_ROLE else Level.WARNING
                yield DataQuestion.DUPLICATES, level, f"same prompt as {_shown(where)}, another ground truth: {golds}"
            elif role == TRAIN_ROLE:
                yield DataQuestion.DUPLICATES, Level.WARNING, _same(key, where)
        for key, where, _ in self._met(TRAIN_ROLE, keys)[:1] if role == TEST_ROLE and self._context.compares else []:
            remedy = "remove the train row (verl-trgrpo data decontaminate)"
            yield DataQuestion.OVERLAP, Level.ERROR, f"{_same(key, where)}; {remedy}"
        for key in keys:
            self._first[role].setdefault(hash(key), (place, truth))

    def count(self, role: str) -> int:
        """Return how many different prompts the rows of a role had."""
        return self._different[role]

    def _are_equal(self, row: RawRow, truth: str, other_truth: str) -> bool:
        return truth == other_truth or self._context.tasks.equal(row, ground_truth_of(row), json.loads(other_truth))

    def _met(self, role: str, keys: Sequence[str]) -> list[tuple[str, _Place, str]]:
        first = self._first[role]
        return [(key, *first[hash(key)]) for key in keys if hash(key) in first]


def _same(key: str, where: _Place) -> str:
    noun = key.partition(":")[0]
    return f"same prompt as {_shown(where)}" if noun == "text" else f"same {noun} as {_shown(where)}, names aside"


def _shown(where: _Place) -> str:
    return f"{where[0]} row {where[1]}"
