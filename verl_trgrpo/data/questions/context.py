"""What rows are for, and what is found in them."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from verl_trgrpo.common.findings import Level
from verl_trgrpo.data.rows import RawRow


class DataQuestion(str, enum.Enum):
    """The questions, in the order of a report; docs/data_check.md says what each finds. All but the first two read rows."""

    FILE = "file"
    COLUMNS = "columns"
    PROMPT = "prompt"
    TAGS = "chat tags"
    SOURCE = "data source"
    TRUTH = "ground truth"
    GOLD = "reward of gold"
    LITERAL = "literal golds"
    DUPLICATES = "duplicates"
    OVERLAP = "overlap"


REFUSED = frozenset(
    {DataQuestion.FILE, DataQuestion.COLUMNS, DataQuestion.PROMPT, DataQuestion.TAGS, DataQuestion.TRUTH}
)
"""Questions whose errors say that no reward or model can use the rows, so that builders and evaluations refuse them."""

TRAIN_ROLE, TEST_ROLE = "train", "test"
"""Roles of files."""

Remark = tuple[DataQuestion, Level, str]
"""A question, a level and a message, without a place."""


@dataclass(frozen=True)
class Found:
    """One finding: its question, level and message, the name of the file and the row, from 0; None for the file as a whole."""

    question: DataQuestion
    level: Level
    message: str
    file: str
    row: int | None = None

    @property
    def place(self) -> str:
        """Return file and row as a text."""
        return self.file if self.row is None else f"{self.file} row {self.row}"


class Tasks(Protocol):
    """What tasks and rewards know of rows; `verl_trgrpo.tasks.ground_truths.TaskKnowledge` asks the registered tasks."""

    def scores(self, row: RawRow) -> bool:
        """Return whether a reward that can be asked here scores the row."""

    def source_remarks(self, row: RawRow) -> Iterator[Remark]:
        """Ask whether the row has a reward."""

    def truth_remarks(self, row: RawRow) -> Iterator[Remark]:
        """Ask whether the reward understands the ground truth, and whether this is the prompt's own."""

    def key(self, row: RawRow) -> str | None:
        """Return a text that rows share which ask the same in other words, after a noun and a colon, or None."""

    def answers(self, row: RawRow) -> list[str]:
        """Return the answers that the ground truth accepts; [] if they cannot be read."""

    def equal(self, row: RawRow, one: Any, other: Any) -> bool:
        """Return whether the row's reward takes one of two ground truths for the other."""


@dataclass(frozen=True)
class Context:
    """What the rows are for.

    Args:
        tasks: what is known of their rewards.
        agents: names that rows may have as agent_name; None if any will do.
        other_agents: level of other names.
        missing_truth: level of a ground truth that is empty or not finite; None where nothing reads it.
        compares: test rows are for judging what was trained on the train rows.
        most_scored: rows of a file whose ground truths are scored, evenly spread; None for all.
    """

    tasks: Tasks
    agents: Collection[str] | None = None
    other_agents: Level = Level.ERROR
    missing_truth: Level | None = Level.ERROR
    compares: bool = True
    most_scored: int | None = None
