"""What the shape of a form is, where it could be read in more than one way: a point, a ranking, an interval, a run of choices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from verl_trgrpo.judge.forms import REAL_LINE, Form, same_sets
from verl_trgrpo.judge.integers import ALL_INTEGERS, integers_of

CHOICES = re.compile(r"[A-J]+")  # BD


def may_be_point(gold: Form, answer: Form) -> bool:
    """Return whether a bare list may be meant as a point; neither a set nor the values of one variable are."""
    if gold.kind != "list" or gold.braces:
        return False
    return not gold.items[0].name or (names_variables(gold) and not answer.name)


def has_other_names(gold: Form, answer: Form) -> bool:
    """Return whether a value of the answer has another name than the one in its place: `x=1, y=2` for `(a,b)=(1,2)`."""
    wanted = (gold.name or "").strip("()").split(",")
    return len(wanted) == len(answer.items) and any(
        item.name not in (None, name) for item, name in zip(answer.items, wanted, strict=True)
    )


def is_ranking(gold: Form) -> bool:
    """Return whether a list is the first letters of the alphabet in another order: `C, A, B`."""
    letters = [item.text for item in gold.items]
    return len(letters) > 2 and letters != sorted(letters) and sorted(letters) == [*"ABCDEFGHIJ"[: len(letters)]]


def numbers_in(form: Form) -> list[Fraction] | None:
    values = [item.number.value for item in form.items if item.number and not (item.unit or item.number.percent)]
    return values if len(values) == len(form.items) else None


def is_one_value(form: Form) -> bool:
    return form.kind == "list" and len(form.items) == 1 and form.items[0].text != r"\emptyset"


def names_variables(gold: Form) -> bool:
    """Return whether each value of a list has its own name, as in `x=1, y=2`; `x_1=1, x_2=2` are values of one variable."""
    names = [(item.name or "").partition("_")[0] for item in gold.items]
    return "" not in names and len(set(names)) == len(names)


def is_choice_list(gold: Form, answer: Form) -> bool:
    """Return whether `BD` is given for `B, D`, or the other way round."""
    listed, run = (gold, answer) if gold.items else (answer, gold)
    letters = "".join(sorted(item.text for item in listed.items)) if listed.kind == "list" else ""
    return bool(CHOICES.fullmatch(letters)) and "".join(sorted(run.text)) == letters and not run.items


def cover_all(conditions: Sequence[Form]) -> bool:
    """Return whether one of the conditions holds for each integer, or for each real number."""
    together = Form("list", items=tuple(conditions))
    return integers_of(together) == ALL_INTEGERS or same_sets(REAL_LINE, together)


def is_no_interval(form: Form) -> bool:
    values = numbers_in(form) or []
    return len(values) > 2 or (len(values) == 2 and values[0] > values[1])


def as_point(form: Form) -> Form:
    """Return a row or column as a point, and other forms as they are."""
    rows = [row.items for row in form.items]
    if form.kind != "matrix" or not (len(rows) == 1 or all(len(row) == 1 for row in rows)):
        return form
    return replace(form, kind="()", items=tuple(entry for row in rows for entry in row))


def components(form: Form) -> str:
    """Return a vector of numbers as the sum of its components, and such a sum as it is."""
    form = as_point(form)
    if form.kind == "()" and 1 < len(form.items) < 4 and numbers_in(form):
        return "+".join(f"({item.text}){letter}" for item, letter in zip(form.items, "ijk", strict=False))
    return form.text if form.kind == "value" and form.number is None and "j" in form.text else ""
