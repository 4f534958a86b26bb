"""Build a Knights-and-Knaves data set for veRL: ``train.parquet`` and ``test.parquet``, with puzzles of all sizes in random
order, and ``manifest.json``."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data import schema
from verl_trgrpo.data.build import BuilderOptions, DataSet
from verl_trgrpo.data.sources import load_hub, read_records, warn_of_test_files
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution, puzzle_prompt
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.sources import Puzzles, from_generator, from_records, source_files

# The merge that the TR-GRPO paper trains on: arXiv 2511.00066.
PAPER_PEOPLE, PAPER_TRAIN, PAPER_TEST = (3, 4, 5, 6, 7), 900, 100

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
        paper: the paper's merge in place of `people`, `train` and `test`: 900 train and 100 test puzzles with each of 3 to
            7 people; from files or the hub fewer, where repeated puzzles leave fewer.
        source: generate (needs no network), hf (the public data set on the Hugging Face hub, licence CC BY-NC-SA 4.0), or
            a .jsonl, .jsonl.gz, .json or .parquet file in its format; a directory stands for its files, and where it has
            directories train and test for both.
    """

    people: tuple[int, ...] = ()
    train: int | None = None
    test: int | None = None
    paper: bool = False
    source: str = "generate"

    @property
    def sizes(self) -> tuple[tuple[int, ...], int | None, int | None]:
        """Return the numbers of people, and the train and test puzzles of each."""
        return (PAPER_PEOPLE, PAPER_TRAIN, PAPER_TEST) if self.paper else (self.people, self.train, self.test)

    def problems(self) -> list[str]:
        """Return what is wrong, each with value, reason and remedy."""
        problems = []
        given = [name for name in ("people", "train", "test") if getattr(self, name) not in ((), None)]
        if self.paper and given:
            problems.append(f"paper chooses sizes and counts; leave out {', '.join(given)}")
        people, train, test = self.sizes
        if not people:
            problems.append(
                "people is not given; say how many people puzzles have, such as --people 3 4, or take --paper"
            )
        elif not {*people} <= {*range(2, MAX_PEOPLE + 1)} or len({*people}) < len(people):
            problems.append(f"people is {list(people)}; give one or more numbers from 2 to {MAX_PEOPLE}, each once")
        for split, count in (("train", train), ("test", test)):
            if count is None and self.source == "generate":
                problems.append(f"{split} is missing; say how many puzzles per number of people to generate")
            elif count is not None and count < 1:
                problems.append(f"{split} is {count}; ask for at least 1 puzzle per number of people")
        return problems


def build(options: KkOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Build the data set, or find it already built with the same arguments.

    The files appear together or the old ones stay. Raises ValueError for a source that cannot give what is asked for,
    an output directory that cannot be written, or one with data files that have no manifest from here.
    """
    files = {} if options.source in ("generate", "hf") else source_files(Path(options.source))
    warn_of_test_files(files.get("train", ()))
    return options.build(
        "kk",
        lambda: _make(options, files, progress),
        inputs={f"{split}/{path.name}": path for split, paths in files.items() for path in paths},
        libraries={"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"]}.get(options.source, []),
    )


def _make(options: KkOptions, files: Mapping[str, Sequence[Path]], progress: Progress) -> DataSet:
    puzzles, found = _select(options, files, progress)
    rows = {}
    for split, chosen in puzzles.items():
        random.Random(f"order/{split}/{options.seed}").shuffle(chosen)
        rows[split] = [_row(puzzle) for puzzle in chosen]
    return DataSet(rows, schema.arrow_schema(EXTRA_INFO), found)


def _select(
    options: KkOptions, files: Mapping[str, Sequence[Path]], progress: Progress
) -> tuple[Puzzles, dict[str, dict[str, Any]]]:
    people, train, test = options.sizes
    if options.source == "generate":
        return from_generator(people, train or 0, test or 0, options.seed, progress), {}
    records, test_records = (
        [load_hub(HUB_DATASET, HUB_REVISION, f"{n_people}ppl", split) for n_people in people]
        if options.source == "hf"
        else [read_records(file) for file in files[split]]
        for split in ("train", "test")
    )
    return from_records(
        people,
        chain.from_iterable(records),
        chain.from_iterable(test_records) if test_records else None,
        train=train,
        test=test,
        seed=options.seed,
        at_most=options.paper,
    )


def _row(puzzle: Puzzle) -> dict[str, Any]:
    n_people = len(puzzle.names)
    return schema.build_row(
        data_source=f"kk_{n_people}ppl",
        prompt=puzzle_prompt(puzzle),
        ability="logic",
        ground_truth=format_solution(puzzle.names, puzzle.solution),
        extra_info={
            "n_people": n_people,
            "names": list(puzzle.names),
            "statements": repr(puzzle.statements),
            "origin": puzzle.origin,
        },
    )
