"""Build search QA data for veRL: ``train.parquet``, ``test.parquet``, ``val.parquet`` and ``manifest.json``.

The questions come from the FlashRAG collection on the Hugging Face hub, or from files in its layout: splits of sets, for
example ``hotpotqa/dev.jsonl``. A row has a `question`, its `golden_answers` and perhaps an `id`, or what NQ-open, HotpotQA,
2WikiMultihopQA and MuSiQue have in their place (`answer`, `answer_aliases`, `_id`); other fields, such as `metadata`, are
not read.

All test sets go into one file, because veRL groups the validation metrics by data_source. `val.parquet` is a smaller
sample of it, with equally many questions of each set: all tests together are about 52,000 questions.

In train, rows of a set that ask the same question (up to case and white space) become one row that accepts the answers of
all; otherwise the same answer would be right in one row and wrong in the next. The tests keep every row, for
comparability with published figures.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from verl_trgrpo.common.findings import raise_invalid
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import arrow_schema, build_row, chat_tags
from verl_trgrpo.data.sources import (
    NOT_DRAWN,
    LeftOutRowError,
    Parsed,
    Record,
    SourceFiles,
    draw,
    find_source_files,
    is_empty,
    load_hub,
    parse_records,
    plain_name,
    read_records,
    stem_of,
    warn_of_test_files,
)
from verl_trgrpo.tasks.data_set import BuilderOptions
from verl_trgrpo.tasks.search_qa import QUESTION_SETS, SEARCH_AGENT

if TYPE_CHECKING:
    import pyarrow as pa

_INSTRUCTION = (
    "Answer the question below. Begin each turn by thinking inside <think> and </think>. If a fact is missing, then write a "
    "query for the search engine inside <search> and </search>; the passages it finds are shown to you inside <information> "
    "and </information>. You may search several times. When you know the answer, write it inside <answer> and </answer>: "
    "only the answer itself, in as few words as possible, for example <answer>Marie Curie</answer>."
)

# Other names of sets, with which directories, or files that are in none, begin.
_ALIASES = {"naturalquestions": "nq", "nqopen": "nq", "hotpot": "hotpotqa", "2wiki": "2wikimultihopqa"}
_SPLITS = {"train": "train", "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev", "test": "test"}
# Columns of the sets that hold what a search has to find.
_UNNEEDED = (
    "context", "supporting_facts", "evidences", "evidences_id", "answer_id", "paragraphs", "question_decomposition", "answerable",
)  # fmt: skip

_HUB_DATASET = "RUC-NLPIR/FlashRAG_datasets"
# A commit known when this was written; it could not be loaded then.
_HUB_REVISION = "d3adb4a4eb0c1424b404b65c69818a84b50476e6"
# The splits on the hub, each in a file such as nq/train.jsonl.
HUB_SPLITS = {
    "nq": ("train", "dev", "test"),
    "triviaqa": ("train", "dev", "test"),
    "popqa": ("test",),
    "hotpotqa": ("train", "dev"),
    "2wikimultihopqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "bamboogle": ("test",),
}

# A reason for dropping rows, in the manifest.
_REPEATED = "repeats a question; its answers were added to the first"
UNANSWERABLE = "the row says that it cannot be answered"

# By set and split, as ``nq/train``: the file, or None for one on the hub.
_Parts = dict[str, Path | None]
# File (train or test), and set and split to read.
Selection = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Question:
    """A question and its answers.

    Args:
        set_name: one of `QUESTION_SETS`.
        text: the question, which ends with a question mark.
        answers: one or more strings that each answer it, without repetitions.
        origin: ``set/split#id``, with the row's number if it has no id.
    """

    set_name: str
    text: str
    answers: tuple[str, ...]
    origin: str


@dataclass(frozen=True, kw_only=True)
class SearchQaOptions(BuilderOptions):
    """Contents of a search QA data set.

    Args:
        source: hf (the FlashRAG collection on the hub, licence CC BY-SA 4.0), or a directory with its rows (question,
            golden_answers, id) as nq/train.jsonl, nq/test.jsonl and so on, or with the files of NQ-open, HotpotQA,
            2WikiMultihopQA and MuSiQue in nq, hotpotqa, 2wikimultihopqa and musique; also .jsonl.gz, .json, .parquet and .arrow.
        limit: at most this many questions of each set, drawn with the seed; all if left out.
        train_sets: sets to train on; without a name no train file is written.
        test_sets: sets to test on; without a name no test file is written.
        val_per_set: also write val.parquet with this many test questions of each set, drawn with the seed, for frequent
            validation.
    """

    source: str = "hf"
    limit: Annotated[int | None, "[1, inf)"] = None
    train_sets: tuple[str, ...] = ("nq", "hotpotqa")
    test_sets: tuple[str, ...] = QUESTION_SETS
    val_per_set: Annotated[int | None, "[1, inf)"] = None

    def problems(self) -> list[str]:
        """Return a message for each set that is not known, and if none is named."""
        named = (*self.train_sets, *self.test_sets)
        known = ", ".join(QUESTION_SETS)
        unknown = [f"{word}: not a set; choose from {known}" for word in dict.fromkeys(named) if not _set_named(word)]
        return unknown if named else ["train_sets and test_sets are both empty; name at least one set"]


def build_search_qa(options: SearchQaOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Write Search-R1's questions as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build search-qa --out data/search_qa --source hf --val-per-set 100
      verl-trgrpo data build search-qa --out data/nq --source FlashRAG_datasets --train-sets nq --test-sets nq bamboogle

    notes:
      The tests take a set's test split, else dev, else train. Train rows of a set that ask the same question become one
      row that accepts the answers of all; the tests keep every row.
      --limit counts the questions of each set. A directory with a copy of the collection is a source as it is.
      --source hf has been run on the repository's layout, not against the hub itself.

    Returns:
        the manifest, None if the data set is there already; see `DataSet`.

    Raises:
        ValueError: the source cannot be read or lacks a set that is asked for, rows are malformed, or the directory cannot
            be written.
    """
    found = SourceFiles(Path(options.source), {})
    parts: _Parts = {f"{name}/{split}": None for name, splits in HUB_SPLITS.items() for split in splits}
    if options.source != "hf":
        found = find_question_files(found.source, options.out)
        parts = {**found.single()}
    selection = _select(options, parts)
    files = {part: path for _, part in selection if (path := parts[part])}
    warn_of_test_files([files[part] for role, part in selection if files and role == "train"])
    data_set = options.data_set(
        "search_qa",
        "search-qa",
        inputs=files,
        left_out=found.unused(files.values()),
        libraries=["datasets"] if options.source == "hf" else [],
        parts=[f"{role}: {part}" for role, part in selection],
    )
    if data_set.is_there():
        return None
    questions, counted = read_questions(options, selection, parts, progress)
    return data_set.write({split: map(_row, asked) for split, asked in questions.items()}, search_schema(), counted)


