"""Puzzles from rows: what a row must have, and which puzzles are chosen."""

import random
import re

import pytest

from tests.tasks.knights_and_knaves.kk_oracle import public_row, renamed, smallest_renaming
from verl_trgrpo.data.sources import Record, RowErrors
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle, choose_names, generate_puzzles, quiz_text
from verl_trgrpo.tasks.knights_and_knaves.sources import (
    Size,
    from_generator,
    from_records,
    puzzle_from_row,
    read_puzzles,
    reasoning_from_row,
    source_files,
)

PUZZLES = list(generate_puzzles(3, 6, seed=21))


def row(**changes):
    return public_row(PUZZLES[0]) | changes


def records(rows, name="kk.jsonl"):
    return [Record(row if isinstance(row, dict) else public_row(row), name, k) for k, row in enumerate(rows, start=1)]


def test_rows_become_the_puzzles_they_describe_and_only_four_columns_are_needed():
    few = [
        {name: public_row(puzzle)[name] for name in ("quiz", "names", "solution", "statements")} for puzzle in PUZZLES
    ]
    for rows in (PUZZLES, few):
        sourced = list(read_puzzles(records(rows), RowErrors()))
        assert [s.puzzle for s in sourced] == PUZZLES
        assert [s.origin for s in sourced] == [f"kk.jsonl#{number}" for number in range(1, 7)]


def test_names_in_other_scripts_are_welcome():
    puzzle = puzzle_from_row(
        {
            "quiz": "You meet Łukasz and 美咲.",
            "names": ["Łukasz", "美咲"],
            "solution": [False, True],
            "statements": "(('and', ('lying', 0), ('lying', 1)), ('telling-truth', 1))",
        },
        7,
    )
    assert (puzzle.names, puzzle.solution, puzzle.index) == (("Łukasz", "美咲"), (False, True), 7)


NAMES = row()["names"]


FLIPPED = [not value for value in row()["solution"]]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({}, "missing quiz, names, solution, statements; found nothing"),
        ({"quiz": "Who?"}, "missing names, solution, statements; found quiz"),
        (row(solution=None), "missing solution"),
        (row(quiz=" "), "expected the puzzle's text"),
        (row(quiz=7), "expected the puzzle's text"),
        (row(statements="(('lying', 1)"), "not a Python literal"),
        (row(statements=[["lying", 1]]), "type list"),
        (row(statements="(('telling-truth', 0),)"), "1 people"),
        (row(statements="(('telling-truth', 0), ('telling-truth', 1), ('telling-truth', 2))"), "8 solutions"),
        (row(statements="(('lying', 0), ('telling-truth', 1), ('telling-truth', 2))"), "0 solutions"),
        (row(solution=FLIPPED), "but the statements give"),
        (row(solution=row()["solution"][:2]), "but the statements give"),
        (row(solution="True"), "but the statements give"),
        (row(solution_text_format="(1) Nobody is a knight"), "solution_text_format is"),
        (row(names=NAMES[:2]), "expected a list of 3 texts"),
        (row(names="Zoey"), "expected a list of 3 texts"),
        (row(names=[*NAMES[:2], 3]), "expected a list of 3 texts"),
        (row(names=[NAMES[0], NAMES[0], NAMES[2]]), "differ in more than upper and lower case"),
        (row(names=[NAMES[0], NAMES[0].upper(), NAMES[2]]), "differ in more than upper and lower case"),
        (row(names=["Nobody", *NAMES[1:]]), "does not mention Nobody"),
        (row(names=[NAMES[0][:-1], *NAMES[1:]]), f"does not mention {NAMES[0][:-1]}"),
        (row(names=["", *NAMES[1:]]), "are empty or contain"),
        (row(names=[NAMES[0] + "\n", *NAMES[1:]]), "are empty or contain"),
        (row(names=["(1) " + NAMES[0], *NAMES[1:]]), "are empty or contain"),
        (row(knight_knave={"knight": "saint", "knave": "sinner"}), "roles are 'saint' and 'sinner'"),
    ],
)
def test_a_bad_row_is_named_with_file_number_and_reason(bad, reason):
    errors = RowErrors()
    assert len(list(read_puzzles(records([*PUZZLES[1:3], bad, PUZZLES[3]]), errors))) == 3
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        errors.finish()
    assert "- kk.jsonl, row 3: " in str(caught.value)


def test_the_reasoning_of_a_row_is_its_head_its_steps_and_its_foot():
    rows = records([row(cot_repeat_steps=["First. ", "Second."])])
    (sourced,) = read_puzzles(rows, RowErrors(), with_reasoning=True)
    assert sourced.reasoning == "Let's think step by step.\nFirst.\nSecond.\nDone."
    assert next(read_puzzles(rows, RowErrors())).reasoning is None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({name: row()[name] for name in ("quiz", "cot_head")}, "missing cot_repeat_steps, cot_foot"),
        (row(cot_foot=None), "missing cot_foot"),
        (row(cot_repeat_steps="One step."), "list of texts"),
        (row(cot_repeat_steps=[1]), "list of texts"),
        (row(cot_head=["Done."]), "list of texts"),
        (row(cot_foot="</think>"), "contains </think>"),
        (row(cot_repeat_steps=["<|im_end|>"]), "contains <|"),
        (row(cot_head="", cot_repeat_steps=[], cot_foot=" "), "is empty"),
    ],
)
def test_a_reasoning_that_cannot_be_used_is_refused(bad, reason):
    with pytest.raises(ValueError) as caught:
        reasoning_from_row(bad)
    assert reason in str(caught.value)


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


