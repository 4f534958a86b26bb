"""Problems of public data with their answers: from rows in the usual layouts, and which of them repeat."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import takewhile
from typing import Any

from verl_trgrpo.common.foreign import NotJSONError, parse_json
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import chat_tags
from verl_trgrpo.data.sources import ANSWER_COLUMNS, PROBLEM_COLUMNS, LeftOutRowError, Record, is_empty, plain_name
from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.judge.golds import gold_text, is_number, listed, written_answers

# Reasons for dropping rows, in the manifest.
REPEATED = "repeats a problem with the same answer"
CONTRADICTED = "the same problem with another answer"
WITHOUT_ANSWER = "the row has no answer"

# Text that a question refers to, where it has a column of its own; and what it lets choose from, or else columns A, B, C, ...
_ABOVE = ("context", "passage", "body")
_CHOICES = ("choices", "options")
_PICTURE = re.compile(r"(image|picture|figure|diagram|img|video|audio)s?[0-9]*")  # image1
_LETTERS = "ABCDEFGHIJ"
_LABEL = re.compile(r"\(?([A-Ja-j])\s*[).:]\s*")  # (B) or B.
_GSM8K_ANSWER = re.compile(r"(?:^|\n)####([^\n]*)$")  # #### 72


class OutOfChoicesError(ValueError):
    """An answer is the number of the last choice if these are counted from 1; those of other rows then name the wrong choice."""


@dataclass(frozen=True)
class Problem:
    """A problem, its acceptable answers, its origin, and the system message that its chat begins with."""

    text: str
    answers: list[str]
    origin: str = ""
    system: str = ""
    ends_in_choices: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """Return the text with each run of white space as one space; repetitions of a problem share it."""
        return " ".join(self.text.split())


@dataclass(frozen=True)
class ProblemColumns:
    """Columns to read in place of the usual ones.

    Args:
        problem: column with the problems.
        answer: column with the answers.
        choices: columns with one choice each, or the one that has all.
        context: column with the text that a problem is about.
    """

    problem: str = ""
    answer: str = ""
    choices: tuple[str, ...] = ()
    context: str = ""


def problem_of(record: Record, columns: ProblemColumns = ProblemColumns()) -> Problem:
    """Return the problem of a row, with its answer, from the named columns or the first of the usual ones that says something.

    What the question is about may stand apart from it, as ASDiv's body, and comes first; choices come last, and the answer is
    then a letter. A prompt may be a chat with one message of the user, before which a system message may stand. An answer of
    GSM8K is what follows the last ``####`` of the answer or solution.

    Raises:
        LeftOutRowError: the row has no answer.
        ValueError: the row cannot be used.
    """
    row = record.row
    system, problem = _read_chat(
        _first(row, (columns.problem,) if columns.problem else PROBLEM_COLUMNS, "--problem-column")
    )
    if not isinstance(problem, str) or not problem.strip():
        shown = "blank" if is_empty(problem) else shorten(problem)
        raise ValueError(f"the problem is {shown}; expected a string")
    if columns.context:
        above = [(columns.context, _first(row, (columns.context,), "--context-column"))]
    else:
        above = [(name, row.get(name)) for name in _ABOVE if plain_name(name) != plain_name(columns.problem)]
    if others := [name for name, value in above if not is_empty(value) and not isinstance(value, str)]:
        raise ValueError(f"{', '.join(others)} is not a string")
    if pictures := [name for name in row if _PICTURE.fullmatch(plain_name(name)) and not is_empty(row.get(name))]:
        raise ValueError(f"{', '.join(pictures)} is not text, and a prompt has nothing else")
    parts = [*((value or "").strip() for _, value in above), problem.strip()]
    text = ("\n\n" if columns.context else " ").join(filter(None, parts))
    choices = _choices_of(row, columns)
    if not all(re.search(rf"\b{label}\s*[).:]\s*{re.escape(choice)}", text) for label, choice in choices.items()):
        text = "\n".join([text, *(f"{label}. {choice}" for label, choice in choices.items())])
    if tags := chat_tags(f"{system}{text}"):
        raise ValueError(f"the problem contains {', '.join(tags)}; the chat template adds its own tags")
    answer = _answer_of(row, columns.answer)
    if is_empty(answer):
        raise LeftOutRowError(WITHOUT_ANSWER)
    answers = [_label_of(answer, choices)] if choices else read_answers(answer)
    return Problem(text, answers, record.origin, system, bool(choices))


def _first(row: Mapping[str, Any], names: Sequence[str], option: str) -> Any:
    """Return the first value that says something under one of the names, None if none does; `option` names another column.

    Raises:
        ValueError: the row has none of the columns.
    """
    for name in names:
        if not is_empty(value := row.get(name)):
            return value
    if {*map(plain_name, names)} & {*map(plain_name, row)}:
        return None
    found = f"found {', '.join(row) or 'nothing'}"
    raise ValueError(f"missing column {' or '.join(names)} ({found}); name the right one with {option}")


def _answer_of(row: Mapping[str, Any], column: str) -> Any:
    if column:
        answer = _first(row, (column,), "--answer-column")
        return answer if (stated := _last_line_answer(answer)) is None else stated
    try:
        answer = _first(row, ANSWER_COLUMNS, "--answer-column")
    except ValueError:
        if (stated := _last_line_answer(row.get("solution"))) is None:
            raise
        return stated
    stated = _last_line_answer(row.get("solution") if answer is None else answer)
    return answer if stated is None else stated


def _choices_of(row: Mapping[str, Any], columns: ProblemColumns) -> dict[str, str]:
    """Return what a problem lets choose from, by label; nothing if it does not.

    Choices of several named columns with the column of the answers among them are in alphabetical order: the right one would be
    in one place in all rows.

    Raises:
        ValueError: as `choices_in`, or the row lacks a named column or its values.
    """
    named = [_first(row, (name,), "--choices-column") for name in columns.choices]
    given: Any = next((value for name in _CHOICES if not is_empty(value := row.get(name))), None)
    if len(named) == 1:
        [given] = named
    elif named:
        given = [value for value in named if not is_empty(value)]
        answers = (columns.answer,) if columns.answer else ANSWER_COLUMNS
        if {*map(plain_name, answers)} & {*map(plain_name, columns.choices)}:
            given = sorted(given, key=str)
    elif given is None:
        given = [*takewhile(lambda value: not is_empty(value), map(row.get, _LETTERS))]
    if columns.choices and is_empty(given):
        raise ValueError(f"{', '.join(columns.choices)}: no choices here")
    return choices_in(given) if given else {}


def has_choices(row: Mapping[str, Any]) -> bool:
    """Return whether a row has one of the usual columns with choices."""
    plain = {plain_name(str(name)) for name, value in row.items() if not is_empty(value)}
    return bool(plain & {*_CHOICES}) or {"a", "b"} <= plain


def choices_in(given: Any) -> dict[str, str]:
    """Return the choices that a value of a row has, by label.

    Raises:
        ValueError: it is not two to ten texts: a list, a mapping by label, one of label and text, or a text with labels.
    """
    labels: Any = [*_LETTERS]
    texts = given
    if isinstance(given, str):
        _, *parts = re.split(rf"(?:^|[\s,;]+){_LABEL.pattern}", given)
        texts = listed(given) or parts[1::2]
        labels = [*_LETTERS] if listed(given) else parts[::2]
    elif isinstance(given, Mapping):
        by_name = {plain_name(name): value for name, value in given.items() if not is_empty(value)}
        labels, texts = by_name.get("label"), by_name.get("text")
        if labels is None or texts is None:
            labels, texts = [*by_name], [*by_name.values()]
    if not isinstance(texts, list) or not all(isinstance(each, str) or is_number(each) for each in texts):
        raise ValueError(f"the choices are {shorten(given)}; expected a list of texts")
    found = {str(label).strip().upper(): str(each).strip() for label, each in zip(labels, texts, strict=False)}
    if not 2 <= len(found) == len(texts) <= len(_LETTERS):
        raise ValueError(f"the choices are {shorten(given)}; expected two to {len(_LETTERS)}, each with a letter")
    own = {label: _LABEL.match(text) for label, text in found.items()}
    if all(match and match[1].upper() == label for label, match in own.items()):
        found = {label: _LABEL.sub("", text, count=1) for label, text in found.items()}
    return found


def _label_of(answer: Any, choices: Mapping[str, str]) -> str:
    """Return the label of the choice that an answer names: by label, by its text, or as an index from 0.

    Raises:
        ValueError: it names none, or may name two.
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    if is_number(answer) and answer == int(answer):
        answer = int(answer)
    text = str(answer).strip()
    named = {label for label, choice in choices.items() if text == choice}
    if match := re.fullmatch(rf"\(?({'|'.join(choices)})(?:[).:]\s*(.*))?", text, re.IGNORECASE | re.DOTALL):
        label = match[1].upper()
        if (match[2] or "") in ("", choices[label]):
            named.add(label)
    if type(answer) is int and 0 <= answer < len(choices):
        named.add([*choices][answer])
    if not named and re.fullmatch("[0-9]", text) and int(text) < len(choices):  # an index that was written as text
        named.add([*choices][int(text)])
    if not named and text == str(len(choices)):
        raise OutOfChoicesError(
            f"the answer {shorten(answer)} names none of the choices {shorten(choices)}, which are counted from 0"
        )
    if len(named) != 1:
        raise ValueError(f"the answer {shorten(answer)} names {len(named)} of the choices {shorten(choices)}")
    label = named.pop()
    if [*choices.values()].count(choices[label]) > 1:
        raise ValueError(f"the choices {shorten(choices)} have the right one twice")
    return label