def _select(options: SearchQaOptions, parts: _Parts) -> Selection:
    """Return what to read.

    A set is tested on its test split, else dev, else train, but never on the one that is trained on.
    """
    train, test = (dict.fromkeys(map(_set_named, named)) for named in (options.train_sets, options.test_sets))
    wanted = [("train", name, ["train"]) for name in train]
    wanted += [("test", name, ["test", "dev"] + ["train"] * (name not in train)) for name in test]
    found = [(role, name, [part for s in splits if (part := f"{name}/{s}") in parts]) for role, name, splits in wanted]
    raise_invalid(
        [
            f"the source has no {role} split of {name}; add this split or remove the set from --{role}-sets"
            for role, name, there in found
            if not there
        ]
    )
    return [(role, there[0]) for role, _, there in found]


def read_questions(
    options: SearchQaOptions, selection: Selection, parts: _Parts, progress: Progress = no_progress
) -> tuple[dict[str, list[Question]], dict[str, dict[str, Any]]]:
    """Return the questions of train, test and val, and the counts of their sources."""
    read: dict[str, dict[str, Any]] = {}
    questions: dict[str, list[Question]] = {role: [] for role, _ in selection}
    if options.val_per_set and options.test_sets:
        questions["val"] = []
    for role, part in progress(selection, len(selection), "splits read"):
        name, _, _ = part.partition("/")
        found = _read_part(part, parts[part])
        kept = _merge_repeated(found.items) if role == "train" else found.items
        drawn = draw(kept, options.limit, f"limit/{role}/{name}/{options.seed}")
        questions[role] += drawn
        if role == "test" and options.val_per_set:
            questions["val"] += draw(drawn, options.val_per_set, f"val/{name}/{options.seed}")
        dropped = {_REPEATED: len(found.items) - len(kept), NOT_DRAWN: len(kept) - len(drawn)}
        read[f"{part} for {role}"] = found.counts(len(drawn), dropped)
    return questions, read


def _merge_repeated(questions: Sequence[Question]) -> list[Question]:
    """Return one question for each text, in order, with the answers of all its rows."""
    merged: dict[str, Question] = {}
    for question in questions:
        first = merged.setdefault(key := " ".join(question.text.casefold().split()), question)
        merged[key] = replace(first, answers=tuple(dict.fromkeys(first.answers + question.answers)))
    return list(merged.values())


