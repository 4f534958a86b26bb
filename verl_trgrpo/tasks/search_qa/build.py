"""Build a search QA data set for veRL: ``train.parquet``, ``test.parquet``, ``val.parquet`` and ``manifest.json``.

All test sets go into one file, because veRL groups the validation metrics by data_source anyway. `val.parquet` is a
smaller sample of it, with equally many questions of each set: all tests together are about 52,000 questions.

Repeated questions. In train, rows of a set that ask the same question (up to case and white space) become one row that
accepts the answers of all; otherwise the same answer would be right in one row and wrong in the next. The tests keep
every row, for comparability with published figures.

No gold answer is where a tool could see it: `tools_kwargs`, which veRL hands to the tools, holds only the question.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from verl_trgrpo.common.options import command_line
from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import parquet, schema
from verl_trgrpo.data.build import BuilderOptions, BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.sources import MALFORMED, NOT_DRAWN, RowErrors, draw, hub_name
from verl_trgrpo.tasks.search_qa.prompts import LOOPS, build_prompt
from verl_trgrpo.tasks.search_qa.sources import (
    HUB_DATASET,
    HUB_REVISION,
    SETS,
    Part,
    Parts,
    Question,
    hub_parts,
    local_parts,
    read_part,
)

logger = logging.getLogger(__name__)

TRAIN_SETS = ("nq", "hotpotqa")
REPEATED = "repeats a question; its answers were added to the first"

_CREATE_KWARGS = pa.struct([("question", pa.string())])  # parquet has no empty structs
SCHEMA = schema.arrow_schema(
    [
        pa.field("question", pa.string()),
        pa.field("origin", pa.string()),
        pa.field("need_tools_kwargs", pa.bool_()),
        pa.field("tools_kwargs", pa.struct([("search", pa.struct([("create_kwargs", _CREATE_KWARGS)]))])),
    ],
    pa.struct([("target", pa.list_(pa.string()))]),
    [pa.field("agent_name", pa.string())],
)


@dataclass(frozen=True, kw_only=True)
class SearchQaOptions(BuilderOptions):
    """What to build; `limit` counts the questions of each set, and `num_proc` makes no difference.

    Args:
        source: hf (the FlashRAG collection on the hub), or a file or directory with its rows (question, golden_answers,
            id) as nq/train.jsonl or nq_train.jsonl; also .jsonl.gz, .json and .parquet.
        hf_dataset: with source hf, the name on the hub, or a directory with a copy of the repository (licence CC BY-SA
            4.0).
        revision: with source hf, commit, branch or tag.
        train_sets: sets to train on, no name for no train file; left out: nq and hotpotqa, where the source has them.
        test_sets: sets to test on, no name for no test file; left out: those of Search-R1 that the source has.
        loop: this project's agent loop over <search> tags, or veRL's own loop with a tool named search.
        system: put the instruction into a system message.
        val_per_set: also write val.parquet with this many test questions of each set, drawn with the seed, for frequent
            validation.
    """

    source: str = "hf"
    hf_dataset: str = HUB_DATASET
    revision: str = HUB_REVISION
    train_sets: tuple[str, ...] | None = None
    test_sets: tuple[str, ...] | None = None
    loop: Literal["search_tags", "tool_agent"] = "search_tags"
    system: bool = False
    val_per_set: int | None = None

    def problems(self) -> list[str]:
        """Return what is wrong with these fields."""
        problems = []
        for label, names in (("train_sets", self.train_sets), ("test_sets", self.test_sets)):
            if names and (set(names) - {*SETS} or len(set(names)) < len(names)):
                problems.append(f"{label} is {list(names)}; give each set once, from {', '.join(SETS)}")
        if self.train_sets == () and self.test_sets == ():
            problems.append("train_sets and test_sets are both empty; name at least one set")
        if self.loop not in LOOPS:
            problems.append(f"loop is {self.loop!r}; choose one of {', '.join(LOOPS)}")
        if self.val_per_set is not None and self.val_per_set < 1:
            problems.append(f"val_per_set is {self.val_per_set}; ask for at least 1 question per set, or leave it out")
        elif self.val_per_set is not None and self.test_sets == ():
            problems.append("val_per_set draws from the test sets, but test_sets is empty; name some")
        if self.source != "hf":
            given = {"hf_dataset": self.hf_dataset != HUB_DATASET, "revision": self.revision != HUB_REVISION}
            problems += [
                f"{name} goes with source 'hf' only, but it is {self.source!r}; leave it out"
                for name in given
                if given[name]
            ]
            if not Path(self.source).exists():
                problems.append(f"source {self.source} does not exist; give 'hf', a file or a directory")
        return problems


def build(options: SearchQaOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    Raises ValueError for a source that cannot be read or lacks a set that was asked for, malformed rows (unless these are
    skipped), or an output directory that cannot be written or has data files of unknown origin.
    """
    on_hub = options.source == "hf"
    parts = hub_parts(options.hf_dataset) if on_hub else local_parts(Path(options.source))
    selection = _select(options, parts)
    files = sorted((part.label, part.path) for group in selection.values() for part in group if part.path)
    arguments: dict[str, Any] = {
        "source": "hf" if on_hub else "files",
        **{role: [part.label for part in group] for role, group in selection.items()},
        **{name: getattr(options, name) for name in ("loop", "system", "val_per_set", "limit", "seed", "on_error")},
        "files": [{"part": label, "name": path.name, "sha256": parquet.file_sha256(path)} for label, path in files],
    }
    if on_hub:
        arguments |= {"hf_dataset": hub_name(options.hf_dataset), "revision": options.revision}
    plan = BuildPlan(
        builder="search_qa",
        out=options.out,
        arguments=arguments,
        command=command_line("python data_prep/search_qa.py", replace(options, num_proc=1, force=False)),
        libraries=["datasets"] if on_hub else [],
        inputs=[path for _, path in files],
        force=options.force,
    )
    return build_data_set(plan, lambda: _make(options, selection, progress))


