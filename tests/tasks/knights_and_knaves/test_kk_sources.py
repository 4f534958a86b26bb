import json
import random

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import public_row, renamed, smallest_renaming
from verl_trgrpo.data.sources import RowErrors
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.sources import Rules, Size, from_generator, source_files
from verl_trgrpo.tasks.knights_and_knaves.sources import from_files as choose_from_files
from verl_trgrpo.tasks.knights_and_knaves.wording import choose_names, quiz_text


def write(path, puzzles):
    path.write_text("".join(json.dumps(public_row(puzzle)) + "\n" for puzzle in puzzles), encoding="utf-8")
    return path


def sizes(people, train, test):
    return [Size(n_people, train, test) for n_people in people]


def from_files(people, train, test, seed, files, test_files=(), **rules):
    return choose_from_files(sizes(people, train, test), Rules(seed, **rules), files, test_files, RowErrors())


def same_in_other_words(puzzle, seed):
    """The puzzle with other names, its people in another order and commutative operands swapped."""
    rng = random.Random(seed)
    order = tuple(rng.sample(range(len(puzzle.names)), len(puzzle.names)))
    statements = renamed(puzzle.statements, order, rng)
    solution = tuple(puzzle.solution[order.index(i)] for i in range(len(order)))
    names = choose_names(len(order), rng)
    return Puzzle(quiz_text(names, statements, rng), names, statements, solution, 0)


def identities(sourced_puzzles):
    return [smallest_renaming(sourced.puzzle.statements) for sourced in sourced_puzzles]


def counts_of(selection):
    """Counts per source as (read, kept, dropped); what is read is either kept or dropped."""
    counts = {name: (c.read, c.kept, c.as_dict()["dropped"]) for name, c in selection.counts.items()}
    assert all(read == kept + sum(dropped.values()) for read, kept, dropped in counts.values())
    return counts


def check_all_different(selections):
    found = [key for s in selections for key in [*identities(s.train), *identities(s.test)]]
    assert len(set(found)) == len(found)


def test_the_generator_gives_exactly_what_is_asked_for_without_overlap():
    selections = list(from_generator(sizes([2, 3, 4], 60, 35), seed=3))
    assert [(s.n_people, len(s.train), len(s.test)) for s in selections] == [(n, 60, 35) for n in (2, 3, 4)]
    assert [counts_of(s) for s in selections] == [
        {f"{n}ppl train": (60, 60, {}), f"{n}ppl test": (35, 35, {})} for n in (2, 3, 4)
    ]
    check_all_different(selections)


def test_the_generated_test_set_does_not_depend_on_the_size_of_the_train_set():
    (small,) = from_generator([Size(4, 5, 20)], seed=3)
    (large,) = from_generator([Size(4, 50, 20)], seed=3)
    assert small.test == large.test
    assert small.train == large.train[:5]


def test_one_file_is_split_without_overlap_although_it_repeats_puzzles(tmp_path):
    puzzles = list(generate_puzzles(3, 30, seed=4))
    repeats = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:8])]
    path = write(tmp_path / "kk.jsonl", [*puzzles, *repeats])
    (selection,) = from_files([3], train=18, test=10, seed=0, files=[path])
    assert (len(selection.train), len(selection.test)) == (18, 10)
    dropped = {"repeats a puzzle up to names and order": 8, "not asked for": 2}
    assert counts_of(selection) == {"3ppl": (38, 28, dropped)}
    check_all_different([selection])
    by_quiz = {puzzle.quiz: index for index, puzzle in enumerate([*puzzles, *repeats])}
    for sourced in [*selection.train, *selection.test]:
        assert sourced.origin == f"kk.jsonl#{by_quiz[sourced.puzzle.quiz] + 1}"


def test_the_split_of_a_file_depends_on_the_seed(tmp_path):
    path = write(tmp_path / "kk.jsonl", generate_puzzles(3, 40, seed=4))
    first, again, other = (next(from_files([3], 10, 20, seed, [path])) for seed in (0, 0, 1))
    assert first == again
    assert set(identities(first.test)) != set(identities(other.test))


def test_a_train_file_gives_up_what_the_test_file_has(tmp_path):
    puzzles = list(generate_puzzles(4, 30, seed=4))
    test_file = write(tmp_path / "test.jsonl", puzzles[:10])
    leaks = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:10])]
    train_file = write(tmp_path / "train.jsonl", [*leaks, *puzzles[10:]])
    (selection,) = from_files([4], 20, 6, 0, [train_file], [test_file])
    assert counts_of(selection) == {
        "4ppl train": (30, 20, {"equals a test puzzle up to names and order": 10}),
        "4ppl test": (10, 6, {"not asked for": 4}),
    }
    assert all(sourced.origin.startswith("test.jsonl#") for sourced in selection.test)
    # Also the four test puzzles that were not asked for must not be trained on.
    assert set(identities(selection.train)) == {smallest_renaming(puzzle.statements) for puzzle in puzzles[10:]}


