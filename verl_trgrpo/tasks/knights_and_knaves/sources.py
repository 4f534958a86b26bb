"""Where the puzzles of a Knights-and-Knaves data set come from: a generator, the Hugging Face hub or files.

Every source gives, for each number of people, the train and test puzzles asked for, or an error. Within a data set no
puzzle occurs twice, not even with other names or its people in another order.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_trgrpo.common.progress import Progress, no_progress, parallel_map
from verl_trgrpo.data.build import Counts
from verl_trgrpo.data.sources import Record, RowErrors, find_file, find_files, hub_name, load_hub, read_records
from verl_trgrpo.tasks.knights_and_knaves.puzzles import canonical_key, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.rows import SourcedPuzzle, read_puzzles

HUB_DATASET = "K-and-K/knights-and-knaves"

# The latest commit known when this was written. The data set's licence is CC BY-NC-SA 4.0.
HUB_REVISION = "2f68547989981b1af37cb3dde5fdefa847aa8619"

REPEATS = "repeats a puzzle up to names and order"
LEAKS = "equals a test puzzle up to names and order"
UNUSED = "not asked for"
OTHER_SIZE = "this number of people not asked for"


@dataclass(frozen=True)
class Size:
    """How many puzzles with `n_people` people; None stands for all that a source has."""

    n_people: int
    train: int | None
    test: int | None


@dataclass(frozen=True)
class Rules:
    """How puzzles are chosen from a source.

    seed: the order from which they are taken depends on it and on the source only.
    at_most: a size may have fewer puzzles than asked for, but some for train and test each.
    with_reasoning: every row must have a worked solution.
    """

    seed: int = 0
    at_most: bool = False
    with_reasoning: bool = False


@dataclass(frozen=True)
class Selection:
    """The puzzles chosen of one size, and what became of the rows read."""

    n_people: int
    train: tuple[SourcedPuzzle, ...]
    test: tuple[SourcedPuzzle, ...]
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


def from_files(
    sizes: Sequence[Size],
    rules: Rules,
    files: Sequence[Path],
    test_files: Sequence[Path],
    errors: RowErrors,
    progress: Progress = no_progress,
) -> Iterator[Selection]:
    """Choose puzzles from files in the public format.

    Without `test_files` both splits are drawn from `files`, the test puzzles first. With `test_files` a train puzzle
    that equals any puzzle in them is dropped.

    Raises ValueError for unreadable files, malformed rows unless skipped, or fewer puzzles than asked for.
    """
    pool = _read_files(progress(files, len(files), "source files"), rules, errors)
    test_pool = _read_files(progress(test_files, len(test_files), "test files") if test_files else (), rules, errors)
    errors.finish()
    for size in sizes:
        n_people = size.n_people
        yield _select(size, rules, pool[n_people], test_pool[n_people] if test_files else None)
    for n_people in sorted({*pool, *test_pool} - {size.n_people for size in sizes}):
        read = len(pool[n_people]) + len(test_pool[n_people])
        yield Selection(n_people, (), (), {f"{n_people}ppl": Counts(read, 0, {OTHER_SIZE: read})})


def from_hub(
    sizes: Sequence[Size],
    rules: Rules,
    dataset: str,
    revision: str,
    errors: RowErrors,
    progress: Progress = no_progress,
) -> Iterator[Selection]:
    """Choose puzzles from the public data set, or from a local copy of its repository when `dataset` is a directory.

    Its configurations are ``train`` and ``test`` with a split ``<n>ppl`` per size. Train puzzles that equal any puzzle
    of the same size in ``test`` are dropped: the public split leaks.

    Raises ValueError when it cannot be loaded, for malformed rows unless skipped, or for fewer puzzles than asked for.
    """
    # All of it before a progress bar is drawn: an error would be written into its line.
    loaded = [
        [(size.n_people, load_hub(dataset, revision, f"{size.n_people}ppl", part)) for part in ("train", "test")]
        for size in sizes
    ]
    pools = []
    for parts in progress(loaded, len(loaded), hub_name(dataset)):
        pools.append([_hub_puzzles(records, n_people, rules, errors) for n_people, records in parts])
    errors.finish()
    for size, (pool, test_pool) in zip(sizes, pools, strict=True):
        yield _select(size, rules, pool, test_pool)


def source_files(source: Sequence[str], test_source: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """Return the files to take puzzles from, and those to take the test puzzles from (none: the former are split).

    A directory stands for its data files. Without `test_source`, a directory that has ``train`` and ``test``, as
    subdirectories or as files of any type, stands for both.

    Raises ValueError where there are no such files.
    """
    files: list[Path] = []
    test_files: list[Path] = []
    for path in map(Path, source):
        parts = None if test_source else _split_directory(path)
        files += find_files(parts[0] if parts else path)
        test_files += find_files(parts[1]) if parts else []
    for path in map(Path, test_source):
        test_files += find_files(path)
    return files, test_files


def _split_directory(path: Path) -> tuple[Path, Path] | None:
    if not path.is_dir():
        return None
    if (path / "train").is_dir() and (path / "test").is_dir():
        return path / "train", path / "test"
    train, test = (find_file(path, [name]) for name in ("train", "test"))
    return (train, test) if train and test else None


def _generate(size: Size, seed: int, progress: Progress = no_progress) -> Selection:
    n_people, train, test = size.n_people, size.train or 0, size.test or 0
    stream = progress(generate_puzzles(n_people, train + test, seed), train + test, f"{n_people} people")
    puzzles = tuple(SourcedPuzzle(p, f"generated/{n_people}ppl/seed{seed}#{p.index + 1}") for p in stream)
    counts = {f"{n_people}ppl train": Counts(train, train), f"{n_people}ppl test": Counts(test, test)}
    return Selection(n_people, puzzles[test:], puzzles[:test], counts)


def _read_files(files: Iterable[Path], rules: Rules, errors: RowErrors) -> defaultdict[int, list[SourcedPuzzle]]:
    """Return the puzzles of `files` by their number of people."""
    by_size: defaultdict[int, list[SourcedPuzzle]] = defaultdict(list)
    for path in files:
        known_problems, found = len(errors.problems), 0
        for sourced in read_puzzles(read_records(path, errors), errors, rules.with_reasoning):
            by_size[len(sourced.puzzle.names)].append(sourced)
            found += 1
        if not found and len(errors.problems) == known_problems:
            raise ValueError(f"{path} has no rows; give a source with puzzles in it")
    return by_size


def _hub_puzzles(records: Iterable[Record], n_people: int, rules: Rules, errors: RowErrors) -> list[SourcedPuzzle]:
    puzzles = list(read_puzzles(records, errors, rules.with_reasoning))
    other = [sourced.origin for sourced in puzzles if len(sourced.puzzle.names) != n_people]
    if other:
        raise ValueError(f"{other[0]} has not {n_people} people, as its split's name says; check the data set")
    return puzzles


def _select(
    size: Size, rules: Rules, pool: Sequence[SourcedPuzzle], test_pool: Sequence[SourcedPuzzle] | None
) -> Selection:
    """Choose from puzzles that all have the size's people; without `test_pool` both splits come from `pool`."""
    distinct = _distinct(pool)
    if test_pool is None:
        puzzles = _shuffled(distinct.values(), rules.seed)
        n_test = len(puzzles) if size.test is None else size.test
        test_found, train_found = puzzles[:n_test], puzzles[n_test:]
    else:
        distinct_test = _distinct(test_pool)
        test_found = _shuffled(distinct_test.values(), rules.seed)
        train_found = _shuffled((p for key, p in distinct.items() if key not in distinct_test), rules.seed)
    read = len(pool) + len(test_pool or ())
    _check_enough(size, rules, len(train_found), len(test_found), read, one_pool=test_pool is None)
    train, test = tuple(train_found[: size.train]), tuple(test_found[: size.test])
    label = f"{size.n_people}ppl"
    repeats = len(pool) - len(distinct)
    if test_pool is None:
        kept = len(train) + len(test)
        counts = {label: Counts(len(pool), kept, {REPEATS: repeats, UNUSED: len(distinct) - kept})}
    else:
        dropped = {
            LEAKS: len(distinct) - len(train_found),
            REPEATS: repeats,
            UNUSED: len(train_found) - len(train),
        }
        dropped_test = {REPEATS: len(test_pool) - len(test_found), UNUSED: len(test_found) - len(test)}
        counts = {
            f"{label} train": Counts(len(pool), len(train), dropped),
            f"{label} test": Counts(len(test_pool), len(test), dropped_test),
        }
    return Selection(size.n_people, train, test, counts)


def _check_enough(size: Size, rules: Rules, train: int, test: int, read: int, one_pool: bool) -> None:
    found = ((size.train, train), (size.test, test))
    short = not rules.at_most and any(asked is not None and there < asked for asked, there in found)
    if not short and train and test:
        return
    if train and test:
        remedy = "ask for fewer, take what there is with --at-most, or give more rows"
    elif not test:
        remedy = f"give {'rows' if one_pool else 'test rows'} with {size.n_people} people, or leave that number out"
    elif one_pool:
        remedy = f"all {test} went to the test set: ask for fewer than {test} test puzzles, or give more rows"
    else:
        remedy = "no train puzzle is left that is not a test puzzle: give other rows"
    asked = f"{'some' if size.train is None else size.train} train and {size.test or 'some'} test puzzles"
    raise ValueError(
        f"{size.n_people} people: asked for {asked}, but {read} rows give only {train} train and {test} test (repeats "
        f"dropped, also those with other names); {remedy}"
    )


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
