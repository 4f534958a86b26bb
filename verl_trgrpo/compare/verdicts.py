"""Choose verdicts of a validation that are worth a look: right answers that may be refused, and answers paid for no work."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from verl_trgrpo.compare.dumps import DumpedResponse, read_lines
from verl_trgrpo.judge.answer_form import asked_form, read_answer
from verl_trgrpo.judge.numbers import read_number
from verl_trgrpo.judge.question import read_question
from verl_trgrpo.judge.spelling import normalize

VerdictKind = Literal["refused, but near", "refused, and most frequent of its prompt", "paid, but in the prompt"]

_NEAR = 100  # a number is near within this part of the other
_MOST_CHARS = 400
_WORD = re.compile(r"\\?[^\W\d_]+|[0-9]+")  # \pi; right; 12


class NotableVerdict(NamedTuple):
    """A verdict worth a look; `row` is the number of its line in the dump."""

    kind: VerdictKind
    row: int
    answer: str
    response: DumpedResponse


def worth_a_look(path: Path, most: int = 50) -> list[NotableVerdict]:
    """Return at most `most` verdicts of a dump, each answer to a prompt once, drawn with a fixed seed, all kinds alike."""
    groups = defaultdict[tuple[str, str], list[tuple[int, str, DumpedResponse]]](list)
    for row, response in read_lines(path):
        prompt = response.prompt
        answer = read_answer(response.text, asked_form(prompt) or "box", prompt.rstrip().endswith("<think>"))
        if answer and len(answer) <= _MOST_CHARS:
            groups[prompt, response.truth].append((row, answer, response))
    by_kind = defaultdict[str, list[NotableVerdict]](list)
    for group in groups.values():
        for verdict in _of_group(group):
            by_kind[verdict.kind].append(verdict)
    drawn: list[NotableVerdict] = []
    for left, verdicts in zip(range(len(by_kind), 0, -1), sorted(by_kind.values(), key=len), strict=True):
        share = min((most - len(drawn)) // left, len(verdicts))  # a small kind leaves its share to larger ones
        drawn += random.Random(0).sample(verdicts, share)
    return sorted(drawn, key=lambda verdict: (verdict.kind, verdict.row))


def _of_group(group: list[tuple[int, str, DumpedResponse]]) -> Iterator[NotableVerdict]:
    """Yield the verdicts worth a look on the responses to one prompt."""
    counts = Counter(answer for _, answer, _ in group)
    (_, most), *others = [*counts.most_common(2)]
    leads = most > 1 and (not others or most > others[0][1])
    for answer in counts:
        row, _, response = next(each for each in group if each[1] == answer)
        if response.verdict == "wrong":
            if is_near(response.truth, answer):
                yield NotableVerdict("refused, but near", row, answer, response)
            elif leads and counts[answer] == most:
                yield NotableVerdict("refused, and most frequent of its prompt", row, answer, response)
        elif response.verdict == "right" and _is_in_prompt(answer, response.prompt):
            yield NotableVerdict("paid, but in the prompt", row, answer, response)


def is_near(truth: str, answer: str) -> bool:
    """Return whether half of a text is all words, letters and numbers of the other, or both are numbers within a hundredth."""
    texts = [normalize(each).replace(r"\text", " ") for each in (truth, answer)]
    one, other = map(read_number, texts)
    if one and other:
        return abs(one.value - other.value) * _NEAR <= abs(one.value)
    few, many = sorted((Counter(_WORD.findall(each)) for each in texts), key=Counter.total)
    return few <= many and 0 < many.total() <= 2 * few.total()


def _is_in_prompt(answer: str, prompt: str) -> bool:
    """Return whether the prompt has a formula like the answer, or its text; one or two characters say little."""
    if len(answer) < 3:
        return False
    return read_question(prompt).has_formula(normalize(answer)) or (
        re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", prompt) is not None
    )
