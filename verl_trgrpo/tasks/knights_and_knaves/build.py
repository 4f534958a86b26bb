"""Build a Knights-and-Knaves data set for veRL.

| file | rows |
|---|---|
| ``train.parquet``, ``test.parquet`` | puzzles of all sizes in random order, in the form of `data.schema` |
| ``test_<n>ppl.parquet`` | the test puzzles of one size, if asked for |
| ``sft_train.parquet``, ``sft_test.parquet`` | the same rows with one more column, if asked for |

The further column is ``messages``: the prompt and the assistant's worked response, as veRL's trainer for supervised
fine-tuning reads it.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import parquet, schema
from verl_trgrpo.data.build import BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.selection import MALFORMED, NOT_DRAWN, draw
from verl_trgrpo.data.sources import RowErrors, directory_sha256, hub_copy, hub_name, visible_files
from verl_trgrpo.tasks.knights_and_knaves import sources
from verl_trgrpo.tasks.knights_and_knaves.options import KkDatasetOptions
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_response, format_solution, puzzle_prompt
from verl_trgrpo.tasks.knights_and_knaves.reasoning import search_text
from verl_trgrpo.tasks.knights_and_knaves.rows import SourcedPuzzle
from verl_trgrpo.tasks.knights_and_knaves.sources import Rules, Selection

EXTRA_INFO = [
    pa.field("n_people", pa.int64()),
    pa.field("names", pa.list_(pa.string())),
    pa.field("statements", pa.string()),
    pa.field("origin", pa.string()),
]

MESSAGES = pa.field("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))


def build(options: KkDatasetOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    The files appear together or the old ones stay. Raises ValueError for a source that cannot give what is asked for,
    an output directory that cannot be written, or one with data files that have no manifest from here.
    """
    plan = BuildPlan(
        builder="kk",
        out=options.out,
        arguments=_arguments(options),
        command=_command(options),
        libraries={"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"], "files": []}[options.kind],
        inputs=_inputs(options),
        force=options.force,
    )
    return build_data_set(plan, lambda: _make(options, progress))


def _make(options: KkDatasetOptions, progress: Progress) -> DataSet:
    errors = RowErrors(skip=options.on_error == "skip")
    selections = list(_select(options, errors, progress))
    train, test = (_puzzles(options, split, selections) for split in ("train", "test"))
    files = [_file(options, "train", train), _file(options, "test", test)]
    if options.test_per_size:
        for size in options.sizes:
            same_size = [sourced for sourced in test if len(sourced.puzzle.names) == size.n_people]
            if same_size:  # with a limit, none may be left
                files.append(_file(options, "test", same_size, f"test_{size.n_people}ppl"))
    if options.with_reasoning:
        files += [_file(options, split, part, f"sft_{split}") for split, part in (("train", train), ("test", test))]
    return DataSet(files, _counts(selections, train, test, len(errors.problems)), errors.problems)


def _counts(
    selections: Iterable[Selection], train: Sequence[SourcedPuzzle], test: Sequence[SourcedPuzzle], malformed: int
) -> dict[str, Counts]:
    """Return the counts of the selections after the limit; nobody knows how many people malformed rows are about."""
    written: Counter[str] = Counter()
    for split, puzzles in (("train", train), ("test", test)):
        for sourced in puzzles:
            label = f"{len(sourced.puzzle.names)}ppl"
            written.update([label, f"{label} {split}"])
    counts = {
        label: replace(found, kept=written[label], dropped={**found.dropped, NOT_DRAWN: found.kept - written[label]})
        for selection in selections
        for label, found in selection.counts.items()
    }
    return counts | ({"malformed rows": Counts(malformed, 0, {MALFORMED: malformed})} if malformed else {})


def _select(options: KkDatasetOptions, errors: RowErrors, progress: Progress) -> Iterable[Selection]:
    if options.kind == "generate":
        return sources.from_generator(options.sizes, options.seed, options.num_proc, progress)
    rules = Rules(options.seed, options.fewer_allowed, options.with_reasoning)
    if options.kind == "hf":
        return sources.from_hub(options.sizes, rules, options.hf_dataset, options.revision, errors, progress)
    return sources.from_files(options.sizes, rules, *options.files, errors, progress)


