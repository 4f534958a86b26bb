"""Rows in the public format of Knights-and-Knaves puzzles, checked one by one.

The format is that of `K-and-K/knights-and-knaves`: quiz, names, knight_knave, solution, solution_text,
solution_text_format, cot_head, cot_repeat_steps, cot_foot, statements (a Python literal as text), index. Only quiz,
names, solution and statements are needed; knight_knave and solution_text_format are checked where present. The columns
that begin with cot are a worked solution in words; they are needed where a reasoning is asked for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verl_trgrpo.data.sources import Record, RowErrors
from verl_trgrpo.tasks.knights_and_knaves.logic import parse_statements, solve
from verl_trgrpo.tasks.knights_and_knaves.prompts import format_solution
from verl_trgrpo.tasks.knights_and_knaves.puzzles import MAX_PEOPLE, MIN_PEOPLE, Puzzle

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
