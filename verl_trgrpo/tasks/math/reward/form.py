r"""The shape of an answer: a single value, a list, a tuple, an interval, a union of intervals or a matrix.

Reading the shape here keeps `(1,2)` apart from `[1,2]`, `\{1,2\}` and `1,2`, and makes an answer that lists several
candidates a list, which never equals a single value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from verl_trgrpo.tasks.math.reward.latex import ROW, matching_close, nesting, split_top_level
from verl_trgrpo.tasks.math.reward.number import Number, read_number
from verl_trgrpo.tasks.math.reward.units import split_unit

MAX_NESTING = 12
MAX_ITEMS = 100
MAX_NAMES = 20
r"""Each name with `\in` or `\approx` is one more level to read, over all that follows it."""

LIST, UNION, MATRIX = "list", "union", "matrix"


@dataclass(frozen=True)
class Atom:
    r"""A single value: `text` without the name in front (`x=`) and the unit behind.

    word: the answer is text, written as `\text{...}`.
    relation: an equation or inequality that is more than a name and a value.
    value: of an equation whose left side is no name, such as `AB=10`: what follows its last `=`, if that is finished.
    """

    text: str
    name: str | None = None
    unit: str | None = None
    number: Number | None = None
    word: bool = False
    relation: bool = False
    value: Form | None = None


@dataclass(frozen=True)
class Group:
    """Several forms. `kind` is LIST (unordered), UNION, MATRIX (of rows), or the two brackets, such as `(]`."""

    kind: str
    items: tuple[Form, ...]
    name: str | None = None


Form = Atom | Group

_VARIABLE = r"(?:[a-zA-Z]|\\(?!in\b|frac|sqrt|text)[a-zA-Z]+)(?:_(?:\w|\{[^{}]*\}))?'{0,2}"
_VARIABLES = rf"\({_VARIABLE}(?:,{_VARIABLE})*\)"
_NAME = re.compile(
    rf"({_VARIABLE}(?:{_VARIABLES})?|{_VARIABLES})(?:=(?!=)|\\(?:in|approx)(?![a-zA-Z]) ?)(.+)", re.DOTALL
)
_NAME_BEHIND = re.compile(rf"([^=]+)=({_VARIABLE})")
_NAME_SIGN = re.compile(r"\\(?:in|approx)(?![a-zA-Z])")
_RELATION = re.compile(r"\\leq(?![a-zA-Z])|\\geq(?![a-zA-Z])|[<>]")
_ANY_RELATION = re.compile(r"=|<|>|\\(?:leq|geq|neq|ne|equiv|approx|sim|in|notin)(?![a-zA-Z])")
_MATRIX = re.compile(r"\\begin\{([pbvBV]?matrix)\}(.*)\\end\{\1\}", re.DOTALL)
_REAL_LINE = Group("()", (Atom(r"-\infty"), Atom(r"\infty")))
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_NUMBER_AND_UNIT = re.compile(r"([^a-zA-Z]*[0-9])\s*([a-zA-Z][^{}]*)")
_NOT_EQUAL = re.compile(r"(?:(?<![0-9)])!|\\not)$")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_NUMERAL = re.compile(r"[0-9A-F]+_(?:[0-9]|\{[0-9]+\})")  # 52_8: another base is part of the answer
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+")


def read_forms(text: str) -> tuple[Form, ...]:
    """Return the readings of a normalized text; two only for `1,234`, which is a number or a list."""
    if nesting(text) > MAX_NESTING or len(_NAME_SIGN.findall(text)) > MAX_NAMES:
        return (Atom(text),)
    form = _read(text)
    return (form, _read_list(text.split(","))) if _GROUPED.fullmatch(text) else (form,)


def _read(text: str) -> Form:
    if (number := read_number(text)) is not None:
        return Atom(text, number=number)
    parts = split_top_level(text, ",")
    if len(parts) > 1:
        return _read_list(parts) if all(parts) and len(parts) <= MAX_ITEMS else Atom(text)
    parts = split_top_level(text, r"\cup")
    if 1 < len(parts) <= MAX_ITEMS and all(parts):
        return Group(UNION, tuple(map(_read, parts)))
    if match := _NAME.fullmatch(text):
        form = _read(split_top_level(match[2], "=")[-1])
        if not (isinstance(form, Atom) and form.relation):
            return replace(form, name=match[1])
    if (match := _NAME_BEHIND.fullmatch(text)) and (number := read_number(match[1])) is not None:
        return Atom(match[1], name=match[2], number=number)
    if text in (r"\mathbb{R}", r"\R"):
        return _REAL_LINE
    if interval := _read_inequality(text):
        return interval
    return _read_bracketed(text) or _read_atom(text)


def _read_list(parts: list[str]) -> Group:
    items: list[Form] = []
    for part in parts:
        form = _read(part)
        # A plus-minus sign makes a list within the list: `1\pm\sqrt{5},-2` has three values. A set is one value.
        flat = isinstance(form, Group) and form.kind == LIST and form.name is None and not part.startswith(r"\{")
        items.extend(form.items if isinstance(form, Group) and flat else [form])
    return Group(LIST, tuple(items))


def _read_bracketed(text: str) -> Form | None:
    if match := _MATRIX.fullmatch(text):
        rows = [split_top_level(row, "&") for row in match[2].split(ROW) if row.strip()]
        return Group(MATRIX, tuple(Group("row", tuple(map(_read, row))) for row in rows))
    if text.startswith(r"\{") and matching_close(text, 0) == len(text) - 2:
        inner = text[2:-2]
        if re.search(r"\\mid|[|:]", inner):
            return Atom(text)
        form = _read(inner)
        return form if isinstance(form, Group) and form.kind == LIST else Group(LIST, (form,))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and matching_close(text, 0) == len(text) - 1:
        parts = split_top_level(text[1:-1], ",")
        if len(parts) > 1 and all(parts) and len(parts) <= MAX_ITEMS:
            return Group(text[0] + text[-1], tuple(map(_read, parts)))
        if len(parts) == 1 and parts[0] and text[0] + text[-1] == "()":
            return _read(parts[0])
    return None


def _read_inequality(text: str) -> Group | None:
    r"""Read `a<x\leq b`, `x>a` and the like as intervals of the variable."""
    signs = _RELATION.findall(text)
    if len(signs) not in (1, 2) or "=" in text:
        return None
    parts = [part.strip() for part in _RELATION.split(text)]
    if not all(parts):
        return None
    if signs[0] in (">", r"\geq"):
        turn = {">": "<", r"\geq": r"\leq", "<": ">", r"\leq": r"\geq"}
        parts, signs = parts[::-1], [turn[sign] for sign in reversed(signs)]
    if any(sign in (">", r"\geq") for sign in signs):
        return None
    if len(signs) == 1:
        if re.fullmatch(_VARIABLE, parts[0]):
            parts, signs = [r"-\infty", *parts], ["<", *signs]
        elif re.fullmatch(_VARIABLE, parts[1]):
            parts, signs = [*parts, r"\infty"], [*signs, "<"]
        else:
            return None
    if not re.fullmatch(_VARIABLE, parts[1]):
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Group(brackets, (_read(parts[0]), _read(parts[2])), name=parts[1])


def _read_atom(text: str) -> Form:
    if match := _TEXT.fullmatch(text):
        inner = match[1].strip().strip("()").strip()
        number = read_number(inner)
        if number is None and (match := _NUMBER_AND_UNIT.fullmatch(inner)):
            value, unit = split_unit(rf"{match[1]}\text{{{match[2]}}}")
            if unit is not None and (number := read_number(value)) is not None:
                return Atom(value, unit=unit, number=number)
        return Atom(inner, number=number, word=number is None)
    if _NUMERAL.fullmatch(text):
        return Atom(text, word=True)
    if _PLUS_MINUS.search(text):
        plus = _PLUS_MINUS.sub(lambda sign: "+" if sign[0] == r"\pm" else "-", text)
        minus = _PLUS_MINUS.sub(lambda sign: "-" if sign[0] == r"\pm" else "+", text)
        return Group(LIST, (_read(plus.removeprefix("+")), _read(minus.removeprefix("+"))))
    value, unit = split_unit(text)
    relation = _ANY_RELATION.search(value) is not None
    last = _last_value(text) if relation else None
    return Atom(value, unit=unit, number=read_number(value), relation=relation, value=last)


def _last_value(text: str) -> Atom | None:
    """Return what follows the last `=`, if the text has no other relation and that is a single value."""
    *left, last = split_top_level(text, "=")
    signs = set(_ANY_RELATION.findall(text))
    if not left or not all(left) or not last or signs != {"="} or any(map(_NOT_EQUAL.search, left)):
        return None
    form = _read(last)
    return form if isinstance(form, Atom) and not form.relation else None
