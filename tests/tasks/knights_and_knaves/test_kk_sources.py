"""Puzzles from rows: what a row must have, and which puzzles are chosen."""

import random
import re
from dataclasses import replace

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import public_row, renamed, smallest_renaming
from verl_trgrpo.data.sources import Record
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, choose_names, generate_puzzles, quiz_text
from verl_trgrpo.tasks.knights_and_knaves.sources import (
    COLUMNS,
    LEAKS,
    REPEATS,
    from_records,
    puzzle_from_row,
    source_files,
)

PUZZLES = list(generate_puzzles(3, 6, seed=21))


def row(**changes):
    return public_row(PUZZLES[0]) | changes


def records(puzzles, name="kk.jsonl"):
    return [Record(public_row(puzzle), name, k) for k, puzzle in enumerate(puzzles, start=1)]


def test_rows_become_the_puzzles_they_describe_and_only_four_columns_are_needed():
    for puzzle in PUZZLES:
        full = public_row(puzzle)
        for columns in (full, {name: full[name] for name in COLUMNS}):
            assert puzzle_from_row(columns, "kk.jsonl#1") == replace(puzzle, origin="kk.jsonl#1")


def test_names_in_other_scripts_are_welcome():
    columns = {"quiz": "You meet Łukasz and 美咲.", "names": ["Łukasz", "美咲"], "solution": [False, True]}
    puzzle = puzzle_from_row(columns | {"statements": "(('and', ('lying', 0), ('lying', 1)), ('telling-truth', 1))"})
    assert (puzzle.names, puzzle.solution) == (("Łukasz", "美咲"), (False, True))


NAMES = row()["names"]
FLIPPED = [not value for value in row()["solution"]]


def with_first_name(name):
    changed = row(names=[name, *NAMES[1:]], quiz=f"You meet {name} and {' '.join(NAMES[1:])}")
    return {key: value for key, value in changed.items() if key != "solution_text_format"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({}, "missing quiz, names, solution, statements; found nothing"),
        (row(solution=None), "missing solution"),
        (row(quiz=7), "expected a text that mentions"),
        (row(statements="(('lying', 1)"), "not a Python literal"),
        (row(statements=[["lying", 1]]), "expected a text"),
        (row(statements="(('telling-truth', 0), ('telling-truth', 1), ('telling-truth', 2))"), "not exactly one"),
        (row(statements="(('lying', 0), ('telling-truth', 1), ('telling-truth', 2))"), "not exactly one"),
        (row(solution=FLIPPED), "but the statements have"),
        (row(solution=row()["solution"][:2]), "but the statements have"),
        (row(solution_text_format="(1) Nobody is a saint"), "solution_text_format is"),
        (row(names=NAMES[:2]), "expected a list of 3 texts"),
        (row(names="Zoey"), "expected a list of 3 texts"),
        (row(names=[*NAMES[:2], 3]), "expected a list of 3 texts"),
        (row(names=["Nobody", *NAMES[1:]]), "mentions Nobody"),
        (row(names=[NAMES[0][:-1], *NAMES[1:]]), "mentions"),
        (with_first_name(NAMES[1].upper()), "ground truth"),
        (with_first_name(""), "ground truth"),
        (with_first_name("And Ava"), "ground truth"),
        (with_first_name("Ava</answer>x"), "cannot state clearly"),
    ],
)
def test_a_bad_row_is_refused_with_its_reason(bad, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        puzzle_from_row(bad)


def same_in_other_words(puzzle, seed):
    """The puzzle with other names, its people in another order and commutative operands swapped."""
    rng = random.Random(seed)
    order = tuple(rng.sample(range(len(puzzle.names)), len(puzzle.names)))
    statements = renamed(puzzle.statements, order, rng)
    solution = tuple(puzzle.solution[order.index(i)] for i in range(len(order)))
    names = choose_names(len(order), rng)
    return Puzzle(quiz_text(names, statements, rng), names, statements, solution)


def identities(puzzles):
    return {smallest_renaming(puzzle.statements) for puzzle in puzzles}


def choose(people, train, test, puzzles, test_puzzles=None, **options):
    test_records = None if test_puzzles is None else records(test_puzzles, "test.jsonl")
    chosen, counts = from_records(people, records(puzzles), test_records, train=train, test=test, **options)
    every = [*chosen["train"], *chosen["test"]]
    assert len(identities(every)) == len(every), "no puzzle may occur twice, not even in other words"
    return chosen, counts


def sizes_of(chosen):
    return [[len(puzzle.names) for puzzle in chosen[split]] for split in ("train", "test")]


def test_one_source_is_split_without_overlap_although_it_repeats_puzzles():
    puzzles = list(generate_puzzles(3, 30, seed=4))
    every = [*puzzles, *(same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:8]))]
    chosen, counts = choose([3], 18, 10, every)
    assert sizes_of(chosen) == [[3] * 18, [3] * 10]
    assert counts == {"3ppl": {"read": 38, "kept": 28, "dropped": {REPEATS: 8, "not asked for": 2}}}
    by_quiz = {puzzle.quiz: f"kk.jsonl#{number}" for number, puzzle in enumerate(every, start=1)}
    assert all(puzzle.origin == by_quiz[puzzle.quiz] for puzzle in [*chosen["train"], *chosen["test"]])
    assert choose([3], 18, 10, every) == (chosen, counts)
    assert identities(choose([3], 18, 10, every, seed=1)[0]["test"]) != identities(chosen["test"])


