"""Columns that no problem was asked for and whose values look as if the questions need them: choices and passages."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from verl_trgrpo.data.sources import Record, is_empty, plain_name
from verl_trgrpo.tasks.math.problems import ANSWER_COLUMNS, ProblemColumns, choices_in, has_choices

# Rows of a file whose values are looked at, and the share of them that has to have a choice or a passage.
_ROWS, _NEARLY_ALL = 1000, 0.9
# Characters of the longest choice and of the shortest passage, and how much longer than the problem a passage is.
_CHOICE, _PASSAGE, _LONGER = 300, 100, 1.5
# Share of the rows up to which a word says what a row is about.
_COMMON = 0.25
# Names of columns with text about the answer, which a question does not need.
_ABOUT_ANSWER = re.compile(
    "solution|response|generat|reason|expl|^exp$|cot|thought|think|rationale|support|evidence|proof|analysis|feedback|comment|"
    "output|completion|hint|revis"
)

# Names of columns with another form of the question, which shares its words as a passage does.
_ABOUT_QUESTION = re.compile("question|problem|prompt|query|instruct|message|convers|title|rephras|paraphras|translat")


class UnreadColumns:
    """Keep the first rows of a source while they are read, to look at the columns that were not read afterwards."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records."""
        for record in records:
            if len(self._rows) < _ROWS:
                self._rows.append(record.row)
            yield record

    def check(self, unread: Sequence[str], problems: Sequence[str], columns: ProblemColumns) -> None:
        """Check that columns `unread` hold neither choices nor passages, unless the options name some.

        Args:
            unread: names of the columns.
            problems: texts of the problems.
            columns: that the options name.

        Raises:
            ValueError: some columns do.
        """
        if not columns.choices and not any(map(has_choices, self._rows)) and (found := self._choices(unread)):
            whole = [*self._further_choice(found, columns.answer), *found]
            self._refuse(found, "choices", f"--choices-column {' '.join(map(_quoted, whole))}")
        if not columns.context and problems and (found := self._passages(unread, median(map(len, problems)))):
            self._refuse(found, "a passage", f"--context-column {_quoted(found[0])}")

    @staticmethod
    def _refuse(columns: Sequence[str], what: str, option: str) -> None:
        have = "look" if len(columns) > 1 else "looks"
        raise ValueError(
            f"{', '.join(columns)} {have} like {what} that the questions need, and would be lost; name what they need with "
            f"{option}, or remove the columns from a copy of the source"
        )

    def _share(self, hits: Iterable[bool]) -> bool:
        return sum(hits) >= _NEARLY_ALL * max(1, len(self._rows))

    def _choices(self, unread: Sequence[str]) -> list[str]:
        """Return a column with all choices of a problem, or columns that are counted and have one each."""
        for name in unread:
            if self._share(_are_choices(row.get(name)) for row in self._rows):
                return [name]
        counted: dict[str, list[str]] = defaultdict(list)
        for name in unread:
            if match := re.fullmatch(r"(.*?)([0-9]|[a-j])", plain_name(name)):
                counted[f"{match[1]} {match[2].isdigit()}"].append(name)
        for key, names in counted.items():
            ends = sorted(plain_name(name)[-1] for name in names)
            in_turn = ends == [chr(ord(ends[0]) + place) for place in range(len(ends))]
            if len(names) > 1 and in_turn and (key.endswith("True") or ends[0] == "a"):
                values = ([row.get(name) for name in names] for row in self._rows)
                if self._share(_are_short([each for each in some if not is_empty(each)]) for some in values):
                    return names
        return []

    def _further_choice(self, choices: Sequence[str], column: str) -> list[str]:
        """Return the column of the answers where an answer is a text beside the choices, as in SciQ and GPQA."""
        names = (column,) if column else ANSWER_COLUMNS
        [*found] = (name for name in self._rows[0] if plain_name(str(name)) in map(plain_name, names))
        for name in found if len(choices) > 1 else ():
            if self._share(_is_further(row.get(name), [row.get(choice) for choice in choices]) for row in self._rows):
                return [name]
        return []

    def _passages(self, unread: Sequence[str], usual: float) -> list[str]:
        found = []
        for name in unread:
            texts = [value for row in self._rows if isinstance(value := row.get(name), str) and value.strip()]
            if _ABOUT_ANSWER.search(plain_name(name)) or not self._share([True] * len(texts)):
                continue
            if median(map(len, texts)) > max(_PASSAGE, _LONGER * usual) or self._speaks_of_question(name, unread):
                found.append(name)
        return found

    def _speaks_of_question(self, name: str, unread: Sequence[str]) -> bool:
        """Return True if a column has sentences that share words with what was read of the own row, and not of another row."""
        texts = [str(row.get(name)) for row in self._rows]
        if _ABOUT_QUESTION.search(plain_name(name)) or not self._share(map(_is_sentence, texts)):
            return False
        beside = [_words(value for other, value in row.items() if other not in unread) for row in self._rows]
        often = Counter(word for words in beside for word in words)
        rare = [{word for word in words if often[word] <= _COMMON * len(beside)} for words in beside]
        apart = len(rare) // 2  # questions about one passage follow each other
        own, other = (
            sum(bool(_words([text]) & words) for text, words in zip(texts, rare[shift:] + rare[:shift], strict=True))
            for shift in (0, apart)
        )
        return own >= len(texts) / 2 and own >= 2 * other


def _is_sentence(text: str) -> bool:
    return len(text.split()) > 3 and text.rstrip().rstrip("\"')").endswith((".", "!", "?"))


def _words(values: Iterable[Any]) -> set[str]:
    texts = [
        part for value in values for part in (value if isinstance(value, list) else [value]) if isinstance(part, str)
    ]
    return set(re.findall(r"[^\W\d_]{3,}", " ".join(texts).casefold()))


def _is_further(answer: Any, choices: Sequence[Any]) -> bool:
    """Return True if an answer is a text other than the choices, their letters and their numbers."""
    labels = {"ABCDEFGHIJ"[at] for at in range(len(choices))} | {*map(str, range(len(choices) + 1))}
    return isinstance(answer, str) and answer.strip().upper() not in labels and answer.strip() not in choices


def _are_choices(value: Any) -> bool:
    try:
        found = [*choices_in(value).values()]
    except ValueError:
        return False
    numbers = isinstance(value, list) and not any(isinstance(each, str) for each in value)
    return not numbers and _are_short(found)


def _are_short(values: Sequence[Any]) -> bool:
    """Return whether values are two or more different texts that are short enough for choices."""
    texts = {value.strip() for value in values if isinstance(value, str)}
    return len(values) > 1 and len(texts) == len(values) and max(map(len, texts)) <= _CHOICE


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else f"'{name}'"