def _read_chat(prompt: Any) -> tuple[str, Any]:
    """Return system message and content of a chat with one other message, which may be JSON; other values as they are.

    Raises:
        ValueError: the chat has several turns, or the system message is not a string.
    """
    if isinstance(prompt, str) and prompt.lstrip().startswith("["):
        with suppress(NotJSONError):
            chat = parse_json(prompt)
            prompt = chat if isinstance(chat, list) and chat and all(map(_is_message, chat)) else prompt
    if not isinstance(prompt, list) or not prompt or not all(isinstance(message, Mapping) for message in prompt):
        return "", prompt
    contents = [message.get("content", message.get("value")) for message in prompt]
    if len(prompt) == 1:
        return "", contents[0]
    roles = [message.get("role", message.get("from")) for message in prompt]
    if len(prompt) > 2 or roles[0] != "system":
        shown = ", ".join(map(str, roles))
        raise ValueError(
            f"the problem is a chat of several turns ({shown}); keep the message of the user, after which no other may come"
        )
    if not isinstance(contents[0], str):
        raise ValueError(f"the system message is {shorten(contents[0])}; expected a string")
    return contents[0].strip(), contents[1]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value and "content" in value


def _last_line_answer(solution: Any) -> str | None:
    """Return what a solution of GSM8K states after ``####`` in its last line, without commas in numbers; None if nothing."""
    match = _GSM8K_ANSWER.search(solution.rstrip()) if isinstance(solution, str) else None
    return match[1].strip().replace(",", "") or None if match else None


