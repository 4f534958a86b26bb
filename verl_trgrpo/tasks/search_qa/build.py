"""Build a search QA data set for veRL: ``train.parquet``, ``test.parquet``, ``val.parquet`` and ``manifest.json``.

All test sets go into one file, because veRL groups the validation metrics by data_source anyway. `val.parquet` is a
smaller sample of it, with equally many questions of each set: all tests together are about 52,000 questions.

Repeated questions. In train, rows of a set that ask the same question (up to case and white space) become one row that
accepts the answers of all; otherwise the same answer would be right in one row and wrong in the next. The tests keep
every row, for comparability with published figures.

No gold answer is where a tool could see it: `tools_kwargs`, which veRL hands to the tools, holds only the question.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.problems import raise_problems
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import parquet, schema
from verl_trgrpo.data.build import BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.command import common_problems
from verl_trgrpo.data.selection import MALFORMED, NOT_DRAWN, draw
from verl_trgrpo.data.sources import RowErrors, hub_copy, hub_name
from verl_trgrpo.tasks.search_qa import sources
from verl_trgrpo.tasks.search_qa.prompts import LOOPS, build_prompt
from verl_trgrpo.tasks.search_qa.sources import HUB_DATASET, HUB_REVISION, SETS, Part, Question

logger = logging.getLogger(__name__)

TRAIN_SETS = ("nq", "hotpotqa")
REPEATED = "repeats a question; its answers were added to the first"

GROUND_TRUTH = pa.struct([("target", pa.list_(pa.string()))])
_CREATE_KWARGS = pa.struct([("question", pa.string())])  # parquet has no empty structs
EXTRA_INFO = [
    pa.field("question", pa.string()),
    pa.field("origin", pa.string()),
    pa.field("need_tools_kwargs", pa.bool_()),
    pa.field("tools_kwargs", pa.struct([("search", pa.struct([("create_kwargs", _CREATE_KWARGS)]))])),
]
SCHEMA = schema.arrow_schema(EXTRA_INFO, GROUND_TRUTH, [pa.field("agent_name", pa.string())])


@dataclass(frozen=True)
class SearchQaOptions:
    """What to build.

    out: directory for the files.
    source: "hf", or the path of a file or directory (see `sources.local_parts`).
    hf_dataset, revision: with "hf", the name or local directory of the data set, and its commit, branch or tag.
    train_sets, test_sets: which sets, each of which the source must have; None for those of Search-R1 that it has.
    loop: "search_tags" for this project's loop over ``<search>`` tags, "tool_agent" for veRL's tool agent.
    system: put the instruction into a system message.
    val_per_set: write `val.parquet` with at most so many questions of each test set.
    limit: at most so many questions of each set, train and test counted apart.
    seed, on_error, force: see `command.add_common_arguments`.
    num_proc: makes no difference; handing questions from process to process took longer than reading them.

    Raises ValueError that lists everything that is wrong.
    """

    out: Path
    source: str = "hf"
    hf_dataset: str = HUB_DATASET
    revision: str = HUB_REVISION
    train_sets: tuple[str, ...] | None = None
    test_sets: tuple[str, ...] | None = None
    loop: str = "search_tags"
    system: bool = False
    val_per_set: int | None = None
    limit: int | None = None
    seed: int = 0
    num_proc: int = 1
    on_error: str = "raise"
    force: bool = False

    def __post_init__(self) -> None:
        problems = common_problems(self.limit, self.num_proc, self.on_error)
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
        given = {"hf_dataset": self.hf_dataset != HUB_DATASET, "revision": self.revision != HUB_REVISION}
        if not self.on_hub:
            problems += [
                f"{name} goes with source 'hf' only, but it is {self.source!r}; leave it out"
                for name in given
                if given[name]
            ]
        if not self.on_hub and not Path(self.source).exists():
            problems.append(f"source {self.source} does not exist; give 'hf', a file or a directory")
        raise_problems(problems)

    @property
    def on_hub(self) -> bool:
        """Return whether the source is the hub or a copy of its repository."""
        return self.source == "hf"


@dataclass(frozen=True)
class _Selection:
    train: tuple[Part, ...]
    test: tuple[Part, ...]


def build(options: SearchQaOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    Raises ValueError for a source that cannot be read or lacks a set that was asked for, malformed rows (unless these are
    skipped), or an output directory that cannot be written or has data files of unknown origin.
    """
    parts = _hub_parts(options) if options.on_hub else sources.local_parts(Path(options.source))
    selection = _select(options, parts)
    chosen = (*selection.train, *selection.test)
    copy = hub_copy(options.hf_dataset) if options.on_hub else None
    local = sources.local_parts(copy) if copy else parts
    files = {local[part.set_name, part.split] for part in chosen}
    arguments: dict[str, Any] = {
        "source": "hf" if options.on_hub else "files",
        "train": [part.label for part in selection.train],
        "test": [part.label for part in selection.test],
        "loop": options.loop,
        "system": options.system,
        "val_per_set": options.val_per_set,
        "limit": options.limit,
        "seed": options.seed,
        "on_error": options.on_error,
        "files": _file_facts(files),
    }
    if options.on_hub:
        arguments |= {"hf_dataset": hub_name(options.hf_dataset), "revision": options.revision}
    plan = BuildPlan(
        builder="search_qa",
        out=options.out,
        arguments=arguments,
        command=_command(options),
        libraries=["datasets"] if options.on_hub else [],
        inputs=[part.path for part in files if part.path is not None],
        force=options.force,
    )
    return build_data_set(plan, lambda: _make(options, selection, progress))


