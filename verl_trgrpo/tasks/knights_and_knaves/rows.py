"""Build Knights-and-Knaves data for veRL: ``train.parquet`` and ``test.parquet``, with puzzles of all sizes in random order.

The puzzles are generated, or come from rows of files and of the Hugging Face hub in the format of
`K-and-K/knights-and-knaves`, of which these columns are needed: quiz, names, solution (a list of booleans, True for a
knight) and statements (a Python literal as a string). solution_text_format is checked if present.

No puzzle occurs twice in a data set, not even with other names or its people in another order.
"""

import random
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.sources import (
    NOT_ASKED_FOR,
    Parsed,
    Record,
    SourceFiles,
    counts,
    find_source_files,
    load_hub,
    parse_records,
    plain_name,
    read_records,
    warn_of_test_files,
)
from verl_trgrpo.tasks.data_set import BuilderOptions
from verl_trgrpo.tasks.knights_and_knaves import HUB_DATASET
from verl_trgrpo.tasks.knights_and_knaves.logic import MAX_PEOPLE, canonical_key, parse_statements, unique_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    Puzzle,
    capacity_errors,
    format_response,
    format_solution,
    generate_puzzles,
    kk_schema,
    puzzle_row,
)
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

# The merge that the TR-GRPO paper trains on: arXiv 2511.00066.
PAPER_PEOPLE, PAPER_TRAIN, PAPER_TEST = (3, 4, 5, 6, 7), 900, 100

# The latest commit known when this was written. The data set's licence is CC BY-NC-SA 4.0.
HUB_REVISION = "2f68547989981b1af37cb3dde5fdefa847aa8619"

PUZZLE_COLUMNS = ("quiz", "names", "solution", "statements")

# Other columns of the public data: the solution in other words, and a prompt of its own in files for veRL.
_UNNEEDED = (
    "knight_knave", "solution_text", "cot_head", "cot_repeat_steps", "cot_foot", "prompt", "ability", "reward_model",
)  # fmt: skip

# Reasons for dropping rows, in the manifest.
REPEATS = "repeats a puzzle up to names and order"
LEAKS = "equals a test puzzle up to names and order"

Splits = dict[str, list[Puzzle]]


@dataclass(frozen=True, kw_only=True)
class KkOptions(BuilderOptions):
    """Contents of a Knights-and-Knaves data set.

    Args:
        people: numbers of people, each from 2 to 8.
        train: train puzzles PER number of people (so 3 sizes give 3 times as many); left out: all of the files or the hub.
        test: test puzzles PER number of people; left out: all of the test files or the hub.
        paper: the paper's merge in place of `people`, `train` and `test`: 900 train and 100 test puzzles with each of 3 to
            7 people; from files or the hub fewer, if repeated puzzles leave fewer.
        source: generate (needs no network), hf (the public data set on the Hugging Face hub, licence CC BY-NC-SA 4.0), or
            a .jsonl, .jsonl.gz, .json, .parquet or .arrow file in its format, or a directory with such files, or with
            directories train and test of such files. Other files are a warning.
    """

    people: tuple[int, ...] = ()
    train: Annotated[int | None, "[1, inf)"] = None
    test: Annotated[int | None, "[1, inf)"] = None
    paper: bool = False
    source: str = "generate"

    @property
    def sizes(self) -> tuple[tuple[int, ...], int | None, int | None]:
        """Return the numbers of people, and the train and test puzzles of each."""
        return (PAPER_PEOPLE, PAPER_TRAIN, PAPER_TEST) if self.paper else (self.people, self.train, self.test)

    def problems(self) -> list[str]:
        """Return a message for each problem of people, counts and source together."""
        messages = []
        given = [name for name in ("people", "train", "test") if getattr(self, name) not in ((), None)]
        if self.paper and given:
            messages.append(f"paper chooses sizes and counts; omit {', '.join(given)}")
        people, train, test = self.sizes
        if not people:
            messages.append("people is missing; give the numbers of people, such as --people 3 4, or --paper")
        elif not {*people} <= {*range(2, MAX_PEOPLE + 1)} or len({*people}) < len(people):
            messages.append(f"people={list(people)}: give one or more numbers from 2 to {MAX_PEOPLE}, each once")
        if self.source == "generate":
            messages += [
                f"{split} is missing; give the number of puzzles to generate per number of people"
                for split, count in (("train", train), ("test", test))
                if count is None
            ]
        if self.source == "generate" and train and test:
            messages += chain.from_iterable(capacity_errors(n_people, train + test) for n_people in people)
        return messages