def _select(options: SearchQaOptions, parts: Parts) -> dict[str, list[Part]]:
    """Return the parts to train and to test on.

    A set is tested on its test split, else dev, else train, but never on the one that is trained on.
    """
    found: dict[str, dict[str, Part | None]] = {"train": {}, "test": {}}
    for name in TRAIN_SETS if options.train_sets is None else options.train_sets:
        found["train"][name] = parts.get((name, "train"))
    for name in SETS if options.test_sets is None else options.test_sets:
        splits = ("test", "dev") if found["train"].get(name) else ("test", "dev", "train")
        found["test"][name] = next((parts[name, split] for split in splits if (name, split) in parts), None)
    problems = []
    for role, chosen in (("train", options.train_sets), ("test", options.test_sets)):
        missing = ", ".join(name for name, part in found[role].items() if part is None)
        if missing and chosen is not None:
            problems.append(f"the source has no {role} split of {missing}; add it or leave it out of {role}_sets")
        elif missing:
            logger.warning("the source has no %s split of %s; built without", role, missing)
    raise_problems(problems)
    selection = {role: [part for part in group.values() if part] for role, group in found.items()}
    if not any(selection.values()):
        raise ValueError("the source has none of the sets asked for; choose others with train_sets and test_sets")
    return selection


def _make(options: SearchQaOptions, selection: dict[str, list[Part]], progress: Progress) -> DataSet:
    errors = RowErrors(skip=options.on_error == "skip")
    hub = (options.hf_dataset, options.revision) if options.source == "hf" else None
    counts: dict[str, Counts] = {}
    questions: dict[str, list[Question]] = {"train": [], "test": [], "val": []}
    parts = [(role, part) for role, group in selection.items() for part in group]
    for role, part in progress(parts, len(parts), "splits read"):
        found, problems = read_part(part, hub, errors.skip)
        errors.problems += problems
        kept = _merge_repeated(found) if role == "train" else found
        drawn = draw(kept, options.limit, f"limit/{role}/{part.set_name}/{options.seed}")
        questions[role] += drawn
        if role == "test" and options.val_per_set:
            questions["val"] += draw(drawn, options.val_per_set, f"val/{part.set_name}/{options.seed}")
        dropped = {MALFORMED: len(problems), REPEATED: len(found) - len(kept), NOT_DRAWN: len(kept) - len(drawn)}
        counts[f"{part.label} for {role}"] = Counts(len(found) + len(problems), len(drawn), dropped)
    errors.finish()
    wanted = [*(role for role, group in selection.items() if group)]
    wanted += ["val"] if options.val_per_set and selection["test"] else []
    files = [
        DataFile(
            f"{name}.parquet",
            [
                _row(question, index, "train" if name == "train" else "test", options)
                for index, question in enumerate(progress(questions[name], len(questions[name]), name))
            ],
            SCHEMA,
        )
        for name in wanted
    ]
    return DataSet(files, counts, errors.problems)


def _merge_repeated(questions: Sequence[Question]) -> list[Question]:
    """Return one question for each text, in order, with the answers of all its rows."""
    merged: dict[str, Question] = {}
    for question in questions:
        key = " ".join(question.text.casefold().split())
        first = merged.setdefault(key, question)
        if first is not question and (new := [a for a in question.answers if a not in first.answers]):
            merged[key] = replace(first, answers=(*first.answers, *new))
    return list(merged.values())


def _row(question: Question, index: int, split: str, options: SearchQaOptions) -> dict[str, Any]:
    return schema.build_row(
        data_source=f"searchR1_{question.set_name}",
        prompt=build_prompt(question.text, options.loop, options.system),
        ability="fact-reasoning",
        ground_truth={"target": list(question.answers)},
        index=index,
        split=split,
        extra_info={
            "question": question.text,
            "origin": question.origin,
            "need_tools_kwargs": options.loop == "tool_agent",
            "tools_kwargs": {"search": {"create_kwargs": {"question": question.text}}},
        },
        columns={"agent_name": LOOPS[options.loop].agent_name},
    )
