"""Verdicts on stored responses, by the project's rewards, in several processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verl_trgrpo.common.progress import Progress, no_progress, parallel_map
from verl_trgrpo.evaluation.responses import Response
from verl_trgrpo.evaluation.rows import EvalRow
from verl_trgrpo.tasks import compute_score
from verl_trgrpo.tasks.registry import import_external_modules

# Starting processes takes a second or two; so do this many responses.
_FEW = 2000
_MAX_PROCESSES = 16


@dataclass(frozen=True)
class Verdict:
    """What the reward said about one response.

    acc: 1.0 right, 0.0 wrong, None not known.
    reason: why it is not known: ``timed_out``, ``gold`` (the ground truth was not understood) or the reward's error.
    format_ok, f1: as in the reward's Score.
    failed_searches: of a searching response.
    """

    acc: float | None
    format_ok: float = 0.0
    f1: float = 0.0
    reason: str = ""
    failed_searches: int = 0


def score_responses(
    rows: Sequence[EvalRow], responses: Sequence[Response], progress: Progress = no_progress
) -> list[Verdict]:
    """Return the verdict on each response, in order; `rows` are those that the responses belong to, in any order."""
    by_position = {row.position: row for row in rows}
    jobs = [(by_position[response.row], response) for response in responses]
    processes = 1 if len(jobs) < _FEW else min(os.cpu_count() or 1, _MAX_PROCESSES)
    return list(parallel_map(_score, jobs, processes, progress, "scores"))


def _score(job: tuple[EvalRow, Response]) -> Verdict:
    row, response = job
    import_external_modules()  # they may register rewards; a new process has not imported them
    failed = int((response.extra.get("rollout_metrics") or {}).get("failed_searches", 0))
    try:
        score: dict[str, Any] = compute_score(
            row.data_source, response.text, row.ground_truth, {**row.extra_info, **response.extra}
        )
    except Exception as error:  # a reward is anybody's code, and one row must not end the evaluation
        return Verdict(None, reason=f"{type(error).__name__}: {error}"[:300], failed_searches=failed)
    reason = "gold" if score["gold_unparseable"] else "timed_out" if score["timed_out"] else ""
    acc = None if reason else score["acc"]
    return Verdict(acc, score["format_ok"], score["f1"], reason, failed)
