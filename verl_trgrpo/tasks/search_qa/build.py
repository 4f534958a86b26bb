"""Build a search QA data set for veRL: ``train.parquet``, ``test.parquet``, ``val.parquet`` and ``manifest.json``.

All test sets go into one file, because veRL groups the validation metrics by data_source anyway. `val.parquet` is a
smaller sample of it, with equally many questions of each set: all tests together are about 52,000 questions.

Repeated questions. In train, rows of a set that ask the same question (up to case and white space) become one row that
accepts the answers of all; otherwise the same answer would be right in one row and wrong in the next. The tests keep
every row, for comparability with published figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, DataSet, counts, limit_problems
from verl_trgrpo.data.sources import NOT_DRAWN, draw, warn_of_test_files
from verl_trgrpo.tasks.search_qa.prompts import SEARCH_AGENT, build_prompt
from verl_trgrpo.tasks.search_qa.sources import (
    HUB_SPLITS,
    SETS,
    Parts,
    Question,
    SetName,
    local_parts,
    read_part,
)

REPEATED = "repeats a question; its answers were added to the first"

SCHEMA = schema.arrow_schema(
    [pa.field("question", pa.string()), pa.field("origin", pa.string())],
    pa.struct([("target", pa.list_(pa.string()))]),
    [pa.field("agent_name", pa.string())],
)


@dataclass(frozen=True, kw_only=True)
class SearchQaOptions(BuilderOptions):
    """What to build.

    Args:
        source: hf (the FlashRAG collection on the hub, licence CC BY-SA 4.0), or a directory with its rows (question,
            golden_answers, id) as nq/train.jsonl, nq/test.jsonl and so on; also .jsonl.gz, .json and .parquet.
        limit: at most this many questions of each set, drawn with the seed; all if left out.
        train_sets: sets to train on; no name for no train file.
        test_sets: sets to test on; no name for no test file.
        val_per_set: also write val.parquet with this many test questions of each set, drawn with the seed, for frequent
            validation.
    """

    source: str = "hf"
    limit: int | None = None
    train_sets: tuple[SetName, ...] = ("nq", "hotpotqa")
    test_sets: tuple[SetName, ...] = SETS
    val_per_set: int | None = None

    def problems(self) -> list[str]:
        """Return what is wrong with these fields."""
        problems = limit_problems(self.limit)
        if not self.train_sets and not self.test_sets:
            problems.append("train_sets and test_sets are both empty; name at least one set")
        if self.val_per_set is not None and self.val_per_set < 1:
            problems.append(f"val_per_set is {self.val_per_set}; ask for at least 1 question per set, or leave it out")
        return problems


def build(options: SearchQaOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Build the data set, or find it already built with the same arguments.

    Raises ValueError for a source that cannot be read or lacks a set that was asked for, malformed rows,
    or an output directory that cannot be written or has data files of unknown origin.
    """
    on_hub: Parts = {(name, split): None for name, splits in HUB_SPLITS.items() for split in splits}
    parts = on_hub if options.source == "hf" else local_parts(Path(options.source))
    selection = _select(options, parts)
    warn_of_test_files([path for role, name, split in selection if role == "train" and (path := parts[name, split])])
    return options.build(
        "search_qa",
        lambda: _make(options, selection, parts, progress),
        inputs={f"{name}/{split}": path for _, name, split in selection if (path := parts[name, split])},
        libraries=["datasets"] if options.source == "hf" else [],
        parts=[f"{role}: {name}/{split}" for role, name, split in selection],
    )


def _select(options: SearchQaOptions, parts: Parts) -> list[tuple[str, str, str]]:
    """Return what to read, as train or test, set and split.

    A set is tested on its test split, else dev, else train, but never on the one that is trained on.
    """
    wanted = [("train", name, ["train"]) for name in dict.fromkeys(options.train_sets)]
    for name in dict.fromkeys(options.test_sets):
        wanted.append(("test", name, ["test", "dev"] + ["train"] * (name not in options.train_sets)))
    found = [(role, name, [split for split in splits if (name, split) in parts]) for role, name, splits in wanted]
    raise_invalid(
        [
            f"the source has no {role} split of {name}; add it or leave it out of --{role}-sets"
            for role, name, splits in found
            if not splits
        ]
    )
    return [(role, name, splits[0]) for role, name, splits in found]


def _make(
    options: SearchQaOptions, selection: Sequence[tuple[str, str, str]], parts: Parts, progress: Progress
) -> DataSet:
    read: dict[str, dict[str, Any]] = {}
    questions: dict[str, list[Question]] = {role: [] for role, _, _ in selection}
    if options.val_per_set and options.test_sets:
        questions["val"] = []
    for role, name, split in progress(selection, len(selection), "splits read"):
        found = read_part(name, split, parts[name, split])
        kept = _merge_repeated(found) if role == "train" else found
        drawn = draw(kept, options.limit, f"limit/{role}/{name}/{options.seed}")
        questions[role] += drawn
        if role == "test" and options.val_per_set:
            questions["val"] += draw(drawn, options.val_per_set, f"val/{name}/{options.seed}")
        dropped = {REPEATED: len(found) - len(kept), NOT_DRAWN: len(kept) - len(drawn)}
        read[f"{name}/{split} for {role}"] = counts(len(drawn), dropped)
    files = {file: [_row(question) for question in asked] for file, asked in questions.items()}
    return DataSet(files, SCHEMA, read)


def _merge_repeated(questions: Sequence[Question]) -> list[Question]:
    """Return one question for each text, in order, with the answers of all its rows."""
    merged: dict[str, Question] = {}
    for question in questions:
        first = merged.setdefault(key := " ".join(question.text.casefold().split()), question)
        merged[key] = replace(first, answers=tuple(dict.fromkeys(first.answers + question.answers)))
    return list(merged.values())


def _row(question: Question) -> dict[str, Any]:
    return schema.build_row(
        data_source=f"searchR1_{question.set_name}",
        prompt=build_prompt(question.text),
        ability="fact-reasoning",
        ground_truth={"target": list(question.answers)},
        extra_info={"question": question.text, "origin": question.origin},
        columns={"agent_name": SEARCH_AGENT},
    )
