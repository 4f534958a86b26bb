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
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from verl_trgrpo.common.options import command_line
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import parquet, schema
from verl_trgrpo.data.build import BuilderOptions, BuildPlan, BuildResult, Counts, DataFile, DataSet, build_data_set
from verl_trgrpo.data.sources import (
    MALFORMED,
    NOT_DRAWN,
    RowErrors,
    directory_sha256,
    draw,
    hub_copy,
    hub_name,
    load_hub,
    read_records,
    visible_files,
)
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_response, format_solution, puzzle_prompt, search_text
from verl_trgrpo.tasks.knights_and_knaves.puzzles import MAX_PEOPLE, MIN_PEOPLE
from verl_trgrpo.tasks.knights_and_knaves.sources import (
    Selection,
    Size,
    SourcedPuzzle,
    from_generator,
    from_records,
    source_files,
)

# The merge that the TR-GRPO paper trains on: arXiv 2511.00066.
PAPER_PEOPLE = (3, 4, 5, 6, 7)
PAPER_TRAIN = 900
PAPER_TEST = 100

HUB_DATASET = "K-and-K/knights-and-knaves"
# The latest commit known when this was written. The data set's licence is CC BY-NC-SA 4.0.
HUB_REVISION = "2f68547989981b1af37cb3dde5fdefa847aa8619"

EXTRA_INFO = [
    pa.field("n_people", pa.int64()),
    pa.field("names", pa.list_(pa.string())),
    pa.field("statements", pa.string()),
    pa.field("origin", pa.string()),
]