def test_several_files_are_joined_and_sizes_that_nobody_asked_for_are_counted(tmp_path):
    files = [write(tmp_path / f"{n}.jsonl", generate_puzzles(n, 12, seed=n)) for n in (3, 4, 5)]
    selections = list(from_files([5, 3], 6, 4, 0, files))
    assert [(s.n_people, len(s.train), len(s.test)) for s in selections] == [(5, 6, 4), (3, 6, 4), (4, 0, 0)]
    assert counts_of(selections[2]) == {"4ppl": (12, 0, {"this number of people not asked for": 12})}
    assert {len(sourced.puzzle.names) for sourced in selections[0].train} == {5}


@pytest.mark.parametrize(
    ("people", "train", "test", "reason"),
    [
        (
            [3],
            10,
            3,
            "3 people: asked for 10 train and 3 test puzzles, but 14 rows give only 9 train and 3 test (repeats",
        ),
        ([3], 1, 13, "14 rows give only 0 train and 12 test"),
        ([3, 6], 1, 1, "6 people: asked for 1 train and 1 test puzzles, but 0 rows"),
    ],
)
def test_too_few_puzzles_are_an_error_that_counts_them(tmp_path, people, train, test, reason):
    puzzles = list(generate_puzzles(3, 12, seed=4))
    path = write(tmp_path / "kk.jsonl", [*puzzles, *puzzles[:2]])
    with pytest.raises(ValueError) as caught:
        list(from_files(people, train, test, 0, [path]))
    assert reason in str(caught.value)


def test_too_few_puzzles_in_the_test_file(tmp_path):
    puzzles = list(generate_puzzles(3, 12, seed=4))
    files = [write(tmp_path / f"{i}.jsonl", part) for i, part in enumerate((puzzles[:8], puzzles[6:]))]
    with pytest.raises(ValueError, match="14 rows give only 6 train and 6 test"):
        list(from_files([3], 6, 7, 0, files[:1], files[1:]))


def test_without_counts_everything_is_taken_that_is_no_repeat(tmp_path):
    puzzles = list(generate_puzzles(4, 30, seed=4))
    test_file = write(tmp_path / "test.jsonl", [*puzzles[:10], same_in_other_words(puzzles[3], 1)])
    leaks = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:4])]
    train_file = write(tmp_path / "train.jsonl", [*leaks, *puzzles[10:], same_in_other_words(puzzles[20], 2)])
    (selection,) = from_files([4], None, None, 0, [train_file], [test_file])
    assert counts_of(selection) == {
        "4ppl train": (
            25,
            20,
            {"equals a test puzzle up to names and order": 4, "repeats a puzzle up to names and order": 1},
        ),
        "4ppl test": (11, 10, {"repeats a puzzle up to names and order": 1}),
    }
    check_all_different([selection])


def test_upper_bounds_cut_what_there_is_and_take_less_where_there_is_less(tmp_path):
    files = [write(tmp_path / f"{n}.jsonl", generate_puzzles(n, count, seed=n)) for n, count in ((3, 12), (4, 30))]
    selections = list(from_files([3, 4], 15, 5, 0, files, at_most=True))
    assert [(len(s.train), len(s.test)) for s in selections] == [(7, 5), (15, 5)]
    for test in (20, None):
        with pytest.raises(ValueError, match=r"12 rows give only 0 train and 12 test.*all 12 went to the test set"):
            list(from_files([3], 15, test, 0, files, at_most=True))
    with pytest.raises(ValueError, match=r"0 train and 12 test.*no train puzzle is left that is not a test puzzle"):
        list(from_files([3], 15, 5, 0, files[:1], files[:1], at_most=True))
    with pytest.raises(ValueError, match=r"30 rows give only 30 train and 0 test.*give test rows with 4 people"):
        list(from_files([4], 15, 5, 0, files, files[:1], at_most=True))


def test_a_directory_stands_for_its_files_or_for_its_train_and_test_files(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        return [tmp_path / name for name in names]

    b, a = make("all/b.jsonl", "all/a.jsonl.gz")
    make("all/notes.txt", "all/.hidden.jsonl")
    train, test, _ = make("split/train.parquet", "split/test.json", "split/other.jsonl")
    hub_train, hub_test = make("hub/train/3.jsonl", "hub/test/4.jsonl")
    assert source_files([str(tmp_path / "all")], []) == ([a, b], [])
    assert source_files([str(tmp_path / "split")], []) == ([train], [test])
    assert source_files([str(tmp_path / "hub"), str(b)], []) == ([hub_train, b], [hub_test])
    assert source_files([str(tmp_path / "all")], [str(test), str(tmp_path / "hub" / "test")]) == (
        [a, b],
        [test, hub_test],
    )
    with pytest.raises(ValueError, match="has no data files"):
        source_files([str(tmp_path)], [])
