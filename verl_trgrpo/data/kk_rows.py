"""Rows in the public format of Knights-and-Knaves puzzles, read from files and checked one by one.

The format is that of `K-and-K/knights-and-knaves`: quiz, names, knight_knave, solution, solution_text,
solution_text_format, cot_head, cot_repeat_steps, cot_foot, statements (a Python literal as text), index. Only quiz,
names, solution and statements are needed; knight_knave and solution_text_format are checked where present.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_trgrpo.data.kk_logic import parse_statements, solve
from verl_trgrpo.data.kk_prompts import format_solution
from verl_trgrpo.data.kk_puzzles import MAX_PEOPLE, MIN_PEOPLE, Puzzle

REQUIRED = ("quiz", "names", "solution", "statements")

FILE_TYPES = (".jsonl", ".json", ".parquet")

# These would make an answer line ambiguous or look like a tag.
_FORBIDDEN_IN_NAMES = '()[]<>\n\r\t:,"'

MAX_REPORTED = 5


def read_puzzles(path: Path) -> list[Puzzle]:
    """Return the puzzles of a ``.jsonl``, ``.json`` (a list of rows) or ``.parquet`` file.

    Raises ValueError, naming file and rows, for a file that is missing, empty or not of its type, and for bad rows.
    """
    return check_rows(_read_rows(path), str(path))


def check_rows(rows: Iterable[tuple[int, Any]], where: str) -> list[Puzzle]:
    """Return numbered `rows` as puzzles, or raise ValueError for the first few bad ones; `where` names their origin.

    Rows count from 1, and in ``.jsonl`` files empty lines count too; a puzzle's ``index`` is its number less one.
    """
    puzzles, problems = [], []
    for number, row in rows:
        try:
            puzzles.append(puzzle_from_row(row, number - 1))
        except ValueError as error:
            problems.append(f"row {number}: {error}")
    if problems:
        rest = f"; and {len(problems) - MAX_REPORTED} more bad rows" if len(problems) > MAX_REPORTED else ""
        raise ValueError(f"{where}: {'; '.join(problems[:MAX_REPORTED])}{rest}. Correct or remove these rows")
    if not puzzles:
        raise ValueError(f"{where} has no rows; give a source with puzzles in it")
    return puzzles


def puzzle_from_row(row: Any, index: int) -> Puzzle:
    """Return the puzzle of one row of the public format.

    Raises ValueError when columns are missing, the statements do not parse or have not exactly one solution, the stated
    solution is another one, or the names are not distinct, unfit for an answer or not all in the quiz.
    """
    if not isinstance(row, Mapping):
        raise ValueError(f"it is of type {type(row).__name__}; expected an object with {', '.join(REQUIRED)}")
    missing = [name for name in REQUIRED if row.get(name) is None]
    if missing:
        raise ValueError(f"missing {', '.join(missing)}; found {', '.join(map(str, row)) or 'nothing'}")
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


def _read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix not in FILE_TYPES:
        raise ValueError(f"{path} is of an unknown type; expected a file that ends with {', '.join(FILE_TYPES)}")
    try:
        if path.suffix == ".parquet":
            return enumerate(_read_parquet(path), start=1)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from error
    return enumerate(_read_json(path, text), start=1) if path.suffix == ".json" else _read_json_lines(path, text)


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a parquet file ({error}); check the path") from error
    missing = [name for name in REQUIRED if name not in table.column_names]
    if missing:
        raise ValueError(
            f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(table.column_names)}; give a file in the "
            "public Knights-and-Knaves format"
        )
    return table.to_pylist()


def _read_json(path: Path, text: str) -> list[Any]:
    try:
        rows = json.loads(text) if text.strip() else []
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); for one object per line name it .jsonl") from error
    if not isinstance(rows, list):
        raise ValueError(f"{path} holds a {type(rows).__name__}; expected a list of rows")
    return rows


def _read_json_lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    # Only "\n" ends a line: a JSON text may contain the other characters at which str.splitlines breaks.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, row {number} is not JSON ({error}); correct or remove it") from error
            yield number, row