def read_answers(value: Any) -> list[str]:
    r"""Return the acceptable answers of a row: strings without white space at their ends, each once.

    A string stays as it is, with its leading zeros, `$` and commands, which the reward understands. A number becomes its
    shortest decimal notation without an exponent. The entries of a list, also of one that was written as text, are alternatives
    and stay separate. Null, a blank string and an empty list have no answers.

    Raises:
        ValueError: anything else, NaN or infinity, or a string longer than the reward takes.

    >>> read_answers(142.0), read_answers("025\n"), read_answers([0.5, r"$\frac{1}{2}$"])
    (['142'], ['025'], ['0.5', '$\\frac{1}{2}$'])
    """
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        return []
    if isinstance(value, str):
        value = written_answers(value)
    items = value if isinstance(value, list) else [value]
    texts = [gold_text(_number_text(item) if is_number(item) else item).strip() for item in items]
    return list(dict.fromkeys(texts))


def find_repetitions(problems: Sequence[Problem]) -> dict[int, str]:
    """Return the positions of the problems to drop, each with the reason.

    Problems are the same if they differ in white space only. If all copies have the first one's answer, the first stays. If
    one has another answer, none stays: it is unknown which answer is right, and a wrong ground truth punishes right
    responses.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.key].append(position)
    dropped: dict[int, str] = {}
    for first, *others in groups.values():
        # Two answers agree if the reward takes one for the other, as far as it tells without comparing formulas.
        answers = problems[first].answers
        if all(
            any(equal_answers(answers, answer, lambda *_: False) for answer in problems[other].answers)
            for other in others
        ):
            dropped |= dict.fromkeys(others, REPEATED)
        else:
            dropped |= dict.fromkeys([first, *others], CONTRADICTED)
    return dropped


def _number_text(value: int | float) -> str:
    """Return a finite number as a plain decimal: 142.0 as "142", 1e23 as "1" and 23 zeros, 0.5 as "0.5"."""
    text = format(Decimal(repr(value)), "f")  # repr has the digits as written, the exact value has more
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