def choose(people, train, test, rows, test_rows=None, **options):
    sizes = [Size(n_people, train, test) for n_people in people]
    test_records = None if test_rows is None else records(test_rows, "test.jsonl")
    return list(from_records(sizes, records(rows), test_records, RowErrors(), **options))


def check_all_different(selections):
    found = [key for s in selections for key in [*identities(s.train), *identities(s.test)]]
    assert len(set(found)) == len(found)


def test_the_generator_gives_exactly_what_is_asked_for_without_overlap():
    selections = list(from_generator([Size(n, 60, 35) for n in (2, 3, 4)], seed=3))
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


def test_one_source_is_split_without_overlap_although_it_repeats_puzzles():
    puzzles = list(generate_puzzles(3, 30, seed=4))
    repeats = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:8])]
    (selection,) = choose([3], 18, 10, [*puzzles, *repeats])
    assert (len(selection.train), len(selection.test)) == (18, 10)
    dropped = {"repeats a puzzle up to names and order": 8, "not asked for": 2}
    assert counts_of(selection) == {"3ppl": (38, 28, dropped)}
    check_all_different([selection])
    by_quiz = {puzzle.quiz: index for index, puzzle in enumerate([*puzzles, *repeats])}
    for sourced in [*selection.train, *selection.test]:
        assert sourced.origin == f"kk.jsonl#{by_quiz[sourced.puzzle.quiz] + 1}"


def test_the_split_depends_on_the_seed():
    puzzles = list(generate_puzzles(3, 40, seed=4))
    (first,), (again,), (other,) = (choose([3], 10, 20, puzzles, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert set(identities(first.test)) != set(identities(other.test))


def test_train_rows_give_up_what_the_test_rows_have():
    puzzles = list(generate_puzzles(4, 30, seed=4))
    leaks = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:10])]
    (selection,) = choose([4], 20, 6, [*leaks, *puzzles[10:]], puzzles[:10])
    assert counts_of(selection) == {
        "4ppl train": (30, 20, {"equals a test puzzle up to names and order": 10}),
        "4ppl test": (10, 6, {"not asked for": 4}),
    }
    assert all(sourced.origin.startswith("test.jsonl#") for sourced in selection.test)
    # Also the four test puzzles that were not asked for must not be trained on.
    assert set(identities(selection.train)) == {smallest_renaming(puzzle.statements) for puzzle in puzzles[10:]}


def test_without_counts_everything_is_taken_that_is_no_repeat():
    puzzles = list(generate_puzzles(4, 30, seed=4))
    leaks = [same_in_other_words(puzzle, seed) for seed, puzzle in enumerate(puzzles[:4])]
    train = [*leaks, *puzzles[10:], same_in_other_words(puzzles[20], 2)]
    (selection,) = choose([4], None, None, train, [*puzzles[:10], same_in_other_words(puzzles[3], 1)])
    leak, repeat = "equals a test puzzle up to names and order", "repeats a puzzle up to names and order"
    assert counts_of(selection) == {
        "4ppl train": (25, 20, {leak: 4, repeat: 1}),
        "4ppl test": (11, 10, {repeat: 1}),
    }
    check_all_different([selection])


def test_sizes_that_nobody_asked_for_are_counted():
    rows = [puzzle for n_people in (3, 4, 5) for puzzle in generate_puzzles(n_people, 12, seed=n_people)]
    selections = choose([5, 3], 6, 4, rows)
    assert [(s.n_people, len(s.train), len(s.test)) for s in selections] == [(5, 6, 4), (3, 6, 4), (4, 0, 0)]
    assert counts_of(selections[2]) == {"4ppl": (12, 0, {"this number of people not asked for": 12})}
    assert {len(sourced.puzzle.names) for sourced in selections[0].train} == {5}


TOO_FEW = {
    "train": (
        ([3], 10, 3),
        {},
        "3 people: asked for 10 train and 3 test puzzles, but 14 rows give only 9 train and 3 test",
    ),
    "test": (([3], 1, 13), {}, "14 rows give only 0 train and 12 test"),
    "no rows": (([3, 6], 1, 1), {}, "6 people: asked for 1 train and 1 test puzzles, but 0 rows"),
    "all for testing": (([3], 15, 20), {"at_most": True}, "14 rows give only 0 train and 12 test"),
    "all rows for testing": (([3], 15, None), {"at_most": True}, "14 rows give only 0 train and 12 test"),
    "nothing but leaks": (([3], 15, 5), {"test_rows": [0], "at_most": True}, "28 rows give only 0 train and 5 test"),
}


@pytest.mark.parametrize("name", TOO_FEW)
def test_too_few_puzzles_are_an_error_that_counts_them(name):
    asked, options, reason = TOO_FEW[name]
    puzzles = list(generate_puzzles(3, 12, seed=4))
    rows = [*puzzles, *puzzles[:2]]
    if "test_rows" in options:
        options = options | {"test_rows": rows}
    with pytest.raises(ValueError, match=reason):
        choose(*asked, rows, **options)


def test_upper_bounds_cut_what_there_is_and_take_less_where_there_is_less():
    rows = [puzzle for n_people, count in ((3, 12), (4, 30)) for puzzle in generate_puzzles(n_people, count, seed=1)]
    selections = choose([3, 4], 15, 5, rows, at_most=True)
    assert [(len(s.train), len(s.test)) for s in selections] == [(7, 5), (15, 5)]


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
