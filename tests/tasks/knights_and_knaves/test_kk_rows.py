import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tasks.knights_and_knaves.kk_oracle import public_row
from verl_trgrpo.data.sources import RowErrors, read_records
from verl_trgrpo.tasks.knights_and_knaves.puzzles import generate_puzzles
from verl_trgrpo.tasks.knights_and_knaves.rows import puzzle_from_row, read_puzzles, reasoning_from_row

PUZZLES = list(generate_puzzles(3, 6, seed=21))


def row(**changes):
    return public_row(PUZZLES[0]) | changes


def write(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path, **options):
    errors = RowErrors()
    sourced = list(read_puzzles(read_records(path, errors), errors, **options))
    errors.finish()
    return sourced


def puzzles_in(path):
    return [sourced.puzzle for sourced in read(path)]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_rows_become_the_puzzles_they_describe(tmp_path, suffix):
    path = write(tmp_path / f"kk{suffix}", [public_row(puzzle) for puzzle in PUZZLES])
    assert puzzles_in(path) == PUZZLES
    assert [sourced.origin for sourced in read(path)] == [f"kk{suffix}#{number}" for number in range(1, 7)]


def test_only_four_columns_are_needed(tmp_path):
    few = [
        {name: public_row(puzzle)[name] for name in ("quiz", "names", "solution", "statements")} for puzzle in PUZZLES
    ]
    assert puzzles_in(write(tmp_path / "kk.parquet", few)) == PUZZLES


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
        (["not", "an", "object"], "type list; expected an object"),
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
@pytest.mark.parametrize("number", [1, 3])
def test_a_bad_row_is_named_with_file_number_and_reason(tmp_path, bad, reason, number):
    rows = [public_row(puzzle) for puzzle in PUZZLES[1:4]]
    rows[number - 1] = bad
    path = write(tmp_path / "kk.jsonl", rows)
    with pytest.raises(ValueError) as caught:
        read(path)
    assert f"- kk.jsonl, row {number}: " in str(caught.value)
    assert reason in str(caught.value)


def test_malformed_rows_are_skipped_and_listed_on_request(tmp_path):
    good = public_row(PUZZLES[0])
    path = write(tmp_path / "kk.jsonl", [row(solution=FLIPPED), good, {"quiz": "Who?"}])
    errors = RowErrors(skip=True)
    (sourced,) = read_puzzles(read_records(path, errors), errors)
    assert (sourced.origin, sourced.puzzle.index) == ("kk.jsonl#2", 1)
    assert [problem.partition(": ")[0] for problem in errors.problems] == ["kk.jsonl, row 1", "kk.jsonl, row 3"]


def test_empty_lines_count_in_row_numbers_and_indices(tmp_path):
    path = tmp_path / "kk.jsonl"
    path.write_text(f"\n{json.dumps(row())}\n\n{json.dumps(row(solution=FLIPPED))}")
    with pytest.raises(ValueError, match=r"kk\.jsonl, row 4: solution"):
        read(path)
    path.write_text(f"\n{json.dumps(row())}\n\n")
    assert [(sourced.origin, sourced.puzzle.index) for sourced in read(path)] == [("kk.jsonl#2", 1)]


def test_the_reasoning_of_a_row_is_its_head_its_steps_and_its_foot(tmp_path):
    path = write(tmp_path / "kk.parquet", [row(cot_repeat_steps=["First. ", "Second."])])
    (sourced,) = read(path, with_reasoning=True)
    assert sourced.reasoning == "Let's think step by step.\nFirst.\nSecond.\nDone."
    assert read(path)[0].reasoning is None


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
