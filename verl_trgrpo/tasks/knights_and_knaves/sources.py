"""Where the puzzles of a Knights-and-Knaves data set come from: a generator, or rows of files and of the Hugging Face hub.

Every source gives, for each number of people, the train and test puzzles asked for, or an error. Within a data set no
puzzle occurs twice, not even with other names or its people in another order.

Rows have the format of `K-and-K/knights-and-knaves`: quiz, names, knight_knave, solution, solution_text,
solution_text_format, cot_head, cot_repeat_steps, cot_foot, statements (a Python literal as text), index. Only quiz,
names, solution and statements are needed; knight_knave and solution_text_format are checked where present. The columns
that begin with cot are a worked solution in words; they are needed where a reasoning is asked for.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from verl_trgrpo.common.progress import Progress, no_progress, parallel_map
from verl_trgrpo.data.build import Counts
from verl_trgrpo.data.sources import Record, RowErrors, find_file, find_files
from verl_trgrpo.tasks.knights_and_knaves.logic import canonical_key, parse_statements, solve
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import MAX_PEOPLE, MIN_PEOPLE, Puzzle, generate_puzzles

REPEATS = "repeats a puzzle up to names and order"
LEAKS = "equals a test puzzle up to names and order"
UNUSED = "not asked for"
OTHER_SIZE = "this number of people not asked for"

REQUIRED = ("quiz", "names", "solution", "statements")
REASONING = ("cot_head", "cot_repeat_steps", "cot_foot")

# These would make an answer line ambiguous or look like a tag.
_FORBIDDEN_IN_NAMES = '()[]<>\n\r\t:,"'

_TAG = re.compile(r"</?(?:think|answer)>|<\|")


@dataclass(frozen=True)
class SourcedPuzzle:
    """A puzzle, a short text that says where it comes from (``kk.jsonl#12``), and its source's reasoning if any."""

    puzzle: Puzzle
    origin: str
    reasoning: str | None = None


@dataclass(frozen=True)
class Size:
    """How many puzzles with `n_people` people; None stands for all that a source has."""

    n_people: int
    train: int | None
    test: int | None


@dataclass(frozen=True)
class Selection:
    """The puzzles chosen of one size, and what became of the rows read."""

    n_people: int
    train: Sequence[SourcedPuzzle]
    test: Sequence[SourcedPuzzle]
    counts: Mapping[str, Counts]


def from_generator(
    sizes: Sequence[Size], seed: int, num_proc: int = 1, progress: Progress = no_progress
) -> Iterator[Selection]:
    """Generate the puzzles of each size; `num_proc` processes share the sizes.

    The test puzzles come first in the stream of a size, so that they stay the same when only `train` changes. For two
    people, where few puzzles exist, this makes common puzzles a little more frequent in the test set.
    """
    if num_proc > 1 and len(sizes) > 1:
        yield from parallel_map(partial(_generate, seed=seed), sizes, num_proc, progress, "sizes")
    else:
        for size in sizes:
            yield _generate(size, seed, progress)


def from_records(
    sizes: Sequence[Size],
    records: Iterable[Record],
    test_records: Iterable[Record] | None,
    errors: RowErrors,
    *,
    seed: int = 0,
    at_most: bool = False,
    with_reasoning: bool = False,
) -> Iterator[Selection]:
    """Choose puzzles from rows in the public format.

    Args:
        sizes: what is asked for.
        records: without `test_records`, both splits are drawn from them, the test puzzles first.
        test_records: rows for the test puzzles; a train puzzle that equals any puzzle in them is dropped, because the
            public split leaks.
        errors: gets the malformed rows.
        seed: the order from which puzzles are taken depends on it and on the rows only.
        at_most: a size may have fewer puzzles than asked for, but some for train and test each.
        with_reasoning: every row must have a worked solution.

    Raises:
        ValueError: malformed rows unless skipped, or fewer puzzles than asked for.
    """
    pool = _by_size(read_puzzles(records, errors, with_reasoning))
    test_pool = None if test_records is None else _by_size(read_puzzles(test_records, errors, with_reasoning))
    errors.finish()
    for size in sizes:
        yield _select(size, pool[size.n_people], None if test_pool is None else test_pool[size.n_people], seed, at_most)
    for n_people in sorted({*pool, *(test_pool or ())} - {size.n_people for size in sizes}):
        read = len(pool[n_people]) + (len(test_pool[n_people]) if test_pool else 0)
        yield Selection(n_people, (), (), {f"{n_people}ppl": Counts(read, 0, {OTHER_SIZE: read})})


def source_files(source: Sequence[str], test_source: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the files to take puzzles from, and those to take the test puzzles from (none: the former are split).

    A directory stands for its data files. Without `test_source`, a directory that has ``train`` and ``test``, as
    subdirectories or as files of any type, stands for both.

    Raises ValueError where there are no such files.
    """
    files: list[Path] = []
    test_files: list[Path] = []
    for path in map(Path, source):
        train, test = (None, None) if test_source else _split_directory(path)
        files += find_files(train or path)
        test_files += find_files(test) if test else []
    for path in map(Path, test_source):
        test_files += find_files(path)
    return files, test_files


def _split_directory(path: Path) -> tuple[Path | None, Path | None]:
    if not path.is_dir():
        return None, None
    train, test = path / "train", path / "test"
    if train.is_dir() and test.is_dir():
        return train, test
    found = find_file(path, ["train"]), find_file(path, ["test"])
    return found if all(found) else (None, None)


def _generate(size: Size, seed: int, progress: Progress = no_progress) -> Selection:
    n_people, train, test = size.n_people, size.train or 0, size.test or 0
    stream = progress(generate_puzzles(n_people, train + test, seed), train + test, f"{n_people} people")
    puzzles = [SourcedPuzzle(p, f"generated/{n_people}ppl/seed{seed}#{p.index + 1}") for p in stream]
    counts = {f"{n_people}ppl train": Counts(train, train), f"{n_people}ppl test": Counts(test, test)}
    return Selection(n_people, puzzles[test:], puzzles[:test], counts)


def _by_size(puzzles: Iterable[SourcedPuzzle]) -> defaultdict[int, list[SourcedPuzzle]]:
    by_size: defaultdict[int, list[SourcedPuzzle]] = defaultdict(list)
    for sourced in puzzles:
        by_size[len(sourced.puzzle.names)].append(sourced)
    return by_size


def _select(
    size: Size, pool: Sequence[SourcedPuzzle], test_pool: Sequence[SourcedPuzzle] | None, seed: int, at_most: bool
) -> Selection:
    """Choose from puzzles that all have the size's people; without `test_pool` both splits come from `pool`."""
    distinct = _distinct(pool)
    label, repeats = f"{size.n_people}ppl", len(pool) - len(distinct)
    if test_pool is None:
        puzzles = _shuffled(distinct.values(), seed)
        n_test = len(puzzles) if size.test is None else size.test
        train, test = puzzles[n_test:][: size.train], puzzles[:n_test]
        kept = len(train) + len(test)
        counts = {label: Counts(len(pool), kept, {REPEATS: repeats, UNUSED: len(distinct) - kept})}
    else:
        distinct_test = _distinct(test_pool)
        clean = [sourced for key, sourced in distinct.items() if key not in distinct_test]
        train = _shuffled(clean, seed)[: size.train]
        test = _shuffled(distinct_test.values(), seed)[: size.test]
        dropped = {LEAKS: len(distinct) - len(clean), REPEATS: repeats, UNUSED: len(clean) - len(train)}
        dropped_test = {REPEATS: len(test_pool) - len(distinct_test), UNUSED: len(distinct_test) - len(test)}
        counts = {
            f"{label} train": Counts(len(pool), len(train), dropped),
            f"{label} test": Counts(len(test_pool), len(test), dropped_test),
        }
    enough = [
        there == asked or bool(there and (at_most or asked is None))
        for asked, there in ((size.train, len(train)), (size.test, len(test)))
    ]
    if not all(enough):
        asked = f"{size.train or 'some'} train and {size.test or 'some'} test puzzles"
        raise ValueError(
            f"{size.n_people} people: asked for {asked}, but {len(pool) + len(test_pool or ())} rows give only "
            f"{len(train)} train and {len(test)} test (repeats dropped, also those with other names; test puzzles are taken "
            "first); ask for fewer, give more rows, or take what there is of both with --at-most"
        )
    return Selection(size.n_people, train, test, counts)


def _distinct(pool: Iterable[SourcedPuzzle]) -> dict[str, SourcedPuzzle]:
    """Return the first puzzle of each canonical key, in order."""
    distinct: dict[str, SourcedPuzzle] = {}
    for sourced in pool:
        distinct.setdefault(canonical_key(sourced.puzzle.statements), sourced)
    return distinct


def _shuffled(puzzles: Iterable[SourcedPuzzle], seed: int) -> list[SourcedPuzzle]:
    shuffled = list(puzzles)
    random.Random(f"choice/{seed}").shuffle(shuffled)
    return shuffled


def read_puzzles(records: Iterable[Record], errors: RowErrors, with_reasoning: bool = False) -> Iterator[SourcedPuzzle]:
    """Yield the puzzles of `records`, with their reasoning if asked for; malformed rows go to `errors`.

    A puzzle's ``index`` is its row's number less one.
    """
    for record in records:
        try:
            puzzle = puzzle_from_row(record.row, record.number - 1)
            reasoning = reasoning_from_row(record.row) if with_reasoning else None
        except ValueError as error:
            errors.add(record.where, record.number, str(error))
        else:
            yield SourcedPuzzle(puzzle, record.origin, reasoning)


def puzzle_from_row(row: Mapping[str, Any], index: int) -> Puzzle:
    """Return the puzzle of one row of the public format.

    Raises ValueError when columns are missing, the statements do not parse or have not exactly one solution, the stated
    solution is another one, or the names are not distinct, unfit for an answer or not all in the quiz.
    """
    _check_columns(row, REQUIRED)
    statements = parse_statements(row["statements"])
    names = _checked_names(row["names"], row["quiz"], len(statements))
    roles = row.get("knight_knave")
    if isinstance(roles, Mapping) and (roles.get("knight"), roles.get("knave")) != ("knight", "knave"):
        raise ValueError(
            f"the roles are {roles.get('knight')!r} and {roles.get('knave')!r}; "
            "rewrite the quiz with knight and knave, the words of the answer"
        )
    solutions = solve(statements)
    if len(solutions) != 1:
        raise ValueError(f"the statements have {len(solutions)} solutions; a puzzle must have exactly one")
    if row["solution"] != list(solutions[0]):
        raise ValueError(f"solution is {row['solution']!r}, but the statements give {list(solutions[0])}")
    expected = format_solution(names, solutions[0])
    stated = row.get("solution_text_format")
    if stated is not None and stated != expected:
        raise ValueError(f"solution_text_format is {stated!r}, but the solution reads {expected!r}")
    return Puzzle(row["quiz"], names, statements, solutions[0], index)


def reasoning_from_row(row: Mapping[str, Any]) -> str:
    """Return the worked solution of one row, head, steps and foot on lines of their own.

    Raises ValueError when one of its columns is missing, of another type, or holds a tag of the answer format.
    """
    _check_columns(row, REASONING)
    head, steps, foot = (row[name] for name in REASONING)
    parts = [head, *steps, foot] if isinstance(steps, list) else [steps]
    if not all(isinstance(part, str) for part in parts) or not isinstance(steps, list):
        raise ValueError("cot_head and cot_foot must be texts and cot_repeat_steps a list of texts")
    text = "\n".join(part.strip() for part in parts if part.strip())
    tag = _TAG.search(text)
    if tag or not text:
        raise ValueError(f"the reasoning {f'contains {tag[0]}' if tag else 'is empty'}; it must be plain text")
    return text


def _check_columns(row: Mapping[str, Any], needed: Iterable[str]) -> None:
    missing = [name for name in needed if row.get(name) is None]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}; found {', '.join(map(str, row)) or 'nothing'}")


def _checked_names(names: Any, quiz: Any, n_people: int) -> tuple[str, ...]:
    if not isinstance(quiz, str) or not quiz.strip():
        raise ValueError(f"quiz is {quiz!r}; expected the puzzle's text")
    if not MIN_PEOPLE <= n_people <= MAX_PEOPLE:
        raise ValueError(f"it has {n_people} people; puzzles have {MIN_PEOPLE} to {MAX_PEOPLE}")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) != n_people:
        raise ValueError(f"names are {names!r}; expected a list of {n_people} texts, one for each statement")
    unfit = [name for name in names if name != name.strip() or not name or set(name) & set(_FORBIDDEN_IN_NAMES)]
    if unfit:
        raise ValueError(f"names {unfit!r} are empty or contain spaces at an end or one of {_FORBIDDEN_IN_NAMES!r}")
    if len({name.casefold() for name in names}) < n_people:
        raise ValueError(f"names are {names!r}; they must differ in more than upper and lower case")
    absent = [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", quiz)]
    if absent:
        raise ValueError(f"the quiz does not mention {', '.join(absent)}; every name must appear in it")
    return tuple(names)
