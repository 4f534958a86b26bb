"""Where the puzzles of a Knights-and-Knaves data set come from: a generator, or rows of files and of the Hugging Face hub.

Within a data set no puzzle occurs twice, not even with other names or its people in another order.

Rows have the format of `K-and-K/knights-and-knaves`, of which these columns are needed: quiz, names, solution (a list of
booleans, True for a knight) and statements (a Python literal as text). solution_text_format is checked where present.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_trgrpo.common.problems import shorten
from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.data.build import Counts
from verl_trgrpo.data.sources import Record, RowErrors, find_files, parse_records
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements, unique_solution
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_response, format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

REPEATS = "repeats a puzzle up to names and order"
LEAKS = "equals a test puzzle up to names and order"

COLUMNS = ("quiz", "names", "solution", "statements")


@dataclass(frozen=True)
class Size:
    """How many puzzles with `n_people` people; None stands for all that a source has."""

    n_people: int
    train: int | None
    test: int | None


@dataclass(frozen=True)
class Selection:
    """The puzzles chosen, and by number of people (``3ppl``) how many were read, kept and dropped."""

    train: list[Puzzle] = field(default_factory=list)
    test: list[Puzzle] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)


def from_generator(sizes: Iterable[Size], seed: int, progress: Progress = no_progress) -> Selection:
    """Generate the puzzles of each size.

    The test puzzles come first in the stream of a size, so that they stay the same when only `train` changes. For two
    people, where few puzzles exist, this makes common puzzles a little more frequent in the test set.
    """
    selection = Selection()
    for size in sizes:
        test, count = size.test or 0, (size.train or 0) + (size.test or 0)
        stream = generate_puzzles(size.n_people, count, seed)
        puzzles = [*progress(stream, count, f"{size.n_people} people")]
        selection.test.extend(puzzles[:test])
        selection.train.extend(puzzles[test:])
        selection.counts[f"{size.n_people}ppl"] = Counts(count, count)
    return selection


def from_records(
    sizes: Iterable[Size],
    records: Iterable[Record],
    test_records: Iterable[Record] | None,
    errors: RowErrors,
    *,
    seed: int = 0,
    at_most: bool = False,
) -> Selection:
    """Choose puzzles from rows in the public format.

    Args:
        sizes: what is asked for; rows with another number of people are left out.
        records: without `test_records`, both splits are drawn from them, the test puzzles first.
        test_records: rows for the test puzzles; a train puzzle that equals any puzzle in them is dropped, because the
            public split leaks.
        errors: gets the malformed rows.
        seed: the order from which puzzles are taken depends on it and on the rows only.
        at_most: a size may have fewer puzzles than asked for, but some for train and test each.

    Raises:
        ValueError: malformed rows unless skipped, or fewer puzzles than asked for.
    """
    pool, test_pool = _by_size(records, errors), _by_size(test_records or (), errors)
    errors.finish()
    selection = Selection()
    for size in sizes:
        n_people = size.n_people
        read = len(pool[n_people]) + len(test_pool[n_people])
        distinct, distinct_test = _distinct(pool[n_people]), _distinct(test_pool[n_people])
        clean = {key: puzzle for key, puzzle in distinct.items() if key not in distinct_test}
        train = _shuffled(clean.values(), seed)
        if test_records is None:
            if size.test is None:
                raise ValueError("test is missing; say how many puzzles per number of people are for testing")
            train, test = train[size.test :], train[: size.test]
        else:
            test = _shuffled(distinct_test.values(), seed)[: size.test]
        train = train[: size.train]
        for split, puzzles, asked in (("train", train, size.train), ("test", test, size.test)):
            if not puzzles or (asked is not None and len(puzzles) < asked and not at_most):
                raise ValueError(
                    f"{n_people} people: {read} rows give only {len(puzzles)} {split} puzzles that differ in more than "
                    f"names and order, not {asked or 'any'}; ask for fewer, or give more rows"
                )
        selection.train.extend(train)
        selection.test.extend(test)
        kept = len(train) + len(test)
        dropped = {REPEATS: read - len(distinct) - len(distinct_test), LEAKS: len(distinct) - len(clean)}
        rest = read - kept - sum(dropped.values())
        selection.counts[f"{n_people}ppl"] = Counts(read, kept, {**dropped, "not asked for": rest})
    return selection


def source_files(path: Path) -> dict[str, list[Path]]:
    """Return the files to take puzzles from, and those to take the test puzzles from (none: the former are split).

    A directory stands for its data files, or for those of its directories ``train`` and ``test``, as on the hub. Raises
    ValueError where there are no such files.
    """
    if (path / "train").is_dir() and (path / "test").is_dir():
        return {"train": find_files(path / "train"), "test": find_files(path / "test")}
    return {"train": find_files(path), "test": []}


def _by_size(records: Iterable[Record], errors: RowErrors) -> defaultdict[int, list[Puzzle]]:
    by_size: defaultdict[int, list[Puzzle]] = defaultdict(list)
    for puzzle in parse_records(records, lambda record: puzzle_from_row(record.row, record.origin), errors):
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


def puzzle_from_row(row: Mapping[str, Any], origin: str = "") -> Puzzle:
    """Return the puzzle of one row of the public format.

    Raises ValueError when columns are missing, the statements do not parse or have not exactly one solution, the stated
    solution is another one, a name is not in the quiz, or the answer with these names would not get full marks.
    """
    missing = [name for name in COLUMNS if row.get(name) is None]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}; found {', '.join(map(str, row)) or 'nothing'}")
    quiz, names, statements = row["quiz"], row["names"], parse_statements(row["statements"])
    solution = unique_solution(statements)
    if solution is None or row["solution"] != list(solution):
        found = "not exactly one" if solution is None else list(solution)
        raise ValueError(f"solution is {row['solution']!r}, but the statements have {found}")
    if not isinstance(names, list) or len(names) != len(statements) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"names are {names!r}; expected a list of {len(statements)} texts, one for each statement")
    if not isinstance(quiz, str) or not all(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", quiz) for name in names):
        raise ValueError(f"the quiz is {shorten(quiz)}; expected a text that mentions {', '.join(names)}")
    truth = format_solution(names, solution)
    if (row.get("solution_text_format") or truth) != truth:
        raise ValueError(f"solution_text_format is {row['solution_text_format']!r}, but the solution reads {truth!r}")
    if score_knights_and_knaves(format_response("", names, solution), truth).acc < 1:
        raise ValueError(f"names are {names!r}, which an answer cannot state clearly; change them")
    return Puzzle(quiz, tuple(names), statements, solution, origin)