def build_kk(options: KkOptions, progress: Progress = no_progress) -> dict[str, Any] | None:
    """Write Knights-and-Knaves puzzles as train.parquet and test.parquet for veRL, with manifest.json.

    examples:
      verl-trgrpo data build kk --out data/kk --people 3 4 5 --train 900 --test 100
      verl-trgrpo data build kk --out data/kk --paper
      verl-trgrpo data build kk --out data/kk --paper --source hf

    notes:
      Every puzzle has exactly one solution and occurs once, also up to names and order, so no test puzzle is in the
      train file in other words.

    Returns:
        the manifest, None if the data set is there already; see `DataSet`.

    Raises:
        ValueError: the source cannot give what is requested, or the directory cannot be written.
    """
    source = Path(options.source)
    found = SourceFiles(source, {}) if options.source in ("generate", "hf") else find_puzzle_files(source, options.out)
    files = found.parts
    warn_of_test_files(files.get("train", ()))
    data_set = options.data_set(
        "kk",
        "kk",
        inputs={f"{split}/{path.name}": path for split, paths in files.items() for path in paths},
        left_out=found.left_out,
        libraries={"generate": ["reasoning-gym", "numpy"], "hf": ["datasets"]}.get(options.source, []),
    )
    if data_set.is_there():
        return None
    splits, counted = make_splits(options, files, progress)
    rows = {split: [puzzle_row(puzzle) for puzzle in puzzles] for split, puzzles in splits.items()}
    return data_set.write(rows, kk_schema(), counted)


def make_splits(
    options: KkOptions, files: Mapping[str, list[Path]], progress: Progress = no_progress
) -> tuple[Splits, dict[str, dict[str, Any]]]:
    """Return the puzzles of each split in random order, and the counts of their sources; `files` as of `find_puzzle_files`."""
    people, train, test = options.sizes
    found: dict[str, dict[str, Any]] = {}
    if options.source == "generate":
        sizes = {split: dict.fromkeys(people, count or 0) for split, count in (("train", train), ("test", test))}
        splits = generate_splits(sizes["train"], sizes["test"], options.seed, progress=progress)
    else:
        has_test = options.source == "hf" or "test" in files
        splits, found = choose_puzzles(
            people,
            _records(options, files, "train"),
            _records(options, files, "test") if has_test else None,
            train=train,
            test=test,
            seed=options.seed,
            at_most=options.paper,
        )
    for split, puzzles in splits.items():
        random.Random(f"order/{split}/{options.seed}").shuffle(puzzles)
    return splits, found


def _records(options: KkOptions, files: Mapping[str, list[Path]], split: str) -> Iterator[Record]:
    if options.source == "hf":
        for n_people in options.sizes[0]:
            yield from load_hub(HUB_DATASET, HUB_REVISION, f"{n_people}ppl", split)
    else:
        yield from chain.from_iterable(map(read_records, files[split]))


def generate_splits(
    train: Mapping[int, int],
    test: Mapping[int, int],
    seed: int,
    exclude: Container[str] = (),
    progress: Progress = no_progress,
) -> Splits:
    """Generate train and test puzzles.

    The test puzzles come first in the stream of a size, so that they stay the same if only `train` changes. For two
    people, with few different puzzles, this makes common puzzles a little more frequent in the test set.

    Args:
        train: numbers of train puzzles by number of people.
        test: numbers of test puzzles by number of people.
        seed: see `generate_puzzles`.
        exclude: see `generate_puzzles`.
        progress: shows the work.

    Raises:
        ValueError: there are not that many different puzzles.
    """
    splits: Splits = {"train": [], "test": []}
    for n_people in {**train, **test}:
        tests = test.get(n_people, 0)
        count = tests + train.get(n_people, 0)
        puzzles = [*progress(generate_puzzles(n_people, count, seed, exclude), count, f"{n_people} people")]
        splits["test"] += puzzles[:tests]
        splits["train"] += puzzles[tests:]
    return splits


