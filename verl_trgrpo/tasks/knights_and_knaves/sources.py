"""Where the puzzles of a Knights-and-Knaves data set come from: a generator, or rows of files and of the Hugging Face hub.

Within a data set no puzzle occurs twice, not even with other names or its people in another order.

Rows have the format of `K-and-K/knights-and-knaves`, of which these columns are needed: quiz, names, solution (a list of
booleans, True for a knight) and statements (a Python literal as text). solution_text_format is checked where present.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from verl_trgrpo.common.progress import Progress, no_progress
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.build import counts
from verl_trgrpo.data.sources import Record, find_files, parse_records
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements, unique_solution
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_response, format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.reward import score_knights_and_knaves

REPEATS = "repeats a puzzle up to names and order"
LEAKS = "equals a test puzzle up to names and order"

COLUMNS = ("quiz", "names", "solution", "statements")


# By split, train and test.
Puzzles = dict[str, list[Puzzle]]


def from_generator(
    people: Iterable[int], train: int, test: int, seed: int, progress: Progress = no_progress
) -> Puzzles:
    """Generate `train` and `test` puzzles with each number of people.

    The test puzzles come first in the stream of a size, so that they stay the same when only `train` changes. For two
    people, where few puzzles exist, this makes common puzzles a little more frequent in the test set.
    """
    chosen: Puzzles = {"train": [], "test": []}
    for n_people in people:
        stream = generate_puzzles(n_people, train + test, seed)
        puzzles = [*progress(stream, train + test, f"{n_people} people")]
        chosen["test"] += puzzles[:test]
        chosen["train"] += puzzles[test:]
    return chosen


def from_records(
    people: Iterable[int],
    records: Iterable[Record],
    test_records: Iterable[Record] | None,
    *,
    train: int | None,
    test: int | None,
    seed: int = 0,
    at_most: bool = False,
) -> tuple[Puzzles, dict[str, dict[str, Any]]]:
    """Choose puzzles from rows in the public format; return them, and the counts of each number of people (``3ppl``).

    Args:
        people: numbers of people; rows with another number are left out.
        records: without `test_records`, both splits are drawn from them, the test puzzles first.
        test_records: rows for the test puzzles; a train puzzle that equals any puzzle in them is dropped, because the
            public split leaks.
        train: train puzzles of each number of people; None for all.
        test: test puzzles likewise.
        seed: the order from which puzzles are taken depends on it and on the rows only.
        at_most: there may be fewer puzzles than asked for, but some for train and test each.

    Raises:
        ValueError: malformed rows, or fewer puzzles than asked for.
    """
    if test_records is None and test is None:
        raise ValueError("test is missing; say how many puzzles per number of people are for testing")
    pool, test_pool = _by_size(records), _by_size(test_records or ())
    chosen: Puzzles = {"train": [], "test": []}
    found = {}
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
                    f"names and order, not {asked or 'any'}; ask for fewer, or give more rows"
                )
            chosen[split] += puzzles
        kept = len(trains) + len(tests)
        dropped = {REPEATS: read - len(distinct) - len(distinct_test), LEAKS: len(distinct) - len(clean)}
        found[f"{n_people}ppl"] = counts(kept, {**dropped, "not asked for": read - kept - sum(dropped.values())})
    return chosen, found


def source_files(path: Path) -> dict[str, list[Path]]:
    """Return the files to take puzzles from, and those to take the test puzzles from (none: the former are split).

    A directory stands for its data files, or for those of its directories ``train`` and ``test``, as on the hub. Raises
    ValueError where there are no such files.
    """
    if (path / "train").is_dir() and (path / "test").is_dir():
        return {"train": find_files(path / "train"), "test": find_files(path / "test")}
    return {"train": find_files(path), "test": []}


def _by_size(records: Iterable[Record]) -> defaultdict[int, list[Puzzle]]:
    by_size: defaultdict[int, list[Puzzle]] = defaultdict(list)
    for puzzle in parse_records(records, lambda record: puzzle_from_row(record.row, record.origin)):
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
