"""Rows of Knights-and-Knaves data sets: their content, options, and which puzzles are chosen from which rows."""

import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tasks.built_files import manifest_of, rows_of
from tests.tasks.knights_and_knaves.kk_oracle import public_row, renamed, smallest_renaming, solutions, write_jsonl
from verl_trgrpo.data.sources import Record
from verl_trgrpo.tasks.knights_and_knaves.logic import parse_statements
from verl_trgrpo.tasks.knights_and_knaves.puzzles import (
    INSTRUCTION,
    Puzzle,
    choose_names,
    generate_puzzles,
    kk_schema,
    puzzle_row,
    quiz_text,
)
from verl_trgrpo.tasks.knights_and_knaves.rows import (
    HUB_DATASET,
    LEAKS,
    PUZZLE_COLUMNS,
    REPEATS,
    KkOptions,
    build_kk,
    choose_puzzles,
    find_puzzle_files,
    puzzle_from_row,
)


def built(out, *, people=(3,), train=6, test=3, **options):
    """Build into `out`; return the rows by split, and the manifest."""
    build_kk(KkOptions(out=out, people=people, train=train, test=test, **options))
    return {split: rows_of(out / f"{split}.parquet") for split in ("train", "test")}, manifest_of(out)


def keys_of(rows):
    return [smallest_renaming(parse_statements(row["extra_info"]["statements"])) for row in rows]


def sizes_in(rows):
    return Counter(row["extra_info"]["n_people"] for row in rows)


def test_rows_are_what_verl_reads_and_right_and_no_puzzle_occurs_twice(tmp_path):
    data, manifest = built(tmp_path / "kk", people=(2, 3, 5), train=30, test=12, seed=5)
    assert sizes_in(data["train"]) == {2: 30, 3: 30, 5: 30} and sizes_in(data["test"]) == {2: 12, 3: 12, 5: 12}
    assert len(sizes_in(data["train"][:45])) == 3, "sizes must be interleaved"
    for split, rows in data.items():
        for position, row in enumerate(rows):
            info = row["extra_info"]
            (solution,) = solutions(parse_statements(info["statements"]))
            roles = ["knight" if is_knight else "knave" for is_knight in solution]
            said = [f"({k}) {n} is a {r}" for k, (n, r) in enumerate(zip(info["names"], roles, strict=True), start=1)]
            assert row["reward_model"] == {"style": "rule", "ground_truth": "\n".join(said)}
            (message,) = row["prompt"]
            assert message["role"] == "user" and message["content"].startswith(INSTRUCTION)
            assert all(name in message["content"] for name in info["names"])
            assert (row["data_source"], row["ability"]) == (f"kk_{info['n_people']}ppl", "logic")
            assert (info["index"], info["split"]) == (position, split)
            assert info["origin"].startswith(f"generated/{info['n_people']}ppl/seed5#")
    keys = keys_of([*data["train"], *data["test"]])
    assert len(keys) == len(set(keys)) == 3 * 42
    assert manifest["files"]["train.parquet"]["rows"] == 90


def test_a_terse_row_asks_in_one_line_per_person_and_keeps_the_fields_that_are_asked_for():
    puzzle = Puzzle("", ("Zoey", "Oliver"), (("<=>", ("lying", 1), ("telling-truth", 0)), ("lying", 0)), (False, True))
    row = puzzle_row(puzzle, terse=True, extra_info=["statements"])
    assert row["prompt"] == [
        {"role": "user", "content": "(1) Zoey: (2) is a knave iff (1) is a knight\n(2) Oliver: (1) is a knave"}
    ]
    assert row["extra_info"] == {"statements": repr(puzzle.statements)}
    assert row["reward_model"]["ground_truth"] == "(1) Zoey is a knave\n(2) Oliver is a knight"
    assert kk_schema(["statements"]).field("extra_info").type.names == ["index", "split", "statements"]


def test_another_number_of_train_puzzles_leaves_the_test_puzzles_as_they_are(tmp_path):
    first, _ = built(tmp_path / "a", people=(2, 3), train=3, test=4)
    more, _ = built(tmp_path / "b", people=(2, 3), train=5, test=4)
    assert more["test"] == first["test"]


