"""What is asked of the rows of a file together: what each of them may have, and not nearly all of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import shorten
from verl_trgrpo.data.questions.context import TRAIN_ROLE, Context, DataQuestion, Remark
from verl_trgrpo.data.rows import RawRow, content_text, ground_truth_of, is_chat, normalize_text, row_keys
from verl_trgrpo.data.sources import message_of_test_file, says_test

# Rows with different prompts below which nothing is reported of what all of them have.
_FEWEST = 20
LITERAL_SHARE = 0.5
"""Share of a file's ground truths from which on it is an error that they are only compared literally.

Single ones are in the best public sets, up to 0.15 of a set; these prompts are lost. A fault of the file's layout, such as whole
solutions in place of answers, has nearly all. Half is far enough from both that 50 rows tell them apart.
"""
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
# An index names one of two to five choices. Each of them is right in a share of the rows that is not far from its even one.
_FEW = 0.25
_DIGIT = re.compile(r"(?<![\w.])[0-5](?![\w])(?!\.[0-9])", re.ASCII)
_LAST, _LINES = "its last words", "its lines"


class WholeFile:
    """Collect rows of one file for a role.

    The remarks are about the file: one ground truth in nearly all rows, indices of choices that no prompt has, prompts that state
    their ground truth, ground truths that are mostly compared literally, and, of train files, many repeated prompts and what says
    that it is a test file. Prompts that state an answer count as such only if it is nearly always the right one, so that examples
    in an instruction do not.
    """

    def __init__(self, context: Context, role: str) -> None:
        self._context, self._role = context, role
        self.scored = self._literal = 0
        self._says_test = False
        self._prompts: Counter[int] = Counter()
        self._truths: Counter[int] = Counter()
        self._shown: dict[int, str] = {}
        self._indices: Counter[int] | None = Counter()  # None once a ground truth is another
        self._digits: Counter[int] = Counter()  # prompts in which a number stands
        # By way of stating: how many rows state something, how many the ground truth, and the first of these.
        self._stated: Counter[str] = Counter()
        self._leaked: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def add(self, row: RawRow, number: int, literal: bool, scored: bool) -> None:
        """Add a row, with its number, whether its ground truth is only compared literally, and whether that was asked."""
        self.scored += scored and self._context.tasks.scores(row)
        self._literal += literal
        self._says_test = self._says_test or says_test(row)
        keys = row_keys(row)
        if not keys or not is_chat(row.get("prompt")):
            return
        prompt = hash(keys[0])
        self._prompts[prompt] += 1
        answers = self._context.tasks.answers(row)
        if self._prompts[prompt] == 1:
            truth = repr([normalize_text(each) for each in answers] or ground_truth_of(row))
            self._truths[hash(truth)] += 1
            self._shown.setdefault(hash(truth), shorten(answers[0] if answers else ground_truth_of(row)))
            self._add_index(row)
        self._add_stated(_squeeze(content_text(row["prompt"][-1]["content"])), answers, number)

    def _add_index(self, row: RawRow) -> None:
        if self._indices is None:
            return
        index = _index(ground_truth_of(row))
        if index is None:
            self._indices = None
            return
        self._indices[index] += 1
        text = " ".join(content_text(message["content"]) for message in row["prompt"])
        self._digits.update({int(digit) for digit in _DIGIT.findall(text)})

    def _unlisted(self) -> str:
        """Return the indices that are the ground truths of all prompts and are not listed there, as a text; "" for none."""
        count = self._indices.total() if self._indices else 0
        if not self._indices or count < _FEWEST:
            return ""
        first, last = min(self._indices), max(self._indices)
        even = count / (last - first + 1)
        if first > 1 or last == first or any(self._indices[index] < _FEW * even for index in range(first, last + 1)):
            return ""
        # Choices that are numbered, and an instruction that says which numbers may be answered, have each of the numbers.
        if all(self._digits[index] >= _NEARLY_ALL * count for index in range(first, last + 1)):
            return ""
        return f"{first} to {last}"

    def _add_stated(self, text: str, answers: list[str], number: int) -> None:
        squeezed = [squeezed for answer in answers if (squeezed := _squeeze(answer))]
        ways = {way: template for way, (mark, template) in _STATED.items() if mark.search(text)}
        for way, template in ways.items():
            self._count(way, any(_holds(text, template.format(each)) for each in squeezed), number)
        self._count(_LAST, any(text.endswith(each) for each in squeezed), number)
        lines = [_squeeze(answer) for answer in answers if "\n" in answer.strip()]
        self._count(_LINES, any(each in text for each in lines), number)

    def _count(self, way: str, leaked: bool, number: int) -> None:
        self._stated[way] += 1
        if leaked:
            self._leaked[way] += 1
            self._first.setdefault(way, number)

    def remarks(self, path: Path | None) -> Iterator[Remark]:
        """Yield the remarks about the file; `path` is that of a file that exists."""
        if self._role == TRAIN_ROLE and (message := message_of_test_file(path, self._says_test)):
            yield DataQuestion.FILE, Level.WARNING, message
        if self.scored >= _FEWEST and self._literal >= LITERAL_SHARE * self.scored:
            reason = (
                f"{self._literal} of {self.scored} ground truths are only compared literally, so right answers get 0"
            )
            remedy = "put the answers alone into reward_model.ground_truth, in LaTeX or as numbers"
            yield DataQuestion.LITERAL, Level.ERROR, f"{reason}; {remedy}"
        different, rows = len(self._prompts), self._prompts.total()
        for truth, count in self._truths.most_common(1):
            if different >= _FEWEST and count >= _NEARLY_ALL * different:
                reason = f"{count} of {different} different prompts have the ground truth {self._shown[truth]}"
                remedy = "build the file again"
                yield (
                    DataQuestion.TRUTH,
                    Level.WARNING,
                    f"{reason}, so one answer gets full marks nearly everywhere; {remedy}",
                )
        if numbers := self._unlisted():
            reason = f"all ground truths are numbers from {numbers}, as indices of choices are, and the prompts do not list these"
            remedy = (
                "build the file with the choices (`verl-trgrpo data build deepscaler` with --choices-column), or say in the "
                "prompts which numbers may be answered"
            )
            yield DataQuestion.TRUTH, Level.ERROR, f"{reason}; {remedy}"
        for way, count in self._leaked.items():
            fewest = _FEWEST if way in (_LAST, _LINES) else 1
            if count >= max(fewest, _NEARLY_ALL * self._stated[way]):
                reason = f"{count} prompts state their ground truth as {way} (first: row {self._first[way]})"
                yield DataQuestion.TRUTH, Level.WARNING, f"{reason}; remove the answer, which a policy would copy"
        if self._role == TRAIN_ROLE and rows >= _FEWEST and rows - different > _MANY * rows:
            message = f"has {different} different prompts in {rows} rows; remove the repeated ones"
            yield DataQuestion.DUPLICATES, Level.WARNING, message


def _index(truth: object) -> int | None:
    """Return a ground truth that is a number from 0 to 5 by itself, None for any other."""
    if isinstance(truth, list) and len(truth) == 1:
        truth = truth[0]
    text = str(int(truth)) if isinstance(truth, float) and truth.is_integer() else str(truth).strip()
    return int(text) if re.fullmatch("[0-5]", text) and not isinstance(truth, bool) else None


def _holds(text: str, stated: str) -> bool:
    """Return whether a text contains a statement and ends with it."""
    start = text.find(stated)
    while start >= 0:
        if not _MORE.match(text, start + len(stated)):
            return True
        start = text.find(stated, start + 1)
    return False


def _squeeze(text: str) -> str:
    return normalize_text(text).replace(" ", "")