def _puzzles(options: KkDatasetOptions, split: str, selections: Sequence[Selection]) -> list[SourcedPuzzle]:
    """Return the puzzles of one split, all sizes mixed in an order that depends on the seed."""
    puzzles: list[SourcedPuzzle] = [sourced for selection in selections for sourced in getattr(selection, split)]
    random.Random(f"order/{split}/{options.seed}").shuffle(puzzles)
    return draw(puzzles, options.limit, f"limit/{split}/{options.seed}")


def _file(options: KkDatasetOptions, split: str, puzzles: Sequence[SourcedPuzzle], name: str | None = None) -> DataFile:
    """Return one file, by default named after its split; in files named ``sft_...`` rows have messages."""
    name = name or split
    with_messages = name.startswith("sft_")
    rows = []
    for index, sourced in enumerate(puzzles):
        row = _row(options, split, index, sourced)
        rows.append({**row, "messages": _messages(row["prompt"], sourced)} if with_messages else row)
    columns = [MESSAGES] if with_messages else []
    return DataFile(f"{name}.parquet", rows, schema.arrow_schema(EXTRA_INFO, columns=columns))


def _row(options: KkDatasetOptions, split: str, index: int, sourced: SourcedPuzzle) -> dict[str, Any]:
    puzzle, n_people = sourced.puzzle, len(sourced.puzzle.names)
    return schema.build_row(
        data_source=f"kk_{n_people}ppl",
        prompt=puzzle_prompt(puzzle, options.prompt, options.system),
        ability="logic",
        ground_truth=format_solution(puzzle.names, puzzle.solution),
        index=index,
        split=split,
        extra_info={
            "n_people": n_people,
            "names": list(puzzle.names),
            "statements": repr(puzzle.statements),
            "origin": sourced.origin,
        },
    )


def _messages(prompt: list[dict[str, str]], sourced: SourcedPuzzle) -> list[dict[str, str]]:
    puzzle = sourced.puzzle
    reasoning = search_text(puzzle) if sourced.reasoning is None else sourced.reasoning
    return [*prompt, {"role": "assistant", "content": format_response(reasoning, puzzle.names, puzzle.solution)}]


def _arguments(options: KkDatasetOptions) -> dict[str, Any]:
    """Return what determines the data, in a form that does not depend on where the files are."""
    arguments: dict[str, Any] = {
        "source": options.kind,
        "sizes": [{"people": size.n_people, "train": size.train, "test": size.test} for size in options.sizes],
        "seed": options.seed,
        "prompt": options.prompt,
        "system": options.system,
        "test_per_size": options.test_per_size,
        "with_reasoning": options.with_reasoning,
        "limit": options.limit,
    }
    if options.kind != "generate":
        arguments |= {"at_most": options.fewer_allowed, "on_error": options.on_error}
    if options.kind == "hf":
        copy = hub_copy(options.hf_dataset)
        arguments |= {"hf_dataset": hub_name(options.hf_dataset), "revision": options.revision}
        arguments |= {"copy_sha256": directory_sha256(copy)} if copy else {}
    if options.kind == "files":
        files, test_files = options.files
        arguments |= {"files": _described(files), "test_files": _described(test_files)}
    return arguments


def _described(paths: Sequence[Path]) -> list[dict[str, str]]:
    return [{"name": path.name, "sha256": parquet.file_sha256(path)} for path in paths]


def _inputs(options: KkDatasetOptions) -> list[Path]:
    copy = hub_copy(options.hf_dataset) if options.kind == "hf" else None
    return visible_files(copy) if copy else [path for paths in options.files for path in paths]


def _command(options: KkDatasetOptions) -> list[str]:
    """Return the command that builds this data set, with paths as they were given."""
    words = ["python", "data_prep/kk.py", "--out", str(options.out)]
    if options.paper:
        words += ["--paper"]
    elif options.mix:
        words += ["--mix", *(f"{n_people}={train}" for n_people, train in options.mix)]
    else:
        words += ["--people", *map(str, options.people)]
    words += _flags(options, "train", "test", "limit")
    words += ["--seed", str(options.seed), "--source", *options.source]
    if options.test_source:
        words += ["--test-source", *options.test_source]
    if options.kind == "hf":
        words += ["--hf-dataset", options.hf_dataset, "--revision", options.revision]
    if options.kind != "generate":
        words += ["--on-error", options.on_error]
    words += ["--prompt", options.prompt]
    return words + _flags(options, "system", "at_most", "test_per_size", "with_reasoning")


def _flags(options: KkDatasetOptions, *names: str) -> list[str]:
    """Return the options of these names that are given: ``--name value``, or ``--name`` where the value is True."""
    words = []
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words