MESSAGES = pa.field("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])))


@dataclass(frozen=True, kw_only=True)
class KkOptions(BuilderOptions):
    """What a Knights-and-Knaves data set is to contain.

    Args:
        people: numbers of people, each from 2 to 8.
        train: train puzzles PER number of people (so 3 sizes give 3 times as many); left out: all that files or the hub
            have.
        test: test puzzles PER number of people; left out: all that the test files or the hub have.
        mix: PEOPLE=COUNT, such as 3=1000: that many train puzzles of this size, in place of `people` and `train`.
        paper: the paper's merge in place of `people`, `train`, `test` and `mix`: 900 train and 100 test puzzles with each
            of 3 to 7 people; from files or the hub with `at_most`.
        at_most: with files or the hub: where repeated puzzles leave fewer than asked for, take these.
        source: generate (needs no network), hf (the public data set on the Hugging Face hub), or .jsonl, .jsonl.gz, .json
            or .parquet files in its format; a directory stands for its files, and where it has train and test for both.
        test_source: with files, further paths to take the test puzzles from (otherwise the source is split).
        hf_dataset: with hf, the data set's name, or a directory with a copy of its repository. Its licence is CC BY-NC-SA
            4.0.
        revision: with hf, commit, branch or tag.
        prompt: paper (instructions and the quiz in English) or short (only the statements, for tiny models).
        system: put the instructions into a system message.
        test_per_size: write the test puzzles of each size as test_3ppl.parquet and so on, too. Not needed for accuracy
            per size in training: veRL groups the validation of test.parquet by its column data_source.
        with_reasoning: write sft_train.parquet and sft_test.parquet, too: the same rows with a column messages, whose last
            message reasons and answers. The reasoning is the source's (columns cot_head, cot_repeat_steps, cot_foot) or,
            for generated puzzles, a search with backtracking in words.
    """

    people: tuple[int, ...] = ()
    train: int | None = None
    test: int | None = None
    mix: tuple[str, ...] = ()
    paper: bool = False
    at_most: bool = False
    source: tuple[str, ...] = ("generate",)
    test_source: tuple[str, ...] = ()
    hf_dataset: str = HUB_DATASET
    revision: str = HUB_REVISION
    prompt: Literal["paper", "short"] = "paper"
    system: bool = False
    test_per_size: bool = False
    with_reasoning: bool = False

    @property
    def kind(self) -> str:
        """Return "generate", "hf" or "files"."""
        return self.source[0] if self.source in (("generate",), ("hf",)) else "files"

    @property
    def sizes(self) -> list[Size]:
        """Return what is asked for of each number of people."""
        if self.paper:
            return [Size(n_people, PAPER_TRAIN, PAPER_TEST) for n_people in PAPER_PEOPLE]
        if self.mix:
            pairs = [part.split("=") for part in self.mix]
            return [Size(int(n_people), int(train), self.test) for n_people, train in pairs]
        return [Size(n_people, self.train, self.test) for n_people in self.people]

    @property
    def fewer_allowed(self) -> bool:
        """Return whether the counts are upper bounds."""
        return self.at_most or (self.paper and self.kind != "generate")

    @property
    def files(self) -> tuple[list[Path], list[Path]]:
        """Return the files to read and those to read the test puzzles from; both empty unless `kind` is "files"."""
        return source_files(self.source, self.test_source) if self.kind == "files" else ([], [])

    def problems(self) -> list[str]:
        """Return what is wrong, each with value, reason and remedy."""
        try:
            problems = self._size_problems(self.sizes)
        except ValueError:
            problems = [f"mix is {list(self.mix)}; give PEOPLE=COUNT, such as 3=1000"]
        return [*problems, *self._source_problems(), *self._prompt_problems()]

    def _size_problems(self, sizes: Sequence[Size]) -> list[str]:
        problems = []
        people = [size.n_people for size in sizes]
        given = [name for name in ("people", "train", "test", "mix") if getattr(self, name) not in ((), None)]
        if self.paper and given:
            problems.append(f"paper chooses sizes and counts; leave out {', '.join(given)}")
        elif self.mix and (self.people or self.train is not None):
            problems.append("mix takes the place of people and train; leave these out")
        if not people or not all(MIN_PEOPLE <= n_people <= MAX_PEOPLE for n_people in people):
            problems.append(f"people is {people}; give one or more numbers from {MIN_PEOPLE} to {MAX_PEOPLE}")
        if len(set(people)) < len(people):
            problems.append(f"people is {people}; give each number once")
        for split in ("train", "test"):
            counts = {getattr(size, split) for size in sizes}
            wrong = sorted(count for count in counts - {None} if count < 1)
            problems += [f"{split} is {count}; ask for at least 1 puzzle per number of people" for count in wrong]
            if None in counts and self.kind == "generate":
                problems.append(f"{split} is missing; say how many puzzles per number of people to generate")
        return problems

    def _source_problems(self) -> list[str]:
        if not self.source or (len(self.source) > 1 and {"generate", "hf"} & set(self.source)):
            return [f"source is {list(self.source)}; give 'generate', 'hf' or one or more files"]
        problems = []
        try:
            if self.kind == "files" and not self.files[1] and not self.paper and self.test is None:
                problems.append(
                    "test is missing; say how many puzzles of the source are for testing, or give a test_source"
                )
        except ValueError as error:
            problems.append(f"source {error}")
        misplaced = {
            "test_source": bool(self.test_source) and self.kind != "files",
            "at_most": self.at_most and self.kind == "generate",
            "hf_dataset": self.hf_dataset != HUB_DATASET and self.kind != "hf",
            "revision": self.revision != HUB_REVISION and self.kind != "hf",
        }
        return problems + [
            f"{name} has no meaning with source {self.kind!r}; leave it out"
            for name, is_misplaced in misplaced.items()
            if is_misplaced
        ]

    def _prompt_problems(self) -> list[str]:
        if self.prompt not in ("paper", "short"):
            return [f"prompt is {self.prompt!r}; choose paper or short"]
        if self.prompt == "short" and self.system:
            return ["prompt 'short' has no instructions for a system message; leave system out"]
        return []


def build(options: KkOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    The files appear together or the old ones stay. Raises ValueError for a source that cannot give what is asked for,
    an output directory that cannot be written, or one with data files that have no manifest from here.
    """
    copy = hub_copy(options.hf_dataset) if options.kind == "hf" else None
    plan = BuildPlan(
        builder="kk",
        out=options.out,
        arguments=_arguments(options),
        command=command_line("python data_prep/kk.py", options),
        libraries={"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"], "files": []}[options.kind],
        inputs=visible_files(copy) if copy else [*chain(*options.files)],
        force=options.force,
    )
    return build_data_set(plan, lambda: _make(options, progress))


def _arguments(options: KkOptions) -> dict[str, Any]:
    """Return what determines the data, in a form that does not depend on where the files are."""
    same = (
        "seed",
        "limit",
        "prompt",
        "system",
        "test_per_size",
        "with_reasoning",
        "fewer_allowed",
        "on_error",
        "revision",
    )
    arguments: dict[str, Any] = {
        "source": options.kind,
        "sizes": [asdict(size) for size in options.sizes],
        **{name: getattr(options, name) for name in same},
        "hf_dataset": hub_name(options.hf_dataset),
    }
    if options.kind == "hf" and (copy := hub_copy(options.hf_dataset)):
        arguments["copy_sha256"] = directory_sha256(copy)
    for name, files in zip(("files", "test_files"), options.files, strict=True):
        arguments[name] = [{"name": file.name, "sha256": parquet.file_sha256(file)} for file in files]
    return arguments


def _make(options: KkOptions, progress: Progress) -> DataSet:
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


def _select(options: KkOptions, errors: RowErrors, progress: Progress) -> Iterable[Selection]:
    if options.kind == "generate":
        return from_generator(options.sizes, options.seed, options.num_proc, progress)
    if options.kind == "hf":
        # All of it is loaded before a progress bar is drawn: an error would be written into its line.
        parts: list[Any] = [
            [load_hub(options.hf_dataset, options.revision, f"{size.n_people}ppl", part) for size in options.sizes]
            for part in ("train", "test")
        ]
    else:
        parts = [[read_records(file, errors) for file in files] for files in options.files]
    train, test = (
        chain.from_iterable(progress(part, len(part), name))
        for part, name in zip(parts, ("train sources", "test sources"), strict=True)
    )
    return from_records(
        options.sizes,
        train,
        test if parts[1] else None,
        errors,
        seed=options.seed,
        at_most=options.fewer_allowed,
        with_reasoning=options.with_reasoning,
    )


def _puzzles(options: KkOptions, split: str, selections: Sequence[Selection]) -> list[SourcedPuzzle]:
    """Return the puzzles of one split, all sizes mixed in an order that depends on the seed."""
    puzzles: list[SourcedPuzzle] = [sourced for selection in selections for sourced in getattr(selection, split)]
    random.Random(f"order/{split}/{options.seed}").shuffle(puzzles)
    return draw(puzzles, options.limit, f"limit/{split}/{options.seed}")


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


def _file(options: KkOptions, split: str, puzzles: Sequence[SourcedPuzzle], name: str | None = None) -> DataFile:
    """Return one file, by default named after its split; in files named ``sft_...`` rows have messages."""
    name = name or split
    rows = [_row(options, split, index, sourced) for index, sourced in enumerate(puzzles)]
    if not name.startswith("sft_"):
        return DataFile(f"{name}.parquet", rows, schema.arrow_schema(EXTRA_INFO))
    for row, sourced in zip(rows, puzzles, strict=True):
        puzzle = sourced.puzzle
        reasoning = search_text(puzzle) if sourced.reasoning is None else sourced.reasoning
        response = format_response(reasoning, puzzle.names, puzzle.solution)
        row["messages"] = [*row["prompt"], {"role": "assistant", "content": response}]
    return DataFile(f"{name}.parquet", rows, schema.arrow_schema(EXTRA_INFO, columns=[MESSAGES]))


def _row(options: KkOptions, split: str, index: int, sourced: SourcedPuzzle) -> dict[str, Any]:
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
