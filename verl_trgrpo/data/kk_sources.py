"""Where the puzzles of a Knights-and-Knaves data set come from: a generator, the Hugging Face hub or files.

Every source gives, for each number of people, exactly the train and test puzzles asked for, or an error. Within a data
set no puzzle occurs twice, not even with other names or its people in another order.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from verl_trgrpo.data.kk_puzzles import Puzzle, canonical_key, generate_puzzles
from verl_trgrpo.data.kk_rows import check_rows, read_puzzles

HUB_DATASET = "K-and-K/knights-and-knaves"

# The latest commit known when this was written. The data set's licence is CC BY-NC-SA 4.0.
HUB_REVISION = "2f68547989981b1af37cb3dde5fdefa847aa8619"

Item = TypeVar("Item")

# Called with things to go through, how many they are and a label; a command line draws a progress bar.
Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]


def no_progress(items: Iterable[Item], total: int, label: str) -> Iterable[Item]:
    """Return `items`: the progress display that shows nothing."""
    return items


@dataclass(frozen=True)
class SourcedPuzzle:
    """A puzzle and a short text that says where it comes from, such as ``kk.jsonl#12``."""

    puzzle: Puzzle
    origin: str


@dataclass(frozen=True)
class Selection:
    """The puzzles of one size: those chosen, how many were read, and why the others were dropped."""

    n_people: int
    train: tuple[SourcedPuzzle, ...]
    test: tuple[SourcedPuzzle, ...]
    read: int
    dropped: dict[str, int]


def from_generator(
    people: Sequence[int], train: int, test: int, seed: int, progress: Progress = no_progress
) -> Iterator[Selection]:
    """Generate `train` and `test` puzzles for each number of people.

    The test puzzles come first in the stream of a size, so that they stay the same when only `train` changes. For two
    people, where few puzzles exist, this makes common puzzles a little more frequent in the test set.
    """
    for n_people in people:
        stream = progress(generate_puzzles(n_people, train + test, seed), train + test, f"{n_people} people")
        puzzles = tuple(SourcedPuzzle(p, f"generated/{n_people}ppl/seed{seed}#{p.index}") for p in stream)
        yield Selection(n_people, puzzles[test:], puzzles[:test], len(puzzles), {})


def from_files(
    people: Sequence[int],
    train: int,
    test: int,
    seed: int,
    files: Sequence[Path],
    test_files: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> Iterator[Selection]:
    """Choose puzzles from files in the public format.

    Without `test_files` both splits are drawn from `files`, the test puzzles first, in an order that depends on the
    seed and the files only. With `test_files` a train puzzle that equals any puzzle in them is dropped.

    Raises ValueError for unreadable files, bad rows, or fewer puzzles than asked for.
    """
    pool = _read_files(progress(files, len(files), "source files"))
    test_pool = _read_files(progress(test_files, len(test_files), "test files") if test_files else ())
    for n_people in people:
        yield _select(n_people, train, test, seed, pool[n_people], test_pool[n_people] if test_files else None)
    for n_people in sorted({*pool, *test_pool} - {*people}):
        read = len(pool[n_people]) + len(test_pool[n_people])
        yield Selection(n_people, (), (), read, {"this number of people not asked for": read})


def from_hub(
    people: Sequence[int],
    train: int,
    test: int,
    seed: int,
    dataset: str = HUB_DATASET,
    revision: str = HUB_REVISION,
    progress: Progress = no_progress,
) -> Iterator[Selection]:
    """Choose puzzles from the public data set, or from a local copy of its repository when `dataset` is a directory.

    Its configurations are ``train`` and ``test`` with a split ``<n>ppl`` per size. Train puzzles that equal any puzzle
    of the same size in ``test`` are dropped: the public split leaks.

    Raises ValueError when it cannot be loaded, for bad rows, or for fewer puzzles than asked for.
    """
    for n_people in progress(people, len(people), dataset):
        pool, test_pool = (
            _load_hub_split(dataset, revision, configuration, f"{n_people}ppl") for configuration in ("train", "test")
        )
        yield _select(n_people, train, test, seed, pool, test_pool)


def _load_hub_split(dataset: str, revision: str, configuration: str, split: str) -> list[SourcedPuzzle]:
    where = f"{dataset}/{configuration}/{split}"
    try:
        import datasets  # slow import, needed here only

        rows = datasets.load_dataset(dataset, configuration, split=split, revision=revision)
    except Exception as error:  # the hub's client and the network beneath it raise many unrelated types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"could not load configuration {configuration!r}, split {split!r} of {dataset!r} at revision {revision!r}: "
            f"{reason}. Check the network and the name; or copy the data set's repository to a directory and name that "
            "directory instead; or use --source generate, which needs no network"
        ) from error
    puzzles = check_rows(enumerate(rows, start=1), where)
    return [SourcedPuzzle(puzzle, f"{where}#{puzzle.index}") for puzzle in puzzles]


def _read_files(files: Iterable[Path]) -> defaultdict[int, list[SourcedPuzzle]]:
    """Return the puzzles of `files` by their number of people."""
    by_size: defaultdict[int, list[SourcedPuzzle]] = defaultdict(list)
    for path in files:
        for puzzle in read_puzzles(path):
            by_size[len(puzzle.names)].append(SourcedPuzzle(puzzle, f"{path.name}#{puzzle.index}"))
    return by_size


def _select(
    n_people: int,
    train: int,
    test: int,
    seed: int,
    pool: Sequence[SourcedPuzzle],
    test_pool: Sequence[SourcedPuzzle] | None,
) -> Selection:
    """Choose from puzzles that all have `n_people` people; without `test_pool` both splits come from `pool`."""
    seen: set[str] = set()
    if test_pool is None:
        shared = _new_puzzles(pool, seen, seed)
        test_puzzles, train_puzzles = shared[:test], shared[test:]
    else:
        test_puzzles = _new_puzzles(test_pool, seen, seed)
        train_puzzles = _new_puzzles(pool, seen, seed)
    read = len(pool) + len(test_pool or ())
    repeated = read - len(seen)
    found = f"{len(train_puzzles)} train and {len(test_puzzles)} test"
    if len(train_puzzles) < train or len(test_puzzles) < test:
        raise ValueError(
            f"{n_people} people: asked for {train} train and {test} test puzzles, but {read} rows give only {found} "
            f"({repeated} rows repeat a puzzle, perhaps with other names); ask for fewer or give more rows"
        )
    unused = len(seen) - train - test
    dropped = {"repeats a puzzle up to names and order": repeated, "not asked for": unused}
    return Selection(n_people, tuple(train_puzzles[:train]), tuple(test_puzzles[:test]), read, dropped)


def _new_puzzles(pool: Sequence[SourcedPuzzle], seen: set[str], seed: int) -> list[SourcedPuzzle]:
    """Return the puzzles whose canonical keys are not in `seen`, shuffled, and add their keys to it."""
    puzzles = []
    for sourced in pool:
        key = canonical_key(sourced.puzzle.statements)
        if key not in seen:
            seen.add(key)
            puzzles.append(sourced)
    random.Random(f"choice/{seed}").shuffle(puzzles)
    return puzzles
