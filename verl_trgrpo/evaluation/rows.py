"""The rows of the test files, checked before anything expensive is started."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.data.rows import SINGLE_TURN, Row
from verl_trgrpo.data.rows import load_rows as load_data_rows
from verl_trgrpo.tasks.registry import find_reward
from verl_trgrpo.tasks.search_qa.rows import SEARCH_AGENT


def load_rows(paths: Sequence[Path], limit: int | None, seed: int, own_rewards: bool = True) -> list[list[Row]]:
    """Return the rows of each file; with `limit`, that many of each file, drawn with `seed`, in the file's order.

    With `own_rewards`, every data source needs a reward of this package or one that was registered with it.

    Raises:
        InvalidInputError: files that cannot be read, or rows that cannot be evaluated; the first few are named.
    """
    found, messages = [], []
    for path in paths:
        try:
            rows = load_data_rows(path)
            _check_evaluable(path, rows, own_rewards)
        except ValueError as error:
            messages.append(str(error))
            continue
        if limit is not None and limit < len(rows):
            rows = [rows[i] for i in sorted(random.Random(f"limit/{seed}").sample(range(len(rows)), limit))]
        found.append(rows)
    raise_invalid(messages)
    return found


def _check_evaluable(path: Path, rows: Sequence[Row], own_rewards: bool) -> None:
    try:
        for data_source in {row.data_source for row in rows} if own_rewards else ():
            find_reward(data_source)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{path}: {error}") from error
    if others := {row.agent_name for row in rows} - {SINGLE_TURN, SEARCH_AGENT}:
        raise ValueError(
            f"{path}: agent_name={', '.join(others)} cannot be evaluated here, only {SINGLE_TURN} and {SEARCH_AGENT}; build "
            "the data for one of them, or validate with veRL (trainer.val_only=true)"
        )
