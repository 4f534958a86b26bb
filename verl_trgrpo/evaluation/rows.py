"""The rows of the test files, checked before anything expensive is started."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.data.parquet import COLUMNS, UnreadableError, display_names, read_rows
from verl_trgrpo.data.schema import MAX_REPORTED, row_errors
from verl_trgrpo.tasks.registry import find_reward

SINGLE_TURN, SEARCH_TAGS = "single_turn_agent", "trgrpo_search"


@dataclass(frozen=True)
class EvalRow:
    """One row of a test file; `position` counts from 0 in its file, `agent_name` says how a response comes about."""

    position: int
    data_source: str
    messages: list[dict[str, str]]
    ground_truth: Any
    extra_info: dict[str, Any]
    agent_name: str


def load_rows(paths: Sequence[Path], limit: int | None, seed: int) -> list[list[EvalRow]]:
    """Return the rows of each file; with `limit`, that many of each file, drawn with `seed`, in the file's order.

    Raises ValueError for files that cannot be read and rows that cannot be evaluated; the first few are named.
    """
    names = display_names(paths)
    found, problems = [], []
    for path in paths:
        rows = []
        try:
            for position, row in enumerate(read_rows(path, (*COLUMNS, "agent_name"))):
                problem = _problem(row)
                if problem:
                    problems.append(f"{names[path]}, row {position}: {problem}")
                else:
                    rows.append(_eval_row(row, position))
        except UnreadableError as error:
            problems.append(str(error))
        if not rows and not problems:
            problems.append(f"{path} has no rows; build it again")
        found.append(_drawn(rows, limit, seed))
    if len(problems) > MAX_REPORTED:
        problems[MAX_REPORTED:] = [f"and {len(problems) - MAX_REPORTED} more; verl-trgrpo data check shows all"]
    raise_problems(problems)
    return found


def _drawn(rows: list[EvalRow], limit: int | None, seed: int) -> list[EvalRow]:
    if limit is None or limit >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(f"limit/{seed}").sample(range(len(rows)), limit))]


def _eval_row(row: Mapping[str, Any], position: int) -> EvalRow:
    messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
    return EvalRow(
        position,
        row["data_source"],
        messages,
        row["reward_model"]["ground_truth"],
        dict(row.get("extra_info") or {}),
        row.get("agent_name") or SINGLE_TURN,
    )


def _problem(row: Mapping[str, Any]) -> str:
    """Return why a row cannot be evaluated, or nothing."""
    for problem in row_errors(row):
        return problem
    agent_name = row.get("agent_name") or SINGLE_TURN
    if agent_name not in (SINGLE_TURN, SEARCH_TAGS):
        return (
            f"agent_name {agent_name} cannot be evaluated here, only {SINGLE_TURN} and {SEARCH_TAGS}; build the data for "
            "one of them, or validate with veRL (trainer.val_only=true)"
        )
    try:
        find_reward(row.get("data_source"))
    except (ValueError, ImportError) as error:
        return str(error)
    return ""