def test_train_rows_give_up_what_the_test_rows_have():
    puzzles = list(generate_puzzles(4, 30, seed=4))
    leaks = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:10])]
    chosen, counts = choose([4], 20, 6, [*leaks, *puzzles[10:]], puzzles[:10])
    assert counts == {"4ppl": {"read": 40, "kept": 26, "dropped": {LEAKS: 10, "not asked for": 4}}}
    assert len(chosen["test"]) == 6 and all(puzzle.origin.startswith("test.jsonl#") for puzzle in chosen["test"])
    # Also the four test puzzles that were not asked for must not be trained on.
    assert identities(chosen["train"]) == identities(puzzles[10:])


TOO_FEW = {
    "train": (([3], 10, 3), {}, "3 people: 14 rows give only 9 train puzzles"),
    "test": (([3], 1, 13), {}, "14 rows give only 0 train puzzles"),
    "no rows": (([3, 6], 1, 1), {}, "6 people: 0 rows"),
    "all for testing": (([3], 15, 20), {"at_most": True}, "14 rows give only 0 train puzzles"),
    "nothing but leaks": (([3], 15, 5), {"leak": True, "at_most": True}, "28 rows give only 0 train puzzles"),
    "no number to split by": (([3], 5, None), {}, "test is missing; say how many"),
}


@pytest.mark.parametrize("name", TOO_FEW)
def test_too_few_puzzles_are_an_error_that_counts_them(name):
    asked, options, reason = TOO_FEW[name]
    puzzles = list(generate_puzzles(3, 12, seed=4))
    every = [*puzzles, *puzzles[:2]]
    with pytest.raises(ValueError, match=reason):
        choose(*asked, every, every if "leak" in options else None, at_most=options.get("at_most", False))


def test_upper_bounds_take_less_where_there_is_less():
    sizes = ((3, 12), (4, 30), (5, 12))
    every = [puzzle for n_people, count in sizes for puzzle in generate_puzzles(n_people, count, seed=1)]
    chosen, _ = choose([4, 3], 15, 5, every, at_most=True)
    assert sizes_of(chosen) == [[4] * 15 + [3] * 7, [4] * 5 + [3] * 5]


def test_a_directory_stands_for_its_files_or_for_those_of_train_and_test(tmp_path):
    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("")
        return [tmp_path / name for name in names]

    b, a = make("all/b.jsonl", "all/a.jsonl.gz")
    make("all/notes.txt", "all/.hidden.jsonl")
    hub_train, hub_test = make("hub/train/3.jsonl", "hub/test/4.jsonl")
    assert source_files(tmp_path / "all") == {"train": [a, b], "test": []}
    assert source_files(tmp_path / "hub") == {"train": [hub_train], "test": [hub_test]}
    assert source_files(b) == {"train": [b], "test": []}
    with pytest.raises(ValueError, match="has no data files"):
        source_files(tmp_path)
