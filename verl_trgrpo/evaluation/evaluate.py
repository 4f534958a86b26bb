"""Evaluate a checkpoint: the way from the options to a report."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl_trgrpo.common.files import file_sha256, write_json, write_text
from verl_trgrpo.common.findings import findings_of, raise_invalid
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.prompts import default_agent_of
from verl_trgrpo.data.questions.ask import Questions, open_data_file, usable
from verl_trgrpo.data.questions.context import REFUSED, TEST_ROLE, Context, DataQuestion
from verl_trgrpo.data.rows import MEDIA, SINGLE_TURN, RawRow, Row, extra_info_of, ground_truth_of
from verl_trgrpo.data.sources import draw
from verl_trgrpo.data.verl_files import DataFile, read_rows
from verl_trgrpo.evaluation.checkpoint import find_model, fingerprint, merged_model
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.tasks.ground_truths import TaskKnowledge
from verl_trgrpo.tasks.registry import has_reward, known_agent_loops
from verl_trgrpo.tasks.task import imported

REPORT, TABLE = "report.json", "report.txt"

logger = logging.getLogger(__name__)


def evaluate(options: EvalOptions, progress: Progress = no_progress) -> tuple[str, int]:
    """Make the missing responses, score all, and write ``report.json`` and ``report.txt`` into ``options.directory``.

    Responses are appended as they finish, so an interrupted evaluation continues where it stopped. If all are there already,
    no model is loaded.

    Returns:
        the table, and the number of responses that were made now rather than before.

    Raises:
        ValueError: wrong input, or a directory with another evaluation.
        OSError: the model cannot be found, or the directory cannot be written.
        RuntimeError: the merger or vLLM fails.
    """
    from verl_trgrpo.evaluation.accuracy import ScoredResponse, score_responses, summarize, summary_text
    from verl_trgrpo.evaluation.generation import Job, make_responses
    from verl_trgrpo.evaluation.response_store import open_store

    default_agent = default_agent_of(options.prompt_settings(options.model))
    rows = load_evaluable_rows(
        options.data, options.limit, options.seed, default_reward=options.reward, default_agent=default_agent
    )
    raise_invalid(option_problems(options, [row for file_rows in rows for row in file_rows]))
    model = find_model(options.model)
    digests = [file_sha256(path) for path in options.data]
    with open_store(options.directory, _arguments(options, model, digests), options.data) as store:
        done = {(file, found.row, found.sample) for file in range(len(rows)) for found in store.read(file)}
        jobs = [
            Job(file, row, sample, digests[file])
            for file, file_rows in enumerate(rows)
            for row in file_rows
            for sample in range(options.sampling.k)
            if (file, row.position, sample) not in done
        ]
        if jobs:
            asyncio.run(make_responses(options, merged_model(model, options.directory), jobs, store, progress))
        items: list[ScoredResponse] = []
        for file, file_rows in enumerate(rows):
            scored = score_responses(file_rows, store.read(file), progress, options.reward)
            lines = [{"row": found.row, "sample": found.sample, **vars(verdict)} for _, found, verdict in scored]
            write_text(store.path(file, ".verdicts.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
            items += scored
        summary = summarize(items, options.sampling.k, options.seed)
        table = summary_text(summary)
        write_text(options.directory / TABLE, table)
        report = {"options": asdict(options) | asdict(options.sampling), **asdict(summary)}
        write_json(options.directory / REPORT, report, default=str)
    return table, len(jobs)


def _arguments(options: EvalOptions, model: str, digests: list[str]) -> dict[str, Any]:
    """Return everything that decides the responses.

    The `places` of an agent loop may change between two attempts; the budget of a trajectory may not.
    """
    places = {name for loop in known_agent_loops().values() for name in loop.places}
    return {
        "model": fingerprint(model),
        "data": [{"file": path.name, "sha256": digest} for path, digest in zip(options.data, digests, strict=True)],
        **asdict(options.sampling),
        **{name: getattr(options, name) for name in ("seed", "limit")},
        "agent": {
            name: value for name, value in OmegaConf.from_dotlist([*options.agent]).items() if name not in places
        },
        "prompts": OmegaConf.to_container(options.prompt_settings(model), resolve=True),
    }


def option_problems(options: EvalOptions, rows: Sequence[Row]) -> list[str]:
    """Return a message for each wrong setting of the rows' agent loops, and for each option that none of the rows uses."""
    agents = {row.agent_name for row in rows}
    loops = [loop for name, loop in known_agent_loops().items() if name in agents and loop.options]
    checks = [partial(imported(loop.options), options.loop_settings(loop)) for loop in loops]
    messages = [found.message for check in checks for found in findings_of(check, "")]
    if options.agent and not loops:
        messages.append(
            f"agent={' '.join(options.agent)}: no row has the agent_name of a loop with settings, such "
            f"as {next(iter(known_agent_loops()))}; give rows that have it, or leave --agent out"
        )
    if options.reward and all(has_reward(row.data_source) for row in rows):
        messages.append(f"reward={options.reward}: the data sources of all rows have rewards; leave --reward out")
    return messages


def load_evaluable_rows(
    paths: Sequence[Path],
    limit: int | None,
    seed: int,
    own_rewards: bool = True,
    default_reward: str | None = None,
    default_agent: str = SINGLE_TURN,
    prompt_key: str = "prompt",
) -> list[list[Row]]:
    """Return the rows of each file; with `limit`, that many of each file, drawn with `seed`, in the file's order.

    With `own_rewards`, every data source needs a registered reward, or there is a `default_reward` for those without.

    Raises:
        InvalidInputError: files that cannot be read, or rows that cannot be evaluated; the first few are named.
    """
    agents = (SINGLE_TURN, *known_agent_loops())
    questions = Questions(Context(TaskKnowledge(default_reward, own_rewards), agents))
    refused = REFUSED | {DataQuestion.SOURCE}
    loaded, messages = [], []
    for path in paths:
        raw: list[RawRow] = []
        found = questions.files(TEST_ROLE, {str(path): open_data_file(path)}, prompt_key, partial(_kept, raw))
        try:
            notes = usable([*found], refused)
            _check_shown(path)
        except ValueError as error:
            messages.append(str(error))
            continue
        for note in notes:
            logger.warning("%s", note)
        rows = [_row(position, row, default_agent) for position, row in enumerate(raw)]
        loaded.append(draw(rows, limit, f"limit/{seed}"))
    raise_invalid(messages)
    return loaded


def _kept(kept: list[RawRow], name: str, file: DataFile, rows: Iterator[RawRow]) -> Iterator[RawRow]:
    for row in rows:
        kept.append(row)
        yield row


def _row(position: int, row: RawRow, default_agent: str) -> Row:
    messages = [{"role": message["role"], "content": message["content"]} for message in row["prompt"]]
    agent = row.get("agent_name") or default_agent
    return Row(position, row["data_source"], messages, ground_truth_of(row), dict(extra_info_of(row)), agent)


def _check_shown(path: Path) -> None:
    if medium := next((name for row in read_rows(path, MEDIA) for name, value in row.items() if value), None):
        raise ValueError(
            f"{path}: rows have {medium}, which the model would not be shown here; validate with veRL (trainer.val_only=true)"
        )
