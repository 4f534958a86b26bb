import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kk_oracle import public_row

from verl_trgrpo.data.kk_puzzles import generate_puzzles
from verl_trgrpo.data.kk_rows import puzzle_from_row, read_puzzles

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


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_rows_become_the_puzzles_they_describe(tmp_path, suffix):
    path = write(tmp_path / f"kk{suffix}", [public_row(puzzle) for puzzle in PUZZLES])
    assert read_puzzles(path) == PUZZLES


def test_only_four_columns_are_needed(tmp_path):
    few = [
        {name: public_row(puzzle)[name] for name in ("quiz", "names", "solution", "statements")} for puzzle in PUZZLES
    ]
    assert read_puzzles(write(tmp_path / "kk.parquet", few)) == PUZZLES


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
        read_puzzles(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: row {number}: ")
    assert reason in message
    assert message.endswith("Correct or remove these rows")


def test_empty_lines_count_in_row_numbers_and_indices(tmp_path):
    path = tmp_path / "kk.jsonl"
    path.write_text(f"\n{json.dumps(row())}\n\n{json.dumps(row(solution=FLIPPED))}")
    with pytest.raises(ValueError, match=r"kk\.jsonl: row 4: solution"):
        read_puzzles(path)
    path.write_text(f"\n{json.dumps(row())}\n\n")
    assert [puzzle.index for puzzle in read_puzzles(path)] == [1]


def test_of_many_bad_rows_the_first_five_are_named(tmp_path):
    path = write(tmp_path / "kk.json", [row(solution=FLIPPED)] * 9)
    with pytest.raises(ValueError, match=r"row 5: .*; and 4 more bad rows") as caught:
        read_puzzles(path)
    assert "row 6" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("kk.jsonl", b"", "has no rows"),
        ("kk.jsonl", b"\n\n", "has no rows"),
        ("kk.json", b"", "has no rows"),
        ("kk.json", b"[]", "has no rows"),
        ("kk.jsonl", b'{"quiz": ', "row 1 is not JSON"),
        ("kk.jsonl", b"[" * 200_000, "is not JSON"),
        ("kk.json", b"{}\n{}", "for one object per line name it .jsonl"),
        ("kk.json", b'{"quiz": 1}', "holds a dict"),
        ("kk.jsonl", b"\xff\xfe", "not UTF-8"),
        ("kk.parquet", b"PAR1 but not really", "not a parquet file"),
        ("kk.parquet", b"", "not a parquet file"),
        ("kk.csv", b"quiz,names\n", "expected a file that ends with .jsonl, .json, .parquet"),
        ("kk", b"", "expected a file that ends with"),
        ("kk.jsonl", None, "cannot read"),
        ("kk.parquet", None, "cannot read"),
    ],
)
def test_an_unreadable_file_is_named_with_reason(tmp_path, name, content, reason):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_puzzles(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_a_directory_is_not_a_file(tmp_path):
    (tmp_path / "kk.jsonl").mkdir()
    with pytest.raises(ValueError, match="cannot read"):
        read_puzzles(tmp_path / "kk.jsonl")


def test_missing_parquet_columns_are_listed(tmp_path):
    path = write(tmp_path / "kk.parquet", [{"quiz": "Who?", "answer": "me"}])
    with pytest.raises(ValueError, match="lacks the columns names, solution, statements; it has quiz, answer"):
        read_puzzles(path)


def test_an_empty_parquet_file_is_an_error(tmp_path):
    schema = pa.Table.from_pylist([row()]).schema
    pq.write_table(pa.Table.from_pylist([], schema=schema), tmp_path / "kk.parquet")
    with pytest.raises(ValueError, match="has no rows"):
        read_puzzles(tmp_path / "kk.parquet")