def _row(question: Question) -> dict[str, Any]:
    return build_row(
        data_source=f"searchR1_{question.set_name}",
        prompt=search_prompt(question.text),
        ability="fact-reasoning",
        ground_truth={"target": list(question.answers)},
        extra_info={"question": question.text, "origin": question.origin},
        columns={"agent_name": SEARCH_AGENT},
    )


def search_prompt(question: str) -> list[dict[str, str]]:
    """Return the chat message ``{"role": ..., "content": ...}`` that asks `question`."""
    return [{"role": "user", "content": f"{_INSTRUCTION}\n\nQuestion: {question}"}]


def search_schema() -> "pa.Schema":
    """Return the Arrow schema of all files."""
    import pyarrow as pa

    return arrow_schema(
        [pa.field("question", pa.string()), pa.field("origin", pa.string())],
        pa.struct([("target", pa.list_(pa.string()))]),
        [pa.field("agent_name", pa.string())],
    )


def find_question_files(source: Path, out: Path) -> SourceFiles:
    """Return the files of a directory by set and split (``nq/train``), such as ``hotpotqa/hotpot_dev_fullwiki_v1.json``.

    A set is known by the name of the directory, or of a file that is in none; a split by a word in the name of the file, which a
    set with one split does not need. `out` is the directory to build.

    Raises:
        ValueError: there are none.
    """

    def part_of(shown: Path) -> str:
        name = _set_named(shown.parent.name) if len(shown.parts) == 2 else ""
        if len(shown.parts) == 1:
            begin = (word for word in (*QUESTION_SETS, *_ALIASES) if plain_name(shown.name).startswith(word))
            name = _set_named(next(begin, ""))
        splits = {_SPLITS[word] for word in re.findall("[a-z]+", stem_of(shown).lower()) if word in _SPLITS}
        if not splits and _set_named(stem_of(shown)) == name:
            splits = {*HUB_SPLITS.get(name, ())}
        return f"{name}/{splits.pop()}" if name and len(splits) == 1 else ""

    return find_source_files(
        source, out, part_of, "files such as nq/train.jsonl or nq_train.jsonl, for nq, triviaqa and so on"
    )


def _set_named(word: str) -> str:
    """Return the set with a name, in any spelling; "" for none."""
    word = _ALIASES.get(plain_name(word), plain_name(word))
    return word if word in QUESTION_SETS else ""


def _read_part(part: str, path: Path | None) -> Parsed[Question]:
    """Return the questions of one split of a set, ``nq/train``, from its file, or from the hub if `path` is None.

    Raises:
        ValueError: no row can be used, or the part cannot be read.
    """
    if path is None:
        name, _, split = part.partition("/")
        # Without the file's name the library would fetch all splits of the set.
        records = load_hub(_HUB_DATASET, _HUB_REVISION, split, name, {split: f"{part}.jsonl"})
    else:
        records = read_records(path, part)
    return parse_records(records, lambda record: _read_question(record, part), _UNNEEDED)


def _read_question(record: Record, part: str) -> Question:
    """Return the question of one row, of the collection or as NQ-open, HotpotQA, 2WikiMultihopQA and MuSiQue have it.

    Raises:
        LeftOutRowError: the question has no answer on purpose.
        ValueError: the row is malformed.
    """
    row = record.row
    if not row.get("answerable", True):  # of MuSiQue-Full
        raise LeftOutRowError(UNANSWERABLE)
    key = next((name for name in ("golden_answers", "answer") if not is_empty(row.get(name))), "golden_answers")
    text, answers, found = row.get("question"), row.get(key), f"found {', '.join(row) or 'nothing'}"
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"question={shorten(text)}: expected a string ({found})")
    if tags := chat_tags(text):
        raise ValueError(f"the question contains {', '.join(tags)}; the chat template adds its own tags")
    answers = [answers] if isinstance(answers, str) else answers
    if isinstance(answers, list):
        answers = [*answers, *(row.get("answer_aliases") or ())]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"{key}={shorten(answers)}: expected a list of strings ({found})")
    answers = tuple(dict.fromkeys(answer for answer in answers if answer.strip()))
    if not answers:
        raise ValueError(f"{key} holds blank strings only")
    identity = row.get("id", row.get("_id"))
    origin = f"{part}#{record.number if identity in (None, '') else identity}"
    return Question(part.partition("/")[0], text.strip().removesuffix("?") + "?", answers, origin)
