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
_INTEGRAL = re.compile(r"\\int(?![a-z])|integral|antiderivative", re.IGNORECASE)  # \int
_WITH_CONSTANT = re.compile(r"(?:[a-zA-Z]\([a-z]\)=|[a-zA-Z]=)?(.+)\+([a-zA-Z](?:_\w)?)")  # x^2+C
_NAME = re.compile(r"\\[a-zA-Z]+(?:_(?:\w|\{\w+\}))?|[a-zA-Z](?:_(?:\w|\{\w+\}))?")  # x; \theta
_COORDINATES = {"x", "y", "z"}
_NUMBERS = {"e", "i", r"\pi"}


def renamed(gold: str, answer: str, asked: Asked) -> Iterator[str]:
    r"""Yield an answer, normalized, with its free letters as those of the gold: `x^4+c` as `x^4+C`.

    A letter is free that the question does not have. Without a formula in the question nothing is renamed: `\overline{AB}` is not
    `\overline{AC}`. Coordinates that both have keep their names: `y^2=4x` is not `x^2=4y`.
    """
    ours, theirs = normalize(gold), normalize(answer)
    if not asked.formulas or _SEGMENT.search(ours) or _SEGMENT.search(theirs):
        return
    free, free_too = _free(ours, asked), _free(theirs, asked)
    shared = _COORDINATES & {*free} & {*free_too}
    free, free_too = (tuple(name for name in each if name not in shared) for each in (free, free_too))
    if len(free) != len(free_too) or not 0 < len(free) <= _MOST or ours.strip() in free:
        return
    for names in permutations(free):
        if names == free_too:
            continue
        names_of = dict(zip(free_too, names, strict=True))
        yield _NAME.sub(lambda match, by=names_of: by.get(match[0], match[0]), theirs)  # type: ignore[misc]


def changes_of(gold: str, answer: str, asked: Asked) -> Iterator[tuple[str, str]]:
    r"""Yield how two functions with a free constant change from a number on, where the question is about an integral.

    That is `F(x)-F(a)` for `F(x)+C`, so that `(x+1)^2+C` is `x^2+2x+C`. There are two numbers, as a function may have no value.
    """
    if not _INTEGRAL.search(asked.text):
        return
    matches = [_WITH_CONSTANT.fullmatch(normalize(text)) for text in (gold, answer)]
    functions = [match[1] for match in matches if match and match[2] in _free(match[0], asked)]
    names = {each for text in functions for kind, each in tokens_of(text) if kind == "name"} - _NUMBERS
    if len(functions) < 2 or len(names) != 1 or names & {*_free("".join(functions), asked)}:
        return
    for number in (r"{\frac{3}{5}}", r"{\frac{31}{4}}"):
        one, other = (
            f"{text}-({_NAME.sub(lambda each, by=number: by if each[0] in names else each[0], text)})"
            for text in functions
        )
        yield one, other


def _free(text: str, asked: Asked) -> tuple[str, ...]:
    """Return the names of a formula that the question does not have, in the order in which they stand."""
    names = dict.fromkeys(each for kind, each in tokens_of(text) if kind == "name" and each not in _NUMBERS)
    return tuple(name for name in names if name not in asked.letters and _CONSTANT.fullmatch(name))
