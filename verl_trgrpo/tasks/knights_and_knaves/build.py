"""Build a Knights-and-Knaves data set for veRL: ``train.parquet`` and ``test.parquet``, with puzzles of all sizes in random
order, and ``manifest.json``."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, BuildResult, Counts, DataFile, DataSet
from verl_trgrpo.data.sources import MALFORMED, RowErrors, load_hub, read_records
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution, puzzle_prompt
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.sources import Selection, Size, from_generator, from_records, source_files

# The merge that the TR-GRPO paper trains on: arXiv 2511.00066.
PAPER_SIZES = tuple(Size(n_people, train=900, test=100) for n_people in (3, 4, 5, 6, 7))

HUB_DATASET = "K-and-K/knights-and-knaves"
# The latest commit known when this was written. The data set's licence is CC BY-NC-SA 4.0.
HUB_REVISION = "2f68547989981b1af37cb3dde5fdefa847aa8619"

EXTRA_INFO = [
    pa.field("n_people", pa.int64()),
    pa.field("names", pa.list_(pa.string())),
    pa.field("statements", pa.string()),
    pa.field("origin", pa.string()),
]


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
            of 3 to 7 people; from files or the hub fewer, where repeated puzzles leave fewer.
        source: generate (needs no network), hf (the public data set on the Hugging Face hub, licence CC BY-NC-SA 4.0), or
            a .jsonl, .jsonl.gz, .json or .parquet file in its format; a directory stands for its files, and where it has
            directories train and test for both.
        revision: with hf, commit, branch or tag.
        on_error: a malformed row stops the build (raise), or is skipped and counted (skip).
        system: put the instructions into a system message.
    """

    people: tuple[int, ...] = ()
    train: int | None = None
    test: int | None = None
    mix: tuple[str, ...] = ()
    paper: bool = False
    source: str = "generate"
    revision: str = HUB_REVISION
    on_error: Literal["raise", "skip"] = "raise"
    system: bool = False

    @property
    def sizes(self) -> Sequence[Size]:
        """Return what is asked for of each number of people; ValueError where `mix` is malformed."""
        if self.paper:
            return PAPER_SIZES
        if self.mix:
            pairs = [part.split("=") for part in self.mix]
            return [Size(int(n_people), int(train), self.test) for n_people, train in pairs]
        return [Size(n_people, self.train, self.test) for n_people in self.people]

    def problems(self) -> list[str]:
        """Return what is wrong, each with value, reason and remedy."""
        try:
            sizes = self.sizes
        except ValueError:
            return [f"mix is {list(self.mix)}; give PEOPLE=COUNT, such as 3=1000"]
        problems = []
        given = [name for name in ("people", "train", "test", "mix") if getattr(self, name) not in ((), None)]
        if self.paper and given:
            problems.append(f"paper chooses sizes and counts; leave out {', '.join(given)}")
        elif self.mix and {"people", "train"} & {*given}:
            problems.append("mix takes the place of people and train; leave these out")
        people = [size.n_people for size in sizes]
        if not people or not {*people} <= {*range(2, MAX_PEOPLE + 1)} or len({*people}) < len(people):
            problems.append(f"people is {people}; give one or more numbers from 2 to {MAX_PEOPLE}, each once")
        for split in ("train", "test"):
            counts = {getattr(size, split) for size in sizes}
            if None in counts and self.source == "generate":
                problems.append(f"{split} is missing; say how many puzzles per number of people to generate")
            elif any(count < 1 for count in counts - {None}):
                problems.append(f"{split} is {min(counts)}; ask for at least 1 puzzle per number of people")
        return problems


def build(options: KkOptions, progress: Progress = no_progress) -> BuildResult:
    """Build the data set, or find it already built with the same arguments.

    The files appear together or the old ones stay. Raises ValueError for a source that cannot give what is asked for,
    an output directory that cannot be written, or one with data files that have no manifest from here.
    """
    files = {} if options.source in ("generate", "hf") else source_files(Path(options.source))
    return options.build(
        "kk",
        lambda: _make(options, files, progress),
        inputs={f"{split}/{path.name}": path for split, paths in files.items() for path in paths},
        libraries={"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"]}.get(options.source, []),
    )


def _make(options: KkOptions, files: Mapping[str, Sequence[Path]], progress: Progress) -> DataSet:
    errors = RowErrors(skip=options.on_error == "skip")
    selection = _select(options, files, errors, progress)
    data_files = []
    for split, puzzles in (("train", selection.train), ("test", selection.test)):
        random.Random(f"order/{split}/{options.seed}").shuffle(puzzles)
        rows = [_row(options, split, index, puzzle) for index, puzzle in enumerate(puzzles)]
        data_files.append(DataFile(f"{split}.parquet", rows, schema.arrow_schema(EXTRA_INFO)))
    counts = dict(selection.counts)
    if errors.problems:
        counts["malformed rows"] = Counts(len(errors.problems), 0, {MALFORMED: len(errors.problems)})
    return DataSet(data_files, counts, errors.problems)


def _select(
    options: KkOptions, files: Mapping[str, Sequence[Path]], errors: RowErrors, progress: Progress
) -> Selection:
    if options.source == "generate":
        return from_generator(options.sizes, options.seed, progress)
    # All of the hub's is loaded before a progress bar is drawn: an error would be written into its line.
    parts: dict[str, list[Any]] = {
        split: [load_hub(HUB_DATASET, options.revision, f"{size.n_people}ppl", split) for size in options.sizes]
        if options.source == "hf"
        else [read_records(file, errors) for file in files[split]]
        for split in ("train", "test")
    }
    train, test = (chain.from_iterable(progress(part, len(part), f"{split} sources")) for split, part in parts.items())
    return from_records(
        options.sizes, train, test if parts["test"] else None, errors, seed=options.seed, at_most=options.paper
    )


def _row(options: KkOptions, split: str, index: int, puzzle: Puzzle) -> dict[str, Any]:
    n_people = len(puzzle.names)
    return schema.build_row(
        data_source=f"kk_{n_people}ppl",
        prompt=puzzle_prompt(puzzle, options.system),
        ability="logic",
        ground_truth=format_solution(puzzle.names, puzzle.solution),
        index=index,
        split=split,
        extra_info={
            "n_people": n_people,
            "names": list(puzzle.names),
            "statements": repr(puzzle.statements),
            "origin": puzzle.origin,
        },
    )
