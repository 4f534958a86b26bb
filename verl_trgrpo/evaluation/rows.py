"""The rows of the test files, checked before anything expensive is started."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.data.parquet import COLUMNS, extra_info_of, read_rows
from verl_trgrpo.data.schema import check_rows
from verl_trgrpo.tasks.registry import find_reward
from verl_trgrpo.tasks.search_qa.prompts import SEARCH_AGENT

SINGLE_TURN = "single_turn_agent"


@dataclass(frozen=True)
class EvalRow:
    """One row of a test file; `position` counts from 0 in its file, `agent_name` says how a response comes about."""

    position: int
    data_source: str
    messages: list[dict[str, str]]
    ground_truth: Any
    extra_info: dict[str, Any]
    agent_name: str


def load_rows(paths: Sequence[Path], limit: int | None, seed: int, own_rewards: bool = True) -> list[list[EvalRow]]:
    """Return the rows of each file; with `limit`, that many of each file, drawn with `seed`, in the file's order.

    With `own_rewards`, every data source needs a reward of this package or one that was registered with it.

    Raises ValueError for files that cannot be read and rows that cannot be evaluated; the first few are named.
    """
    found, problems = [], []
    for path in paths:
        read = list(read_rows(path, (*COLUMNS, "agent_name")))
        try:
            rows = _checked_rows(read, own_rewards)
        except (ValueError, ImportError) as error:
            problems.append(f"{path}: {error}")
            continue
        if limit is not None and limit < len(rows):
            rows = [rows[i] for i in sorted(random.Random(f"limit/{seed}").sample(range(len(rows)), limit))]
        found.append(rows)
    raise_invalid(problems)
    return found


def _checked_rows(rows: Sequence[Mapping[str, Any]], own_rewards: bool) -> list[EvalRow]:
    if not rows:
        raise ValueError("it has no rows; build it again")
    check_rows(rows)
    for data_source in {row.get("data_source") for row in rows} if own_rewards else ():
        find_reward(data_source)
    found = [
        EvalRow(
            position,
            row["data_source"],
            [{"role": message["role"], "content": message["content"]} for message in row["prompt"]],
            row["reward_model"]["ground_truth"],
            dict(extra_info_of(row)),
            row.get("agent_name") or SINGLE_TURN,
        )
        for position, row in enumerate(rows)
    ]
    others = {row.agent_name for row in found} - {SINGLE_TURN, SEARCH_AGENT}
    if others:
        raise ValueError(
            f"agent_name {', '.join(others)} cannot be evaluated here, only {SINGLE_TURN} and {SEARCH_AGENT}; build the data "
            "for one of them, or validate with veRL (trainer.val_only=true)"
        )
    return found
