r"""Decide whether an answer with the right value is finished: it is not the question again, and has the form that is asked for.

The gold decides what finished is: what is left to do in the gold may be left to do in the answer. An answer that is a list is
judged item by item.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from verl_trgrpo.judge.answers import read_forms
from verl_trgrpo.judge.arranged import arranged, names, parsed
from verl_trgrpo.judge.equality import alternatives
from verl_trgrpo.judge.forms import Form
from verl_trgrpo.judge.left_to_do import (
    are_primes,
    has_power_of_product,
    has_product_of_sums,
    has_root_below,
    has_root_left,
    left_to_evaluate,
)
from verl_trgrpo.judge.numbers import read_number
from verl_trgrpo.judge.parser import Tree, tokens_of
from verl_trgrpo.judge.question import Asked, arrangement
from verl_trgrpo.judge.quotients import has_common_factor, has_like_terms, is_factored_as, is_less_split
from verl_trgrpo.judge.solved import INEQUALITY, RELATION, is_left_unsolved
from verl_trgrpo.judge.spelling import GROUP, normalize, split_top_level
from verl_trgrpo.judge.units import UNKNOWN, in_base_units

Fault = Literal["restated", "unfinished", "unit"]

_NAME = re.compile(r"[a-zA-Z](?:_(?:\w|\{\w+\}))?|\\[a-z]+")  # x; x_1; \theta
_ABOUT = re.compile(r"(?:\\approx|≈)[\s$]*-?[0-9][0-9,]*[\s$.]*$")  # \approx 42
_SUM_OF_OBJECTS = re.compile(
    r"(?:\\end\{[a-z]*matrix\}|\([^()]{1,200},[^()]{1,200}\)) ?\)? ?[+-]"
)  # \end{pmatrix}+; (1,2)+
_OBJECT = r"(?:\(|\\begin\{)"
_MULTIPLE = re.compile(
    rf"(?:-|-?(?:[0-9.]+|[a-z]|\\frac\{{[^{{}}]{{1,20}}\}}\{{[^{{}}]{{1,20}}\}})) ?{_OBJECT}"
)  # -2(1,3)


@dataclass(frozen=True)
class _Side:
    """A formula of an answer or a gold."""

    tree: Tree
    arranged: Tree
    steps: int


def fault_of(gold: str, answer: str, question: Asked) -> Fault | None:
    """Return what keeps an answer of the right value from being right, or None.

    Args:
        gold: the ground truth that the answer equals, as written.
        answer: as written.
        question: nothing is asked of an answer to a question that is not known.
    """
    if not question.known:
        return None
    if _ABOUT.search(answer) and "approximate" not in question.asks and not _ABOUT.search(gold):
        return "unfinished"
    golds = [normalize(each) for each in alternatives(gold)]
    text = normalize(answer)
    if text.replace(" ", "") in {each.replace(" ", "") for each in golds}:
        return None
    wanted = [form for each in golds for form in _values(read_forms(each, gold=True)[0])]
    given = [*_values(read_forms(text)[0])]
    if any(_has_rewritten_side(form, question) for form in given):
        return "unfinished"
    if all(each.kind != "relation" for each in wanted):
        given = [form.last or form for form in given]
    if (fault := _whole_fault(golds, text, question)) is not None:
        return fault
    if any(_has_other_unit(form, wanted, question) for form in given):
        return "unit"
    if is_left_unsolved(golds, text, given, question):
        return "unfinished"
    has_number = any(each.number is not None for each in wanted)
    for form in given:
        if has_number and (form.number is not None or len(wanted) == 1):
            if (fault := _number_fault(form, wanted, question)) is not None:
                return fault
        elif (fault := _formula_fault(form, wanted, question)) is not None:
            return fault
    return None


def _values(form: Form) -> Iterator[Form]:
    """Yield the single values of a form."""
    if form.kind == "ratio" and (number := read_number(form.text.replace(":", "/"))):  # 4:6 is a fraction to be reduced
        yield Form("value", form.text, number=number)
    elif form.items and form.kind != "choice":
        for item in form.items:
            yield from _values(item)
    else:
        yield form


def _whole_fault(golds: Sequence[str], text: str, question: Asked) -> Fault | None:
    """Judge an answer that is a relation of the question, or an expression of matrices, points or sets, where no gold is."""
    found = arrangement(text)
    copied = text.replace(" ", "") in question.texts
    if RELATION.search(text) and (copied or found in question.formulas) and not _is_solved(text):
        return "restated" if found is None or found not in map(arrangement, golds) else None
    if "a square" in question.asks and all(_repeats_letter(text, gold) for gold in golds):
        return "unfinished"
    if _SUM_OF_OBJECTS.search(text) and not any(map(_SUM_OF_OBJECTS.search, golds)):
        return "restated" if copied else "unfinished"
    is_joined = r"\cup" in text and not any(r"\cup" in gold for gold in golds)  # (1,2)\cup[2,3) for (1,3)
    has_factor = _MULTIPLE.match(text) and all(re.match(_OBJECT, gold) for gold in golds)  # 2(1,3) for (2,6)
    return "restated" if copied and (is_joined or has_factor) else None


def _has_rewritten_side(form: Form, question: Asked) -> bool:
    """Return whether the left side before a value can be simplified, and is not written so in the question: `x+0=3`."""
    left = split_top_level(form.text, "=")[0] if form.last else ""
    tree = parsed(left) if left.replace(" ", "") not in question.texts else None
    return tree is not None and bool(names(tree)) and arranged(tree)[1] > 0


def _repeats_letter(text: str, gold: str) -> bool:
    """Return whether an answer has a letter of the gold more often than the gold: `x(x+4)+1` for `(x+2)^2-3`."""
    ours, theirs = (Counter(each for kind, each in tokens_of(side) if kind == "name") for side in (text, gold))
    return any(ours[name] > count for name, count in theirs.items())


def _is_solved(text: str) -> bool:
    """Return whether a name stands alone on a side of an inequality: `x>2` may be a condition of the question and its answer."""
    return any(_NAME.fullmatch(side.strip()) for side in INEQUALITY.split(text))


def _has_other_unit(form: Form, wanted: Sequence[Form], question: Asked) -> bool:
    """Return whether an answer has a unit or a percent sign that the gold does not have, and the question asks for another."""
    if form.number is not None and form.number.percent and "percent" not in question.asks:
        return all(
            each.number is None or (not each.number.percent and each.number.value == form.number.value)
            for each in wanted
        )
    if "degrees" in question.asks and not form.unit and r"\pi" in form.text:
        return any(dict(each.unit or ()).get("degree") for each in wanted)  # \frac{\pi}{3} for 60^\circ
    if not form.unit or any(name.startswith(UNKNOWN) for name, _ in form.unit):
        return False
    if any(each.unit not in (None, question.unit) for each in wanted):
        return False
    angles = {"radians": "radian", "degrees": "degree"}
    asked = {unit for word, unit in angles.items() if word in question.asks}
    if len(asked) == 1 and {*dict(form.unit)} & {*angles.values()} - asked:
        return True
    return question.unit is not None and in_base_units(form.unit) != in_base_units(question.unit)


def _number_fault(form: Form, wanted: Sequence[Form], question: Asked) -> Fault | None:
    """Judge how a number is written."""
    if form.number is None:
        return None
    text = form.text.replace(" ", "")
    if text in question.objects and all(each.number and each.number.percent != form.number.percent for each in wanted):
        return "restated"
    other_percent = all(
        each.number and each.number.percent and each.number.value != form.number.value for each in wanted
    )
    if "a percentage" in question.asks and not form.number.percent and other_percent:
        return "unfinished"  # 0.375 for 37.5\%
    no_percent = all(each.number and not each.number.percent for each in wanted)
    if form.number.percent and no_percent and question.asks & {"fraction", "decimal"}:
        return "unfinished"  # 37.5\% for \frac{3}{8}
    ways = {each.number.written for each in wanted if each.number and each.number.value == form.number.value}
    way = form.number.written
    if not ways or way in ways:
        return None
    if "scientific" in question.asks and "scientific" in ways:
        return "unfinished"
    if text in question.objects:
        return "restated"
    if form.number.value.denominator == 1:
        return None
    if "reduced" in question.asks and way == "unreduced":
        return "unfinished"
    for asked, refused in (("fraction", ("decimal", "periodic", "mixed")),
                           ("decimal", ("fraction", "unreduced", "mixed", "scientific")),
                           ("mixed", ("fraction", "unreduced", "decimal", "periodic"))):  # fmt: skip
        if asked in question.asks and way in refused and asked in ways and not question.asks & {"rounded"}:
            return "unfinished"
    return None


def _formula_fault(form: Form, wanted: Sequence[Form], question: Asked) -> Fault | None:
    given, golds = _sides_of(form), [side for each in wanted for side in _sides_of(each)]
    if form.kind == "relation" or any(each.kind == "relation" for each in wanted):
        found = arrangement(form.text)
        copied = found is not None and found in question.formulas
        return "restated" if copied and found not in {arrangement(each.text) for each in wanted} else None
    for side in given:
        if "primes" in question.asks and are_primes(side.tree):
            continue  # 2\cdot2\cdot3 for 2^2\cdot3
        if side.arranged in question.formulas and all(side.arranged != each.arranged for each in golds):
            return "restated"
        if not golds:
            continue
        if side.steps > max(each.steps for each in golds):
            return "restated" if side.arranged in question.formulas else "unfinished"
        if not left_to_evaluate(side.tree) <= frozenset().union(*(left_to_evaluate(each.tree) for each in golds)):
            return "unfinished"
        asked = [unlike for name, rules in _FORMS.items() if name in question.asks for unlike in rules]
        if any(unlike(side, golds) for unlike in asked) or _is_reducible(side, golds, strict=bool(asked)):
            return "unfinished"
    return None


def _sides_of(form: Form) -> list[_Side]:
    """Return a value as a formula, nothing where it is not understood."""
    tree = None if form.kind == "word" else parsed(form.text.replace(GROUP, ""))
    return [_Side(tree, *arranged(tree))] if tree is not None else []


def _not_factored(side: _Side, golds: Sequence[_Side]) -> bool:
    return not any(is_factored_as(side.arranged, each.arranged) for each in golds)


def _not_power(side: _Side, golds: Sequence[_Side]) -> bool:
    return all(each.tree[0] == "^" and each.tree[:2] != side.tree[:2] for each in golds)


def _is_less_split(side: _Side, golds: Sequence[_Side]) -> bool:
    return all(is_less_split(side.arranged, each.arranged) for each in golds)


def _is_reducible(side: _Side, golds: Sequence[_Side], strict: bool) -> bool:
    return all(has_common_factor(side.arranged, each.arranged, strict) for each in golds)


def _unlike(test: Callable[[Tree], bool], arrangement: bool = False) -> Callable[[_Side, Sequence[_Side]], bool]:
    """Return a rule that an answer breaks where `test` holds for it and for no gold."""

    def rule(side: _Side, golds: Sequence[_Side]) -> bool:
        def holds(each: _Side) -> bool:
            return test(each.arranged if arrangement else each.tree)

        return holds(side) and not any(map(holds, golds))

    return rule


_FORMS: dict[str, tuple[Callable[[_Side, Sequence[_Side]], bool], ...]] = {
    "factored": (_not_factored,),
    "expanded": (_unlike(has_product_of_sums, arrangement=True), _unlike(has_power_of_product)),
    "primes": (_unlike(lambda tree: not are_primes(tree)),),
    "a power": (_not_power,),
    "partial fractions": (_is_less_split,),
    "rationalized": (_unlike(has_root_below, arrangement=True),),
    "simplified": (
        _unlike(has_root_left, arrangement=True),
        _unlike(has_like_terms, arrangement=True),
        _unlike(has_power_of_product),
    ),
}