def choose_puzzles(
    people: Iterable[int],
    records: Iterable[Record],
    test_records: Iterable[Record] | None,
    *,
    train: int | None,
    test: int | None,
    seed: int = 0,
    at_most: bool = False,
) -> tuple[Splits, dict[str, dict[str, Any]]]:
    """Choose puzzles from rows in the public format; return them, and the counts of each number of people (``3ppl``).

    Args:
        people: numbers of people; rows with another number are left out.
        records: without `test_records`, both splits are drawn from them, the test puzzles first.
        test_records: rows for the test puzzles; a train puzzle that equals any puzzle in them is dropped, because the
            public split leaks.
        train: train puzzles of each number of people; None for all.
        test: test puzzles likewise.
        seed: the order from which puzzles are taken depends on it and on the rows only.
        at_most: there may be fewer puzzles than requested, but some for train and test each.

    Raises:
        ValueError: a file without a row that can be used, or fewer puzzles than requested.
    """
    if test_records is None and test is None:
        raise ValueError("test is missing; give the number of test puzzles per number of people")
    read_rows = {"train rows": _parse(records), "test rows": _parse(test_records or ())}
    pool, test_pool = (_by_size(parsed.items) for parsed in read_rows.values())
    splits: Splits = {"train": [], "test": []}
    # Rows and columns that are left out before a size is known, and other sizes.
    found = {name: more for name, parsed in read_rows.items() if (more := parsed.counts(0, {})) != counts(0, {})}
    for n_people in sorted({*pool, *test_pool} - {*people}):
        found[f"{n_people}ppl"] = counts(0, {NOT_ASKED_FOR: len(pool[n_people]) + len(test_pool[n_people])})
    for n_people in people:
        read = len(pool[n_people]) + len(test_pool[n_people])
        distinct, distinct_test = _distinct(pool[n_people]), _distinct(test_pool[n_people])
        clean = {key: puzzle for key, puzzle in distinct.items() if key not in distinct_test}
        trains, tests = _shuffled(clean.values(), seed), _shuffled(distinct_test.values(), seed)
        if test_records is None:
            trains, tests = trains[test:], trains
        trains, tests = trains[:train], tests[:test]
        for split, puzzles, asked in (("train", trains, train), ("test", tests, test)):
            if not puzzles or (asked is not None and len(puzzles) < asked and not at_most):
                raise ValueError(
                    f"{n_people} people: {read} rows give only {len(puzzles)} {split} puzzles that differ in more than "
                    f"names and order, not {asked or 'any'}; request fewer, or give more rows"
                )
            splits[split] += puzzles
        kept = len(trains) + len(tests)
        dropped = {REPEATS: read - len(distinct) - len(distinct_test), LEAKS: len(distinct) - len(clean)}
        found[f"{n_people}ppl"] = counts(kept, {**dropped, NOT_ASKED_FOR: read - kept - sum(dropped.values())})
    return splits, found


def find_puzzle_files(source: Path, out: Path) -> SourceFiles:
    """Return the files with puzzles, as the part train, and those with test puzzles (none: the former are split).

    Puzzles of a directory are in its files and in those of its directories ``train`` and ``test``, as on the hub; `out` is the
    directory to build.

    Raises:
        ValueError: there are no such files.
    """

    def part_of(shown: Path) -> str:
        directory = plain_name(str(shown.parent))
        return {"": "train"}.get(directory, directory if directory in ("train", "test") else "")

    expected = "puzzles in files of the directory itself, or of its directories train and test"
    found = find_source_files(source, out, part_of, expected)
    if "train" not in found.parts:
        raise ValueError(f"{source} has test puzzles only; expected {expected}")
    return found


def puzzle_from_row(row: Mapping[str, Any], origin: str = "") -> Puzzle:
    """Return the puzzle of one row of the public format.

    Raises:
        ValueError: columns are missing, the statements do not parse or do not have exactly one solution, the stated
            solution is another one, a name is not in the quiz, or the answer with these names would not get full marks.
    """
    missing = [name for name in PUZZLE_COLUMNS if row.get(name) is None]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}; found {', '.join(map(str, row)) or 'nothing'}")
    quiz, names, statements = row["quiz"], row["names"], parse_statements(row["statements"])
    solution = unique_solution(statements)
    if solution is None or row["solution"] != list(solution):
        found = "not exactly one" if solution is None else list(solution)
        raise ValueError(f"solution={row['solution']!r}, but the statements have {found}")
    if not isinstance(names, list) or len(names) != len(statements) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"names={names!r}: expected a list of {len(statements)} strings, one for each statement")
    if not isinstance(quiz, str) or not all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", quiz) for name in names):
        raise ValueError(f"quiz={shorten(quiz)}: expected a string that mentions {', '.join(names)}")
    truth = format_solution(names, solution)
    if (row.get("solution_text_format") or truth) != truth:
        raise ValueError(f"solution_text_format={row['solution_text_format']!r}, but the solution reads {truth!r}")
    if score_knights_and_knaves(format_response("", names, solution), truth).acc < 1:
        raise ValueError(f"names={names!r}: an answer with these cannot get full marks; give other names")
    return Puzzle(quiz, tuple(names), statements, solution, origin)


def _parse(records: Iterable[Record]) -> Parsed[Puzzle]:
    return parse_records(records, lambda record: puzzle_from_row(record.row, record.origin), _UNNEEDED)


def _by_size(puzzles: Iterable[Puzzle]) -> defaultdict[int, list[Puzzle]]:
    by_size: defaultdict[int, list[Puzzle]] = defaultdict(list)
    for puzzle in puzzles:
        by_size[len(puzzle.names)].append(puzzle)
    return by_size


def _distinct(puzzles: Iterable[Puzzle]) -> dict[str, Puzzle]:
    """Return the first puzzle of each canonical key, in order."""
    distinct: dict[str, Puzzle] = {}
    for puzzle in puzzles:
        distinct.setdefault(canonical_key(puzzle.statements), puzzle)
    return distinct


def _shuffled(puzzles: Iterable[Puzzle], seed: int) -> list[Puzzle]:
    shuffled = list(puzzles)
    random.Random(f"choice/{seed}").shuffle(shuffled)
    return shuffled