COUNTS = {"people": (3,), "train": 6, "test": 3}
PROBLEMS = {
    "one person": ({**COUNTS, "people": (1,)}, ["people=[1]", "2 to 8"]),
    "no train puzzles": ({**COUNTS, "train": 0}, ["train=0", "[1, inf)"]),
    "generated puzzles without counts": ({"people": (3,)}, ["train is missing", "test is missing"]),
    "paper and sizes": ({**COUNTS, "paper": True}, ["paper", "people, train, test"]),
    "a size twice": ({**COUNTS, "people": (3, 3)}, ["people=[3, 3]"]),
    "more than exist": ({"people": (2, 3, 5), "train": 90, "test": 6}, ["people=2", "96", "95"]),
    "more than exist of two sizes": ({"people": (2, 3), "train": 15_000, "test": 89}, ["95", "people=3", "15088"]),
    "several at once": (
        {"people": (1,), "train": 0, "test": 3},
        ["2 problems", "people=[1]", "train=0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_invalid_options_are_refused_at_once_with_all_reasons(name):
    options, reasons = PROBLEMS[name]
    with pytest.raises(ValueError) as caught:
        KkOptions(out=Path("out"), **options)
    assert all(reason in str(caught.value) for reason in reasons), caught.value


def test_all_puzzles_that_exist_can_be_asked_for_and_files_may_hold_fewer():
    KkOptions(out=Path("out"), people=(2,), train=90, test=5)
    KkOptions(out=Path("out"), people=(2,), train=1000, test=100, source="hf")


HUB_CARD = """---
configs:
  - config_name: train
    data_files:
      - split: 2ppl
        path: [train/people2_num200.jsonl]
      - split: 3ppl
        path: [train/people3_num1000.jsonl]
  - config_name: test
    data_files:
      - split: 2ppl
        path: [test/people2_num100.jsonl]
      - split: 3ppl
        path: [test/people3_num100.jsonl]
---
"""


@pytest.fixture
def hub(tmp_path):
    """A directory laid out like the public data set; the last four train puzzles of each size are test puzzles, too."""
    for n_people, train, test in ((2, "people2_num200", "people2_num100"), (3, "people3_num1000", "people3_num100")):
        puzzles = list(generate_puzzles(n_people, 20, 1))
        write_jsonl(tmp_path / HUB_DATASET / "train" / f"{train}.jsonl", puzzles[:14])
        write_jsonl(tmp_path / HUB_DATASET / "test" / f"{test}.jsonl", puzzles[10:])
    (tmp_path / HUB_DATASET / "README.md").write_text(HUB_CARD)
    return tmp_path / HUB_DATASET


def test_a_local_copy_of_the_public_data_set(tmp_path, datasets_cache, hub, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the library reads a directory as it reads the hub
    options = {"people": (2, 3), "source": "hf"}
    data, manifest = built(tmp_path / "out", train=10, test=5, **options)
    dropped = {"equals a test puzzle up to names and order": 4, "not asked for": 5}
    assert manifest["counts"]["3ppl"] == {"read": 24, "kept": 15, "dropped": dropped}
    quizzes = {n_people: [puzzle.quiz for puzzle in generate_puzzles(n_people, 20, 1)] for n_people in (2, 3)}
    for split, first, allowed in (("train", 0, range(10)), ("test", 10, range(10, 20))):
        for row in data[split]:
            n_people = row["extra_info"]["n_people"]
            position = quizzes[n_people].index(row["prompt"][0]["content"].removeprefix(INSTRUCTION).strip())
            assert position in allowed
            assert row["extra_info"]["origin"] == f"{HUB_DATASET}/{split}/{n_people}ppl#{position - first + 1}"
    # All that there is of both; more is an error.
    every, _ = built(tmp_path / "all", train=None, test=None, **options)
    assert (len(every["train"]), len(every["test"])) == (20, 20)
    with pytest.raises(ValueError, match="24 rows give only 10 train puzzles"):
        built(tmp_path / "more", train=11, test=5, **options)
    # The same files as a directory.
    files, _ = built(tmp_path / "files", people=(2, 3), train=None, test=None, source=str(hub))
    assert [sorted(keys_of(rows)) for rows in files.values()] == [sorted(keys_of(rows)) for rows in every.values()]


PUZZLES = list(generate_puzzles(3, 6, seed=21))


def row(**changes):
    return public_row(PUZZLES[0]) | changes


def records(puzzles, name="kk.jsonl"):
    return [Record(public_row(puzzle), name, k) for k, puzzle in enumerate(puzzles, start=1)]


def test_rows_become_the_puzzles_they_describe_and_only_four_columns_are_needed():
    for puzzle in PUZZLES:
        full = public_row(puzzle)
        for columns in (full, {name: full[name] for name in PUZZLE_COLUMNS}):
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
        (row(quiz=7), "mentions"),
        (row(statements="(('lying', 1)"), "not a Python literal"),
        (row(statements=[["lying", 1]]), "statements="),
        (row(statements="(('telling-truth', 0), ('telling-truth', 1), ('telling-truth', 2))"), "not exactly one"),
        (row(statements="(('lying', 0), ('telling-truth', 1), ('telling-truth', 2))"), "not exactly one"),
        (row(solution=FLIPPED), "but the statements have"),
        (row(solution=row()["solution"][:2]), "but the statements have"),
        (row(solution_text_format="(1) Nobody is a saint"), "solution_text_format="),
        (row(names=NAMES[:2]), "list of 3 strings"),
        (row(names="Zoey"), "list of 3 strings"),
        (row(names=[*NAMES[:2], 3]), "list of 3 strings"),
        (row(names=["Nobody", *NAMES[1:]]), "mentions Nobody"),
        (row(names=[NAMES[0][:-1], *NAMES[1:]]), "mentions"),
        (with_first_name(NAMES[1].upper()), "ground truth"),
        (with_first_name(""), "ground truth"),
        (with_first_name("And Ava"), "ground truth"),
        (with_first_name("Ava</answer>x"), "full marks"),
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
    chosen, counts = choose_puzzles(people, records(puzzles), test_records, train=train, test=test, **options)
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
    "no number to split by": (([3], 5, None), {}, "test is missing"),
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
    extra, hub_other = make("hub/extra.json", "hub/perturbed/train/5.jsonl")
    found = find_puzzle_files(tmp_path / "all", tmp_path)
    assert found.parts == {"train": [a, b]} and [*found.left_out] == ["notes.txt"]
    found = find_puzzle_files(tmp_path / "hub", tmp_path)
    assert found.parts == {"train": [extra, hub_train], "test": [hub_test]}
    assert [*found.left_out] == [str(hub_other.relative_to(tmp_path / "hub"))]
    assert find_puzzle_files(b, tmp_path).parts == {"train": [b]}
    with pytest.raises(ValueError, match="has no data files"):
        find_puzzle_files(tmp_path, tmp_path / "out")
