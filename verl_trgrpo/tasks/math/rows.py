"""Problems from rows of DeepScaleR's raw files and of the hub's data sets."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.schema import CHAT_TAGS
from verl_trgrpo.data.sources import Record
from verl_trgrpo.tasks.math.equality import compare
from verl_trgrpo.tasks.math.reward import gold_text, is_number

REPEATED = "repeats a problem with the same answer"
CONTRADICTED = "the same problem with another answer"


@dataclass(frozen=True)
class Problem:
    """A problem, its acceptable answers (none where the row's is null or blank, as in some public data) and its origin."""

    text: str
    answers: list[str]
    origin: str = ""

    @property
    def key(self) -> str:
        """Return the text with its white space made equal: the same for repetitions of a problem."""
        return " ".join(self.text.split())


def read_problem(record: Record) -> Problem:
    """Return the problem of a row with problem (or question) and answer (or final_answer).

    Raises ValueError for a malformed row; the message says why.
    """
    row = record.row
    if "answer" not in row and "final_answer" not in row:
        raise ValueError(f"the row has no column answer or final_answer; found {', '.join(row) or 'nothing'}")
    problem = row.get("problem") or row.get("question")
    if not isinstance(problem, str):
        raise ValueError(f"the problem is {shorten(problem)}; expected a text under problem or question")
    if tags := [tag for tag in CHAT_TAGS if tag in problem]:
        raise ValueError(f"the problem contains {', '.join(tags)}; the chat template adds its own tags")
    text = problem.strip()
    if not text:
        raise ValueError(f"the problem is {shorten(problem)}; it has no words")
    answer = row.get("final_answer") if row.get("answer") is None else row["answer"]
    return Problem(text, read_answers(answer), record.origin)


def read_answers(value: Any) -> list[str]:
    r"""Return the acceptable answers of a row: texts without white space at their ends, each once.

    A text stays as it is, with its leading zeros, `$` and commands: the reward understands those. A number becomes the
    shortest decimal text that means it, without an exponent. The entries of a list are alternatives and stay apart.

    There are none for null, a blank text and an empty list.

    Raises ValueError for anything else, NaN or infinity, or a text longer than the reward takes.

    >>> read_answers(142.0), read_answers("025\n"), read_answers([0.5, r"$\frac{1}{2}$"])
    (['142'], ['025'], ['0.5', '$\\frac{1}{2}$'])
    """
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        return []
    items = value if isinstance(value, list) else [value]
    texts = [gold_text(_number_text(item) if is_number(item) else item).strip() for item in items]
    return list(dict.fromkeys(texts))


def find_repetitions(problems: Sequence[Problem]) -> dict[int, str]:
    """Return the positions of the problems to drop, each with the reason.

    Problems are the same if their texts differ in white space only. Where all copies have the first one's answer, the
    first stays. Where one has another answer, none stays: nothing says which of the answers is right, and a wrong ground
    truth punishes right responses.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.key].append(position)
    dropped: dict[int, str] = {}
    for first, *others in groups.values():
        # Two answers agree if the reward takes one for the other, as far as it tells without comparing formulas.
        answers = problems[first].answers
        if all(
            any(compare(answers, answer, lambda *_: False) for answer in problems[other].answers) for other in others
        ):
            dropped |= dict.fromkeys(others, REPEATED)
        else:
            dropped |= dict.fromkeys([first, *others], CONTRADICTED)
    return dropped


def _number_text(value: int | float) -> str:
    """Return a finite number as a plain decimal: 142.0 as "142", 1e23 as "1" and 23 zeros, 0.5 as "0.5"."""
    text = format(Decimal(repr(value)), "f")  # repr has the digits that somebody wrote, the exact value has more
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
