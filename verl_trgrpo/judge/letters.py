r"""Constants that an answer may name as it likes: letters that stand neither in the question nor in the gold."""

import re
from collections.abc import Iterator
from itertools import permutations

from verl_trgrpo.judge.parser import tokens_of
from verl_trgrpo.judge.question import Asked
from verl_trgrpo.judge.spelling import normalize

_MOST = 3
_SEGMENT = re.compile(r"[A-Z] ?[A-Z]")  # AB
_CONSTANT = re.compile(r"[a-zA-Z](?:_(?:\w|\{\w+\}))?|\\(?:alpha|beta|gamma|lambda|mu|kappa)(?:_\w)?")  # C_1
_NUMBERS = {"e", "i", r"\pi"}


def renamed(gold: str, answer: str, asked: Asked) -> Iterator[str]:
    r"""Yield an answer, normalized, with its free letters as those of the gold: `x^4+c` as `x^4+C`.

    A letter is free that the question does not have. Without a formula in the question nothing is renamed: `\overline{AB}` is not
    `\overline{AC}`.
    """
    ours, theirs = normalize(gold), normalize(answer)
    if not asked.formulas or _SEGMENT.search(ours) or _SEGMENT.search(theirs):
        return
    free, free_too = _free(ours, asked), _free(theirs, asked)
    if free == free_too or len(free) != len(free_too) or not 0 < len(free) <= _MOST or ours.strip() in free:
        return
    pattern = re.compile(r"\\[a-zA-Z]+(?:_(?:\w|\{\w+\}))?|[a-zA-Z](?:_(?:\w|\{\w+\}))?")
    for names in permutations(free):
        names_of = dict(zip(free_too, names, strict=True))
        yield pattern.sub(lambda match, by=names_of: by.get(match[0], match[0]), theirs)  # type: ignore[misc]


def _free(text: str, asked: Asked) -> tuple[str, ...]:
    """Return the names of a formula that the question does not have, in the order in which they stand."""
    names = dict.fromkeys(each for kind, each in tokens_of(text) if kind == "name" and each not in _NUMBERS)
    return tuple(name for name in names if name not in asked.letters and _CONSTANT.fullmatch(name))
