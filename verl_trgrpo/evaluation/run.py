"""One evaluation from options to report."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

from verl_trgrpo.common.files import file_sha256, write_json, write_text
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.evaluation.checkpoint import find_model, fingerprint, merged_model
from verl_trgrpo.evaluation.figures import Item, render, score_responses, summarize
from verl_trgrpo.evaluation.options import EvalOptions
from verl_trgrpo.evaluation.responses import open_store
from verl_trgrpo.evaluation.rows import Job, load_rows
from verl_trgrpo.tasks.registry import import_external_modules

REPORT, TABLE = "report.json", "report.txt"


def evaluate(options: EvalOptions, progress: Progress = no_progress) -> tuple[str, int]:
    """Make the missing responses, score all, and write ``report.json`` and ``report.txt`` into ``options.directory``.

    Responses are appended as they finish, so an interrupted evaluation goes on where it stopped. Where all are there
    already, no model is loaded. Returns the table, and how many responses were made now rather than before.

    Raises:
        ValueError: wrong input, or a directory with another evaluation.
        OSError: a model that cannot be found, or a directory that cannot be written.
        RuntimeError: the merger or vLLM fails.
    """
    import_external_modules()
    rows = load_rows(options.data, options.limit, options.seed)
    model = find_model(options.model)
    digests = [file_sha256(path) for path in options.data]
    # What decides the responses. The server's address may change between two attempts; the budget of a trajectory may not.
    arguments = {
        "model": fingerprint(model),
        "data": [{"file": path.name, "sha256": digest} for path, digest in zip(options.data, digests, strict=True)],
        **asdict(options.sampling),
        **{name: getattr(options, name) for name in ("seed", "limit")},
        "search": {name: value for name, value in options.search_settings.items() if name != "url"},
    }
    with open_store(options.directory, arguments, options.data) as store:
        done = {(file, found.row, found.sample) for file in range(len(rows)) for found in store.read(file)}
        jobs = [
            Job(file, row, sample, digests[file])
            for file, file_rows in enumerate(rows)
            for row in file_rows
            for sample in range(options.sampling.k)
            if (file, row.position, sample) not in done
        ]
        if jobs:
            from verl_trgrpo.evaluation.generation import make_responses  # imports vLLM

            asyncio.run(make_responses(options, merged_model(model, options.directory), jobs, store, progress))
        items: list[Item] = []
        for file, file_rows in enumerate(rows):
            scored = score_responses(file_rows, store.read(file), progress)
            lines = [{"row": found.row, "sample": found.sample, **vars(verdict)} for _, found, verdict in scored]
            write_text(store.path(file, ".verdicts.jsonl"), "".join(json.dumps(line) + "\n" for line in lines))
            items += scored
        summary = summarize(items, options.sampling.k, options.seed)
        table = render(summary)
        write_text(options.directory / TABLE, table)
        report = {"options": asdict(options) | asdict(options.sampling), **asdict(summary)}
        write_json(options.directory / REPORT, report, default=str)
    return table, len(jobs)
