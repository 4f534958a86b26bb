"""Judge the rows of a data file together: what each of them may have, and not nearly all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.rows import RawRow, ground_truth_of, is_chat, normalize_text, row_keys
from verl_trgrpo.tasks.ground_truths import answers_of

# Rows with different prompts below which nothing is said of what all of them have.
_FEWEST = 20
# Share of rows that are "nearly all", and share of repeated prompts that is more than accident.
_NEARLY_ALL, _MANY = 0.9, 0.1

# Ways in which a prompt states an answer: what marks one, and what an answer is put into; without white space, in small letters.
_ANSWER = re.compile("answer(?:is)?:?.")
_STATED = {
    "\\boxed{...}": (re.compile(r"\\boxed\{[^}]"), "\\boxed{{{}}}"),
    "<answer>...</answer>": (re.compile("<answer>[^<]"), "<answer>{}</answer>"),
    "#### ...": (re.compile("####."), "####{}"),
    "answer: ...": (_ANSWER, "answer:{}"),
    "answer is ...": (_ANSWER, "answeris{}"),
}
_MORE = re.compile(r"[,.]?\w")  # what follows on "4" in "40", "4,000" and "4.5"
_LAST, _LINES = "its last words", "its lines"


class WholeFile:
    """Collect rows of one file; `default` is the data source whose reward scores those that have none.

    The findings are about the file: one ground truth in nearly all rows, prompts that state their ground truth, and many
    repeated prompts. Prompts that state an answer count as such only if it is nearly always the right one, so that
    examples in an instruction do not.
    """

    def __init__(self, default: str | None = None) -> None:
        self._default = default
        self._prompts: Counter[int] = Counter()
        self._truths: Counter[int] = Counter()
        self._shown: dict[int, str] = {}
        # By way of stating: how many rows state something, how many the ground truth, and the first of these.
        self._stated: Counter[str] = Counter()
        self._leaked: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, row: RawRow, where: str) -> None:
        """Add a row, given with its place."""
        keys = row_keys(row)
        if not keys or not is_chat(row.get("prompt")):
            return
        prompt = hash(keys[0])
        self._prompts[prompt] += 1
        answers = answers_of(row, self._default)
        if self._prompts[prompt] == 1:
            truth = repr([normalize_text(each) for each in answers] or ground_truth_of(row))
            self._truths[hash(truth)] += 1
            self._shown.setdefault(hash(truth), shorten(answers[0] if answers else ground_truth_of(row)))
        self._add_stated(_squeeze(row["prompt"][-1]["content"]), answers, where)

    def _add_stated(self, text: str, answers: list[str], where: str) -> None:
        squeezed = [squeezed for answer in answers if (squeezed := _squeeze(answer))]
        ways = {way: template for way, (mark, template) in _STATED.items() if mark.search(text)}
        for way, template in ways.items():
            self._count(way, any(_holds(text, template.format(each)) for each in squeezed), where)
        self._count(_LAST, any(text.endswith(each) for each in squeezed), where)
        lines = [_squeeze(answer) for answer in answers if "\n" in answer.strip()]
        self._count(_LINES, any(each in text for each in lines), where)

    def _count(self, way: str, leaked: bool, where: str) -> None:
        self._stated[way] += 1
        if leaked:
            self._leaked[way] += 1
            self._first.setdefault(way, where)

    def findings(self, where: str) -> Iterator[tuple[str, Finding]]:
        """Yield name of the check and finding about the file that `where` names."""
        different, rows = len(self._prompts), self._prompts.total()
        for truth, count in self._truths.most_common(1):
            if different >= _FEWEST and count >= _NEARLY_ALL * different:
                reason = f"{count} of {different} different prompts have the ground truth {self._shown[truth]}"
                message = f"{reason}, so one answer gets full marks nearly everywhere; build the file again"
                yield "ground truth", Finding.warning(where, message)
        for way, count in self._leaked.items():
            fewest = _FEWEST if way in (_LAST, _LINES) else 1
            if count >= max(fewest, _NEARLY_ALL * self._stated[way]):
                reason = f"{count} prompts state their ground truth as {way} (first: {self._first[way]})"
                yield "ground truth", Finding.warning(where, f"{reason}; remove the answer, which a policy would copy")
        if rows >= _FEWEST and rows - different > _MANY * rows:
            message = f"has {different} different prompts in {rows} rows; remove the repeated ones"
            yield "duplicates", Finding.warning(where, message)


def _holds(text: str, stated: str) -> bool:
    """Return whether a statement stands in a text and ends there."""
    start = text.find(stated)
    while start >= 0:
        if not _MORE.match(text, start + len(stated)):
            return True
        start = text.find(stated, start + 1)
    return False


def _squeeze(text: str) -> str:
    return normalize_text(text).replace(" ", "")
