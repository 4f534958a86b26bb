r"""Read a normalized mathematical answer: peel what surrounds the value, and split it into values.

Choice letter, qualifier, name, unit and currency are kept beside the value, which may be a number, a list, an interval, a
matrix and so on. Reading the shape here keeps `(1,2)` apart from `[1,2]`, `\{1,2\}` and `1,2`, and makes an answer that lists
several candidates a list, which never equals a single value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from verl_trgrpo.tasks.math.numbers import Number, read_number
from verl_trgrpo.tasks.math.spelling import (
    AND,
    GROUP,
    OR,
    ROW,
    brackets,
    enclosed,
    split_top_level,
    ungrouped,
)
from verl_trgrpo.tasks.math.units import Unit, in_base_units, number_in_words, read_unit, split_unit

# --- What surrounds a value ---------------------------------------------------------------------------------

_VARIABLE = r"(?:[a-zA-Z]|\\(?!in\b|frac|sqrt|text)[a-zA-Z]+)(?:_(?:\w|\{[^{}]*\}))?'{0,2}"
_VARIABLES = rf"\({_VARIABLE}(?:,{_VARIABLE})*\)"
SIMPLE_NAME = re.compile(rf"{_VARIABLE}(?:\^\{{-1\}})?(?:{_VARIABLES})?|{_VARIABLES}|\\vec\{{?{_VARIABLE}\}}?")
NAME_OF_FUNCTION = re.compile(rf"({_VARIABLE}(?:\^\{{-1\}})?)\(({_VARIABLE})\)")
_MEMBER = re.compile(rf"({_VARIABLE}|{_VARIABLES})\\(?:in|approx)(?![a-zA-Z]) ?(.+)", re.DOTALL)
_NAME_BEHIND = re.compile(rf"([^=]+)=({_VARIABLE})")
# Left sides that name a quantity: |AB|, \angle ABC, \frac{dy}{dx}, \tan\theta, P(A|B), f(g(x)), \sum ..., \text{Area}
_QUANTITY = re.compile(
    r"(?:m?\\(?:angle|triangle|overline|vec|hat|bar|text|mathbb|sin|cos|tan|cot|sec|csc|det|sum|prod|lim|int|gcd|max|min|arg)(?![a-zA-Z])"
    r"|\||\\\||\\frac\{[^{}0-9]*\}\{[^{}0-9]*\}|\([a-zA-Z]\\circ|[a-zA-Z](?:_\w|_\{[^{}]*\})?'*[(\[]|[A-Z]{2,}$).*",
    re.DOTALL,
)
_QUALIFIER = re.compile(
    r",?(?:\\text\{)?[\s,]*\(?(?:for ?(?:all|any|every|each)|where)(?![a-zA-Z])(?P<rest>.*)|,\(?[kmnl]\\in ?\\mathbb\{Z\}\)?$",
    re.IGNORECASE | re.DOTALL,
)  # for all real x; k\in\mathbb{Z}
_QUALIFYING = re.compile(
    r"\\text|\\in|\\mathbb\{[RCZN]\}|\\R|[{}(),.\s]|\b(?:real|reals|complex|numbers?|integers?|values?|of|the|constants?|arbitrary|is|are|an|any"
    r"|and|some)\b|(?<![a-zA-Z])[a-zA-Z](?:_\w)?(?![a-zA-Z])",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    # \text{(C) } 12
    r"\\text\{\s*(?:(?:option|choice|answer)\b:?\s*\(?(?P<a>[A-J])\b\)?|\(?(?P<e>[A-J])[).:])\s*(?P<inner>[^{}]*)\}(?P<value>.*)"
    r"|(?:\\text\{\s*)?(?:option|choice) ?\}? ?(?P<b>[A-J])"
    r"|(?:\((?P<c>[A-J])\)|(?P<d>[A-J])[).:])(?P<rest>[-0-9\\a-zA-Z$].*)",  # C) 12
    re.IGNORECASE | re.DOTALL,
)


def split_name(text: str) -> tuple[str, str] | None:
    """Return the name and the rest of `name=value`, where the left side names a quantity; None for other equations."""
    parts = split_top_level(text, "=")
    left = parts[0]
    if len(parts) > 1 and all(parts) and not _NOT_EQUAL.search(left) and len(left) <= _MAX_NAME:
        if SIMPLE_NAME.fullmatch(left):
            return left, parts[-1]
        if _QUANTITY.fullmatch(left) and not re.search(r"[+<>]|(?<!\{)-|\\(?:leq|geq|neq)", left.split("(")[0]):
            return left, parts[-1]
    if match := _MEMBER.fullmatch(text):
        return match[1], match[2]
    return None


def split_qualifier(text: str) -> str:
    """Return `text` without a qualifier that does not restrict it, such as "for all real x" or "where c is a constant"."""
    match = _QUALIFIER.search(text)
    if match and match.start() > 0 and not _QUALIFYING.sub("", match["rest"] or "").strip(" '"):
        return text[: match.start()].rstrip(" ,(")
    return text


# --- Values -------------------------------------------------------------------------------------------------

_MAX_NESTING, _MAX_ITEMS, _MAX_NAME = 12, 150, 60
_MAX_NAMES = 20  # each name with `\in` or `\approx` is one more level to read, over all that follows it
VALUE, WORD, RELATION, LIST, UNION, MEET, MATRIX, CASES, WITHOUT, RATIO, CHOICE = (
    "value", "word", "relation", "list", "union", "meet", "matrix", "cases", "without", "ratio", "choice",
)  # fmt: skip


@dataclass(frozen=True)
class Form:
    r"""An answer as it was read: a single value, or several.

    Args:
        kind: of a single value VALUE, WORD (written as `\text{...}`) or RELATION (an equation or inequality that is more than
            a name and a value); of several LIST (unordered), UNION, MEET (conditions that hold together), MATRIX (of rows), CASES
            (rows of a value and its condition), WITHOUT (a set and what is left out of it), RATIO (`3:2`), CHOICE (a letter
            and, if given, its value), or the two brackets, such as `(]`.
        text: of a single value, without the name in front (`x=`) and the unit behind; of a CHOICE the letter; of an inequality
            that was read as a set what is written.
        items: of several.
        name: left of `=` or `\in`, or the variable of an inequality.
        unit: names of the unit with their powers.
        number: of a VALUE that is a number.
        last: of an equation whose left side is not a name, such as `x+y=10`: what follows its last `=`, if that is finished.
        chain: values in front of the last `=`, such as `2+3` of `x=2+3=5`, which have to be right, too.
    """

    kind: str
    text: str = ""
    items: tuple[Form, ...] = ()
    name: str | None = None
    unit: Unit | None = None
    number: Number | None = None
    last: Form | None = None
    chain: tuple[str, ...] = ()


_RELATION = re.compile(r"\\leq(?![a-zA-Z])|\\geq(?![a-zA-Z])|[<>]")
_ANY_RELATION = re.compile(
    r"=|<|>|\\(?:leq|geq|neq|equiv|approx|sim|in|notin|mid|nmid|subset|perp|parallel)(?![a-zA-Z])"
)
_MATRIX = re.compile(r"[(\[]?\\begin\{([pbvBV]?(?:small)?matrix|array)\}(.*)\\end\{\1\}[)\]]?", re.DOTALL)
_REAL_LINE = Form("()", items=(Form(VALUE, r"-\infty"), Form(VALUE, r"\infty")))
# What words by themselves mean, without a plural
_MEANINGS = {
    **dict.fromkeys(["no solution", "no real solution", "empty set", "the empty set", "no such number"], r"\emptyset"),
    "infinity": r"\infty", "infinitely many solution": r"\text{infinitely many}", "all real number": r"\mathbb{R}",
    "all real": r"\mathbb{R}", "all nonzero real number": r"\mathbb{R}\setminus\{0\}", "all positive real number": r"(0,\infty)",
}  # fmt: skip
_COMPOUND = re.compile(r"([0-9]+(?:\.[0-9]+)?)\\text\{ ?([a-zA-Z]+) ?\}")  # 2\text{ h }30\text{ min}
_NOT_EQUAL_TO = re.compile(rf"({_VARIABLE})\\neq ?(-?[0-9./]+(?:,-?[0-9./]+)*)")  # x\neq1,2
_CASES = re.compile(r"(?:(?:\\\{)?\\begin\{array\}|\\begin\{cases\})(.*)\\end\{(?:array|cases)\}(?:\\\})?", re.DOTALL)
_CONDITION = re.compile(r"^\\text\{ ?(?:if|for|when|where) ?\}|^(?:if|for|when)(?![a-z])|[,.;]$")  # \text{if } x>0,
_POINT = re.compile(r"([A-Z])(\(.*,.*\))", re.DOTALL)  # P(1,2)
_TEXT_ALONE = re.compile(r"\\text\{([^{}]*)\}")
CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![a-zA-Z])|[^a-zA-Z\\])+")  # 3\sqrt{2}
_NOT_EQUAL = re.compile(r"(?:(?<![0-9)])!|\\not)$")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_NUMERAL = re.compile(r"\(?([0-9A-F]+)\)?_(?:([0-9])|\{([0-9]+)\})")  # 52_8: another base is part of the answer
_SET_OF = re.compile(
    rf"\\\{{({_VARIABLE})(?:\\in(?:\\mathbb\{{R\}}|\s*\(-\\infty,\+?\\infty\)))?(?:\\mid|:|\\vert|\|)(.+)\\\}}",
    re.DOTALL,
)
_FRENCH = re.compile(r"([\]\[])([^\[\],]+,[^\[\],]+)([\]\[])")
_TWO_WAYS = re.compile(rf"[-+]?[0-9]+(?:{GROUP}[0-9]{{3}}|(?:{GROUP}[0-9]+){{5,}})")
_UNMERGED = re.compile(rf"[(\[][^()\[\],]*{GROUP}[^()\[\],]*[)\]]|\\\{{[^{{}},]*{GROUP}[^{{}},]*\\\}}")


@lru_cache(maxsize=4096)
def read_forms(text: str, *, gold: bool = False) -> tuple[Form, ...]:
    """Return the readings of a normalized text; two where commas may separate thousands or values, as in `1,234`.

    In a ground truth commas separate thousands where they can, so that `x=1,250` does not take `(1,250)`. Two are read both
    ways: a bare `15,450`, which public data also write for two values, and a number longer than anybody writes.
    """
    if (
        any(depth > _MAX_NESTING for _, depth in brackets(text))
        or text.count(r"\in") + text.count(r"\approx") > _MAX_NAMES
    ):
        return (Form(VALUE, text),)
    if choice := _read_choice(text):
        return (choice,)
    text = split_qualifier(text)
    if GROUP not in text:
        return (_read(text),)
    kept = _UNMERGED.sub(lambda match: match[0].replace(GROUP, ","), text)
    texts = [*dict.fromkeys([kept.replace(GROUP, ""), text.replace(GROUP, ",")])]
    return tuple(map(_read, texts[:1] if gold and not _TWO_WAYS.fullmatch(text) else texts))


def _read_choice(text: str) -> Form | None:
    r"""Read `\text{(C) } 12`, `C) 12` and the like; a letter alone in `\text` is a word."""
    if (match := _CHOICE.fullmatch(text)) is None:
        return None
    inner = (match["inner"] or "").strip()
    value = (match["value"] or match["rest"] or "").strip()
    if inner:
        value = inner + value if re.fullmatch(r"[-0-9.,/ ]+", inner) else rf"\text{{{inner}}}{value}"
    letter = next(filter(None, match.group("a", "b", "c", "d", "e")))
    if not letter.isupper() and not value:
        return None
    return Form(CHOICE, letter.upper(), items=(_read(value),) if value else ())


def _read(text: str) -> Form:
    text = ungrouped(text.lstrip(AND + OR))
    if (number := read_number(text)) is not None:
        return Form(VALUE, text, number=number)
    if match := _NOT_EQUAL_TO.fullmatch(text):
        return Form(WITHOUT, text, (_REAL_LINE, Form(LIST, items=tuple(map(_read, match[2].split(","))))), match[1])
    if len(split_top_level(text, ",")) > 1:
        parts = _parts(text, ",")
        return _read_list(parts) if parts else Form(VALUE, text)
    if parts := _parts(text, r"\cup"):
        return Form(UNION, items=tuple(map(_read, parts)))
    if len(parts := _parts(text, r"\setminus")) == 2:
        return Form(WITHOUT, items=tuple(map(_read, parts)))
    if named := split_name(text):
        form = _read(named[1])
        if form.kind != RELATION:
            return replace(form, name=named[0], chain=_constants(split_top_level(text, "=")[1:-1]))
    if (match := _NAME_BEHIND.fullmatch(text)) and (number := read_number(match[1])) is not None:
        return Form(VALUE, match[1], name=match[2], number=number)
    if text == r"\mathbb{R}":
        return _REAL_LINE
    return (
        _read_set_builder(text)
        or _read_inequality(text)
        or _read_bracketed(text)
        or _read_ratio(text)
        or _read_single(text)
    )


def _parts(text: str, separator: str) -> list[str]:
    """Return the parts of `text`; none where it has one part, or too many, or an empty one."""
    parts = split_top_level(text, separator)
    return parts if 1 < len(parts) <= _MAX_ITEMS and all(parts) else []


def _read_list(parts: list[str]) -> Form:
    items: list[Form] = []
    for part in parts:
        form = _read(part)
        # A plus-minus sign makes a list within the list: `1\pm\sqrt{5},-2` has three values. A set is one value.
        flat = form.kind == LIST and form.name is None and not part.startswith(r"\{")
        items.extend(form.items if flat else [form])
    found = Form(LIST, items=tuple(items))
    names = {form.name if form.kind not in (VALUE, WORD, RELATION) else None for form in items}
    if len(names) == 1 and None not in names and not any(part.startswith(OR) for part in parts):
        both = Form(MEET, items=found.items, name=items[0].name)  # `x>1, x<5`, while `x<1, x>5` can only mean "or"
        if real_set(both) or any(part.startswith(AND) for part in parts):
            return both
    return found


def _read_set_builder(text: str) -> Form | None:
    r"""Read `\{x\mid1<x<2\}` as the interval."""
    match = _SET_OF.fullmatch(text)
    form = _read(match[2].strip()) if match else None
    return form if match and form and form.name == match[1] and form.kind not in (VALUE, WORD) else None


def _read_bracketed(text: str) -> Form | None:
    if (match := _CASES.fullmatch(text)) and (text[:2] == r"\{" or "cases" in text):
        rows = [row.strip() for row in match[1].split(ROW) if row.strip()]
        if not any("&" in row for row in rows):
            return _read_list([row.rstrip(",.;") for row in rows])
        cells = [
            [_CONDITION.sub("", _CONDITION.sub("", cell.strip()).strip()) for cell in row.split("&")] for row in rows
        ]
        return Form(CASES, items=tuple(Form("row", items=tuple(map(_read, row))) for row in cells))
    if (match := _POINT.fullmatch(text)) and enclosed(match[2]) and (form := _read(match[2])).kind == "()":
        return replace(form, name=match[1]) if form.items[0].number is not None else None
    if match := _MATRIX.fullmatch(text):
        rows = [split_top_level(row, "&") for row in match[2].split(ROW) if row.strip()]
        return Form(MATRIX, items=tuple(Form("row", items=tuple(map(_read, row))) for row in rows))
    if (match := _FRENCH.fullmatch(text)) and (match[1] == "]" or match[3] == "["):
        text = ("(" if match[1] == "]" else "[") + match[2] + (")" if match[3] == "[" else "]")
    if text.startswith(r"\{") and enclosed(text):
        form = _read(text[2:-2])
        return form if form.kind == LIST else Form(LIST, items=(form,))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and enclosed(text):
        if parts := _parts(text[1:-1], ","):
            return Form(text[0] + text[-1], items=tuple(map(_read, parts)))
        if text[0] + text[-1] == "()":
            return _read(text[1:-1])
    return None


def _read_inequality(text: str) -> Form | None:
    r"""Read `a<x\leq b`, `x>a`, `x\neq a` and the like as sets of the variable."""
    if match := re.fullmatch(rf"({_VARIABLE})\\neq ?(.+)", text):
        return Form(WITHOUT, text, (_REAL_LINE, Form(LIST, items=(_read(match[2]),))), match[1])
    if match := re.fullmatch(rf"\|({_VARIABLE})\|(<|>|\\leq|\\geq) ?([^-|=<>]+)", text):
        name, sign, bound = match.groups()
        less = sign in ("<", r"\leq")
        between = f"-{bound}{sign} {name}{sign} {bound}" if read_number(bound) else ""
        beyond = [_read_inequality(f"{name}{sign} {bound}"), _read_inequality(f"-{bound}{sign} {name}")]
        if between and less:
            return _read_inequality(between)
        if between and all(beyond):
            return Form(UNION, items=tuple(filter(None, beyond)), name=name)
    signs = _RELATION.findall(text)
    parts = [part.strip() for part in _RELATION.split(text)]
    if len(signs) not in (1, 2) or "=" in text or not all(parts):
        return None
    if signs[0] in (">", r"\geq"):
        turned = {">": "<", r"\geq": r"\leq", "<": ">", r"\leq": r"\geq"}
        parts, signs = parts[::-1], [turned[sign] for sign in reversed(signs)]
    if len(signs) == 1:
        before = re.fullmatch(_VARIABLE, parts[0]) is not None
        parts, signs = ([r"-\infty", *parts], ["<", *signs]) if before else ([*parts, r"\infty"], [*signs, "<"])
    if not re.fullmatch(_VARIABLE, parts[1]) or not {*signs} <= {"<", r"\leq"}:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Form(brackets, text, (_read(parts[0]), _read(parts[2])), parts[1])


def _read_ratio(text: str) -> Form | None:
    """Read `3:2`, `3 to 2` and times of day such as `12:30 pm`."""
    value, unit, _ = split_unit(text)
    parts = _parts(re.sub(r"\\text\{ ?to ?\}", ":", value), ":")
    if not parts or _ANY_RELATION.search(value):
        return None
    return Form(RATIO, ":".join(parts), items=tuple(map(_read, parts)), unit=unit)


def _read_single(text: str) -> Form:
    if match := _TEXT_ALONE.fullmatch(text):
        return _read_words(match[1].strip().strip("()").strip())
    if re.fullmatch(r"[^\W\d_]{2,}(?:[ -][^\W\d_]+){0,3}", text) and (form := _read_words(text)).kind != WORD:
        return form
    if match := _NUMERAL.fullmatch(text):
        return Form(WORD, f"{match[1]}_{match[2] or match[3]}")
    if compound := _read_compound(text):
        return compound
    if _PLUS_MINUS.search(text):
        plus = _PLUS_MINUS.sub(lambda sign: "+" if sign[0] == r"\pm" else "-", text)
        minus = _PLUS_MINUS.sub(lambda sign: "-" if sign[0] == r"\pm" else "+", text)
        return Form(LIST, items=(_read(plus.removeprefix("+")), _read(minus.removeprefix("+"))))
    if (
        text.endswith(r"\%") and not text.endswith(r"\%\%") and read_number(text) is None
    ):  # p\%, where the sign is often part of the question
        return replace(_read_single(text[:-2].strip()), unit=(("percent", 1),))
    value, unit, factor = split_unit(text)
    number = read_number(value)
    if number is not None and factor != 1:
        place = number.last_place and number.last_place * factor
        number = replace(number, value=number.value * factor, last_place=place)
        value = str(number.value)
    elif factor != 1:
        value, unit = text, None
    if _ANY_RELATION.search(value):
        return Form(RELATION, value, unit=unit, last=_last_value(text))
    return Form(VALUE, value, unit=unit, number=number)


def _read_words(words: str) -> Form:
    if (number := number_in_words(words)) is not None:
        return Form(VALUE, str(number), number=Number(Fraction(number)))
    if meaning := _MEANINGS.get(words.casefold().removesuffix("s")):
        return _read(meaning)
    parts = re.split(rf"\s*(?:,{AND}?|\band\b)\s*", words)
    if 1 < len(parts) < 10 and OR not in words and all(re.fullmatch(r"[^\W\d_]+", part) for part in parts):
        return Form(LIST, items=tuple(Form(WORD, part) for part in parts))
    return Form(WORD, words)


def _read_compound(text: str) -> Form | None:
    """Read `2\\text{ hours }30\\text{ minutes}` as a number of the first unit."""
    parts = _COMPOUND.findall(text)
    if len(parts) < 2 or _COMPOUND.sub("", text):
        return None
    units = [read_unit(words) for _, words in parts]
    factors = [in_base_units(unit) if unit else (Fraction(0), ()) for unit in units]
    if len({base for _, base in factors}) > 1 or any(a <= b for (a, _), (b, _) in pairwise(factors)):
        return None
    value = (
        sum(Fraction(number) * factor for (number, _), (factor, _) in zip(parts, factors, strict=True)) / factors[0][0]
    )
    return Form(VALUE, str(value), unit=units[0], number=Number(value))


def _last_value(text: str) -> Form | None:
    """Return what follows the last `=`, if the text has no other relation and that is a single value."""
    *left, last = split_top_level(text, "=")
    signs = set(_ANY_RELATION.findall(text))
    if not left or not all(left) or not last or signs != {"="} or any(map(_NOT_EQUAL.search, left)):
        return None
    form = _read(last)
    return None if form.items or form.kind == RELATION else replace(form, chain=_constants(left))


def _constants(parts: list[str]) -> tuple[str, ...]:
    return tuple(part for part in parts if CONSTANT.fullmatch(part))


# --- Sets of real numbers --------------------------------------------------------------------------------------------

Piece = tuple[Fraction | float, bool, Fraction | float, bool]
"""An interval: low end, whether it belongs, high end, whether it belongs."""


def real_set(form: Form) -> tuple[Piece, ...] | None:
    r"""Return a set of real numbers as sorted, merged intervals; None where its ends are not numbers or it is another thing.

    `[0,1)\cup[1,2]` and `[0,2]` are equal, and so are `x\neq2` and `(-\infty,2)\cup(2,\infty)`.
    """
    pieces = _pieces(form)
    if pieces is None:
        return None
    merged: list[Piece] = []
    for low, low_in, high, high_in in sorted(pieces, key=lambda p: (p[0], not p[1])):
        if merged and (low < merged[-1][2] or (low == merged[-1][2] and (low_in or merged[-1][3]))):
            last = merged[-1]
            end = max((last[2], last[3]), (high, high_in))
            merged[-1] = (last[0], last[1], *end)
        else:
            merged.append((low, low_in, high, high_in))
    return tuple(merged)


def _pieces(form: Form) -> list[Piece] | None:
    if form.kind in ("()", "(]", "[)", "[]") and len(form.items) == 2:
        low, high = map(_end, form.items)
        valid = low is not None and high is not None and low < high
        return [(low, form.kind[0] == "[", high, form.kind[1] == "]")] if valid else None  # type: ignore[list-item]
    if form.kind == WITHOUT:
        kept, out = map(_pieces, form.items)
        return None if kept is None or out is None else _difference(kept, out)
    if form.kind == MEET:
        kept = _pieces(form.items[0])
        for item in form.items[1:]:
            out = None if kept is None else _pieces(Form(WITHOUT, items=(_REAL_LINE, item)))
            kept = None if out is None else _difference(kept or [], out)
        return kept
    if form.kind in (UNION, LIST):
        parts = [_pieces(item) for item in form.items]
        return None if None in parts else [piece for part in parts for piece in part or []]
    if form.kind == VALUE and form.number is not None and not form.unit:
        return [(form.number.value, True, form.number.value, True)]
    return None


def _end(form: Form) -> Fraction | float | None:
    infinity = {r"\infty": float("inf"), r"+\infty": float("inf"), r"-\infty": float("-inf")}.get(form.text)
    return form.number.value if form.number is not None else infinity


def _difference(kept: list[Piece], out: list[Piece]) -> list[Piece]:
    for low, low_in, high, high_in in out:
        rest: list[Piece] = []
        for a, a_in, b, b_in in kept:
            left = (a, a_in, *min((b, b_in), (low, not low_in)))
            start_in = (a_in or a < high) and (not high_in or high < a)
            right = (max(a, high), start_in, b, b_in)
            rest += [p for p in (left, right) if p[0] < p[2] or (p[0] == p[2] and p[1] and p[3])]
        kept = rest
    return kept