def _hub_parts(options: SearchQaOptions) -> dict[tuple[str, str], Part]:
    parts = sources.hub_parts(options.hf_dataset, options.revision)
    copy = hub_copy(options.hf_dataset)
    if copy:  # it need not be complete
        present = sources.local_parts(copy)
        parts = {key: part for key, part in parts.items() if key in present}
    return parts


def _train_sets(options: SearchQaOptions) -> tuple[str, ...]:
    return TRAIN_SETS if options.train_sets is None else options.train_sets


def _test_sets(options: SearchQaOptions) -> tuple[str, ...]:
    return SETS if options.test_sets is None else options.test_sets


def _file_facts(parts: Iterable[Part]) -> list[dict[str, str]]:
    files = sorted((part.label, part.path) for part in parts if part.path is not None)
    return [{"part": label, "name": path.name, "sha256": parquet.file_sha256(path)} for label, path in files]


def _select(options: SearchQaOptions, parts: dict[tuple[str, str], Part]) -> _Selection:
    train = {name: sources.train_part(parts, name) for name in _train_sets(options)}
    test = {name: sources.test_part(parts, name, bool(train.get(name))) for name in _test_sets(options)}
    missing = {
        "train": [n for n, part in train.items() if not part],
        "test": [n for n, part in test.items() if not part],
    }
    chosen = {"train": options.train_sets is not None, "test": options.test_sets is not None}
    problems = [
        f"the source has no {role} split of {', '.join(names)}; add it or leave it out of {role}_sets"
        for role, names in missing.items()
        if names and chosen[role]
    ]
    raise_problems(problems)
    for role, names in missing.items():
        if names:
            logger.warning("the source has no %s split of %s; built without", role, ", ".join(names))
    found = _Selection(*(tuple(part for part in role.values() if part) for role in (train, test)))
    if not found.train and not found.test:
        raise ValueError("the source has none of the sets asked for; choose others with train_sets and test_sets")
    return found


def _make(options: SearchQaOptions, selection: _Selection, progress: Progress) -> DataSet:
    errors = RowErrors(skip=options.on_error == "skip")
    counts: dict[str, Counts] = {}
    questions: dict[str, dict[str, list[Question]]] = {"train": {}, "test": {}}
    parts = [("train", part) for part in selection.train] + [("test", part) for part in selection.test]
    for role, part in progress(parts, len(parts), "splits read"):
        found, problems = sources.read_part(part, errors.skip)
        errors.problems += problems
        kept = _merge_repeated(found) if role == "train" else found
        drawn = draw(kept, options.limit, f"limit/{role}/{part.set_name}/{options.seed}")
        questions[role][part.set_name] = drawn
        dropped = {MALFORMED: len(problems), REPEATED: len(found) - len(kept), NOT_DRAWN: len(kept) - len(drawn)}
        counts[f"{part.label} for {role}"] = Counts(len(found) + len(problems), len(drawn), dropped)
    errors.finish()
    files = []
    if selection.train:
        files.append(
            _data_file("train", [q for group in questions["train"].values() for q in group], options, progress)
        )
    if selection.test:
        files.append(_data_file("test", [q for group in questions["test"].values() for q in group], options, progress))
    if options.val_per_set and selection.test:
        sample = [
            question
            for name, group in questions["test"].items()
            for question in draw(group, options.val_per_set, f"val/{name}/{options.seed}")
        ]
        files.append(_data_file("val", sample, options, progress))
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


def _data_file(name: str, questions: list[Question], options: SearchQaOptions, progress: Progress) -> DataFile:
    split = "train" if name == "train" else "test"
    numbered = enumerate(progress(questions, len(questions), name))
    return DataFile(f"{name}.parquet", [_row(question, index, split, options) for index, question in numbered], SCHEMA)


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


def _command(options: SearchQaOptions) -> list[str]:
    """Return the command that builds this data set, with paths as they were given."""
    words = ["python", "data_prep/search_qa.py", "--out", str(options.out), "--loop", options.loop]
    words += ["--source", options.source]
    if options.on_hub:
        words += ["--hf-dataset", options.hf_dataset, "--revision", options.revision]
    for flag, names in (("--train-sets", options.train_sets), ("--test-sets", options.test_sets)):
        words += [] if names is None else [flag, *names]
    for flag, number in (("--val-per-set", options.val_per_set), ("--limit", options.limit)):
        words += [] if number is None else [flag, str(number)]
    words += ["--seed", str(options.seed), "--on-error", options.on_error]
    return words + (["--system"] if options.system else [])
