r"""Read a normalized mathematical answer: peel what surrounds the value, and split it into values.

Choice letter, qualifier, name, unit and currency are kept beside the value, which may be a number, a list, an interval, a
matrix and so on. Reading the shape here keeps `(1,2)` apart from `[1,2]`, `\{1,2\}` and `1,2`, and makes an answer that lists
several candidates a list, which never equals a single value.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import cast

from verl_trgrpo.judge.forms import (
    COMPLEX,
    CONSTANT,
    NAME_BEHIND,
    NOT_EQUAL,
    QUANTITY,
    REAL_LINE,
    VARIABLE,
    Form,
    Kind,
    has_members,
    is_left_side,
    is_variable,
    split_name,
)
from verl_trgrpo.judge.grammar import MONTH, Integers, Pieces, read_condition, read_parts, read_pieces, read_sentence
from verl_trgrpo.judge.integers import class_in_words, integers_of, several_residues
from verl_trgrpo.judge.numbers import Number, read_number
from verl_trgrpo.judge.spelling import AND, GROUP, OR, ROW, brackets, enclosed, split_top_level, ungrouped
from verl_trgrpo.judge.tokens import has_labels
from verl_trgrpo.judge.units import UNKNOWN, fraction_in_words, in_base_units, number_in_words, read_unit, split_unit

# --- What surrounds a value ---------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"\\text\{\s*(?:(?:option|choice|answer)\b:?\s*\(?(?P<a>[A-J])\b\)?|\(?(?P<e>[A-J])[).:])\s*(?P<inner>[^{}]*)\}(?P<value>.*)"
    r"|(?:\\text\{\s*)?(?:option|choice) ?\}? ?\(?(?P<b>[A-J])\)?|(?-i:(?P<f>[A-J]))\)"
    r"|(?:\((?P<c>[A-J])\)|(?P<d>[A-J])[).:])(?P<rest>[-0-9\\a-zA-Z$(\[{].*)",
    re.IGNORECASE | re.DOTALL,
)  # \text{(C) } 12; Option (C); C); (C)12; C.12
_MORE = re.compile(rf"(?:\\text\{{ ?)?(?:[,;={AND}{OR}]|and\b|or\b)")  # and (D)

# --- Values -------------------------------------------------------------------------------------------------

_MAX_NESTING, _MAX_ITEMS = 12, 150
_MAX_NAMES = 20  # each name with `\in` or `\approx` is one more level to read, over all that follows it
_RELATION = re.compile(r"\\leq(?![a-zA-Z])|\\geq(?![a-zA-Z])|[<>]")  # a<b; a\leq b
_ANY_RELATION = re.compile(
    r"=|<|>|\\(?:leq|geq|neq|equiv|approx|sim|in|notin|mid|nmid|subset|perp|parallel)(?![a-zA-Z])"
)  # a=b; 3\mid n; n\equiv 1
_MATRIX = re.compile(
    r"[(\[]?\\begin\{([pbB]?(?:small)?matrix|array)\}((?:(?!\\begin).)*)\\end\{\1\}[)\]]?", re.DOTALL
)  # \begin{pmatrix}1&2\end{pmatrix}
_TRANSPOSED = re.compile(r"([(\[\\].*[)\]}])\^\{?(?:T|\\(?:top|intercal)|\\text\{ ?T\}|t)\}?", re.DOTALL)  # (1,2)^T
# What words by themselves mean, without a plural
_MEANINGS = {
    **dict.fromkeys(["no solution", "no real solution", "empty set", "the empty set", "no such number", "none"], r"\emptyset"),
    **dict.fromkeys(["infinity", "infinitely many", "infinitely many solution"], r"\infty"), "all real number": r"\mathbb{R}",
    "all real": r"\mathbb{R}", "all nonzero real number": r"\mathbb{R}\setminus\{0\}", "all positive real number": r"(0,\infty)",
    "all integer": r"\mathbb{Z}",
}  # fmt: skip
_COMPOUND = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?)\\text\{ ?([a-zA-Z]+) ?\}")  # 2\text{ h }30\text{ min}
_UNEQUAL = re.compile(rf"({VARIABLE})\\neq ?([^,]+(?:,-?[0-9./]+)*)")  # x\neq 1,2
_ABSOLUTE = re.compile(rf"\|(?!{COMPLEX})({VARIABLE})\|(<|>|\\leq|\\geq) ?([^-|=<>]+)")  # |x|<3
_CASES = re.compile(
    r"(?:(?:\\\{)?\\begin\{array\}|\\begin\{cases\})(.*)\\end\{(?:array|cases)\}(?:\\\})?", re.DOTALL
)  # \begin{cases}x&x>0\end{cases}; \{\begin{array}x&x>0\end{array}
_POINT = re.compile(r"([A-Z])(\(.*,.*\))", re.DOTALL)  # P(1,2)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")  # \text{east}
_WORDS = re.compile(r"\\text\{[^{}]*\}(?:\\text\{[^{}]*\}|[0-9]|[A-Z](?![a-z_^(]))*")  # \text{east}; \text{Type}II
_PLAIN_WORDS = re.compile(r"[^\W\d_]{2,}(?:[0-9]+[a-z]{0,2})?(?:[ -][^\W_]+){0,6}")  # the series converges; May5
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")  # 1\pm\sqrt{5}
_NUMERAL = re.compile(r"\(?([0-9A-F]+)\)?_(?:([0-9])|\{\(?([0-9]+)\)?\})")  # 52_8: another base is part of the answer
_SET_OF = re.compile(
    rf"\\\{{({VARIABLE})(?:\\in(?:\\mathbb\{{R\}}|\s*\(-\\infty,\+?\\infty\)))?(?:\\mid|:|\\vert|\|)(.+)\\\}}",
    re.DOTALL,
)  # \{x\mid 1<x<2\}; \{x\in\mathbb{R}:x>2\}
_MULTIPLES = re.compile(
    r"\\\{([^|:]+?)(?:\\mid|:|\\vert|\|) ?([klmn])\\in ?\\mathbb\{Z\}\\\}"
)  # \{4k\mid k\in\mathbb{Z}\}
_LOGICAL_OR = re.compile(r"\\(?:vee|lor)(?![a-zA-Z]) ?")  # x<1\vee x>2
_FRENCH = re.compile(r"([\]\[])([^\[\],]+,[^\[\],]+)([\]\[])")  # ]1,2[
_TWO_WAYS = re.compile(
    rf"(?:[a-zA-Z]=(?=[0-9]+{GROUP}[0-9]+{GROUP}))?[-+]?[0-9]+(?:{GROUP}[1-9][0-9]*)+"
)  # 15\ue001450
_UNMERGED = re.compile(
    rf"[(\[](?![^()\[\]]*(?:\*|\\times|\\cdot))[^()\[\],]*{GROUP}[^()\[\],]*[)\]]|\\\{{[^{{}},]*{GROUP}[^{{}},]*\\\}}"
)  # (1\ue001250), but not (5\ue001000\cdot2); \{1\ue001250\}


@lru_cache(maxsize=4096)
def read_forms(text: str, *, gold: bool = False) -> tuple[Form, ...]:
    """Return the readings of a normalized text; two where commas may separate thousands or values, as in `1,234`.

    In a ground truth commas separate thousands, so that `x=1,250` does not take `(1,250)`, but for bare numbers such as `15,450`,
    which public data also write for several values, and `x=120,210,312`.
    """
    if (
        any(depth > _MAX_NESTING for _, depth in brackets(text))
        or text.count(r"\in") + text.count(r"\approx") > _MAX_NAMES
    ):
        return (Form("value", text),)
    if not has_labels(text) and (choice := _read_choice(text)):
        return (choice,)
    if GROUP not in text:
        return (_read(text),)
    kept = _UNMERGED.sub(lambda match: match[0].replace(GROUP, ","), text)
    texts = [*dict.fromkeys([kept.replace(GROUP, ""), text.replace(GROUP, ",")])]
    return tuple(map(_read, texts[:1] if gold and not _TWO_WAYS.fullmatch(text) else texts))


def _read_approximated(text: str) -> Form | None:
    r"""Read an exact value with a decimal beside it, `\sqrt2\approx1.41`, but not `x\approx5`."""
    parts = split_top_level(text, r"\approx")
    if len(parts) != 2 or is_variable(parts[0]):
        return None
    form, decimal = map(_read_value, parts)
    number = decimal.number
    if number is None or number.last_place is None or form.items or form.kind != "value" or decimal.unit != form.unit:
        return None
    if number.percent:
        number = Number(number.value / 100, last_place=number.last_place / 100)
    return replace(form, approximation=number)


def _read_choice(text: str) -> Form | None:
    r"""Read `\text{(C) } 12`, `C) 12` and the like; a letter alone in `\text` is a word."""
    if (match := _CHOICE.fullmatch(text)) is None:
        return None
    inner = (match["inner"] or "").strip()
    value = (match["value"] or match["rest"] or "").strip()
    if inner:
        value = inner + value if re.fullmatch(r"[-0-9.,/ ]+", inner) else rf"\text{{{inner}}}{value}"
    if _MORE.match(value):
        return None
    letter = next(filter(None, match.group("a", "b", "c", "d", "e", "f")))
    return Form("choice", letter.upper(), items=(_read(value),) if value else ())


def _read(text: str) -> Form:
    """Read one part: an answer, the content of brackets, a cell."""
    text = ungrouped(text.lstrip(AND + OR))
    if r"\text" in text and MONTH.search(text) and (date := read_sentence(_flat(text))):
        return Form("word", date)  # 5\text{ March}; \text{July }4,1976
    residues = several_residues(text) if r"\equiv" in text else None
    return residues or _read_around(text) or _read_value(text)


def _read_value(text: str) -> Form:
    """Read a text without clauses around it."""
    text = ungrouped(text.lstrip(AND + OR))
    if (number := read_number(text)) is not None:
        return Form("value", text, number=number)
    if text[:1] == "]" or text[-1:] == "[":
        text = _FRENCH.sub(lambda m: ("(" if m[1] == "]" else "[") + m[2] + (")" if m[3] == "[" else "]"), text)
    if (r"\lor" in text or r"\vee" in text) and text[:2] != r"\{" and _ANY_RELATION.search(text):
        text = _LOGICAL_OR.sub("," + OR, text)
    if match := _UNEQUAL.fullmatch(text):
        return Form(
            "without", text, (REAL_LINE, Form("list", items=tuple(map(_read_value, match[2].split(","))))), match[1]
        )
    if parts := _parts(text, ";"):  # only where commas stand, too: x=1,y=2; x=3,y=4
        return Form("list", items=tuple(map(_read_value, parts)))
    if parts := _parts(text, "," + OR):  # x=1,y=2 or x=3,y=4
        groups = tuple(map(_read_value, parts))
        names = {tuple(item.name for item in group.items) * (group.kind == "list") for group in groups}
        if len(names) == 1 and all(None not in each and len(each) > 1 for each in names):
            return Form("list", items=groups)
    if len(split_top_level(text, ",")) > 1:
        parts = _parts(text, ",")
        return _read_list(parts) if parts else Form("value", text)
    if named := split_name(text):
        form = _read_value(named[1])
        if form.kind != "relation":
            chain = [part for part in split_top_level(text, "=")[1:-1] if part not in named[0].split("=")]
            return replace(form, name=named[0], chain=tuple(chain))
    if parts := _parts(text, r"\cup"):
        return Form("union", items=tuple(map(_read_value, parts)))
    if len(parts := _parts(text, r"\setminus")) == 2:
        return Form("without", items=tuple(map(_read_value, parts)))
    if (match := NAME_BEHIND.fullmatch(text)) and (number := read_number(match[1])) is not None:
        return Form("value", match[1], name=match[2], number=number)
    if text == r"\mathbb{R}":
        return REAL_LINE
    return (
        _read_set_builder(text)
        or _read_bracketed(text)
        or _read_inequality(text)
        or _read_combination(text)
        or _read_ratio(text)
        or _read_single(text)
    )


def _read_around(text: str) -> Form | None:
    """Read numbered parts, values with clauses around them and classes of integers; None where a text has none of these."""
    if (parts := read_parts(text)) is not None:
        return Form("parts", items=tuple(map(_read_pieces, parts)))
    pieces = read_pieces(text)
    return _read_approximated(text) if pieces is None else _read_pieces(pieces)


def _read_pieces(pieces: Pieces) -> Form:
    """Read values without their qualifiers; those with conditions are cases."""
    values = [piece.value for _, piece in pieces]
    if any(piece.conditions for _, piece in pieces):
        rows = [(piece.value, *piece.conditions) for _, piece in pieces]
        return Form("cases", items=tuple(Form("row", items=tuple(map(_read_part, row))) for row in rows))
    if any(isinstance(value, Integers) for value in values):
        forms = tuple(map(_read_part, values))
        return forms[0] if len(forms) == 1 else Form("list", items=forms)
    form = _read_value("".join(f"{separator}{piece.value}" for separator, piece in pieces))
    integer = frozenset().union(*(piece.integer for _, piece in pieces))
    found = integers_of(form, integer) if integer else None
    return form if found is None else Form("integers", found, name=form.name)


def _read_part(part: str | Integers) -> Form:
    """Read a value or a condition."""
    if part == "otherwise":
        return Form("word", part)
    return _read_value(part) if isinstance(part, str) else Form("integers", class_in_words(part) or "", name=part.name)


def _parts(text: str, separator: str) -> list[str]:
    """Return the parts of `text`; none where it has one part, or too many, or an empty one."""
    parts = split_top_level(text, separator)
    return parts if 1 < len(parts) <= _MAX_ITEMS and all(parts) else []


def _read_list(parts: list[str]) -> Form:
    items: list[Form] = []
    for part in parts:
        form = _read_value(part)
        # A plus-minus sign makes a list within the list: `1\pm\sqrt{5},-2` has three values. A set is one value.
        form = replace(form, last=None) if form.last else form  # of `x^2=2, 5` the 2 is not a value
        flat = form.kind == "list" and not form.braces
        items.extend([replace(each, name=form.name or each.name) for each in form.items] if flat else [form])
    found = Form("list", items=tuple(items))
    sets = any(form.items for form in items)
    names = {form.name if form.kind not in ("word", "relation") and (sets or form.items) else None for form in items}
    if len(names) == 1 and None not in names and not any(part.startswith(OR) for part in parts):
        both = Form("meet", items=found.items, name=items[0].name)  # `x>1, x<5`, while `x<1, x>5` can only mean "or"
        if has_members(both) or any(part.startswith(AND) for part in parts):
            return both
    return found


def _read_set_builder(text: str) -> Form | None:
    r"""Read `\{x\mid1<x<2\}` as the interval, conditions joined by "or" as their union, and `\{x\mid x=3k,k\in\mathbb{Z}\}`."""
    if (match := _MULTIPLES.fullmatch(text)) and (found := integers_of(_read_value(match[1]), frozenset(match[2]))):
        return Form("integers", found)
    if (match := _SET_OF.fullmatch(text)) is None:
        return None
    written = match[2].strip()
    form = _read(written)
    qualified = read_pieces(written) is not None
    if form.name == match[1] and form.kind in ("value", "integers"):
        form = replace(form, name=None) if form.kind == "integers" else form
        return form if qualified or CONSTANT.fullmatch(form.text) else None
    conditions = form.items if form.kind == "list" and not form.name else (form,)
    named = all(item.name == match[1] and item.kind not in ("word", "relation") for item in conditions)
    return form if named and any(item.items for item in conditions) else None


def _read_bracketed(text: str) -> Form | None:
    if (match := _CASES.fullmatch(text)) and (text[:2] == r"\{" or "cases" in text):
        rows = [row.strip() for row in match[1].split(ROW) if row.strip()]
        if not any("&" in row for row in rows):
            return _read_list([row.rstrip(",.;") for row in rows])
        cells = [[cell.strip().rstrip(",.; ") for cell in row.split("&")] for row in rows]
        return Form(
            "cases",
            items=tuple(
                Form("row", items=(_read(first), *map(_read_part, map(read_condition, rest)))) for first, *rest in cells
            ),
        )
    if (match := _POINT.fullmatch(text)) and enclosed(match[2]) and (form := _read(match[2])).kind == "()":
        return replace(form, name=match[1]) if form.items[0].number is not None else None
    if match := _TRANSPOSED.fullmatch(text):
        return _transposed(_read_bracketed(match[1]))
    if match := _MATRIX.fullmatch(text):
        rows = [split_top_level(row, "&") for row in match[2].split(ROW) if row.strip()]
        return Form("matrix", items=tuple(Form("row", items=tuple(map(_read, row))) for row in rows))
    if text.startswith(r"\{") and enclosed(text):
        form = _read(text[2:-2])
        return Form("list", items=form.items if form.kind == "list" else (form,), braces=True)
    if text[:1] in ("(", "[") and text[-1:] in (")", "]") and enclosed(text):
        if parts := _parts(text[1:-1], ","):
            if text[0] + text[-1] == "()" and len(_PLUS_MINUS.findall(text)) == 1:
                return _read_single(text)  # (\pm3,0) are two points
            return Form(cast("Kind", text[0] + text[-1]), items=tuple(map(_read, parts)))
        if text[0] + text[-1] == "()":
            return _read(text[1:-1])
    return None


def _transposed(form: Form | None) -> Form | None:
    """Return the transpose of a matrix, or of a point as a column."""
    if form is None or form.kind not in ("()", "[]", "matrix"):
        return None
    rows = [row.items for row in form.items] if form.kind == "matrix" else [form.items]
    if len({len(row) for row in rows}) > 1:
        return None
    return Form("matrix", items=tuple(Form("row", items=column) for column in zip(*rows, strict=True)))


def _read_combination(text: str) -> Form | None:
    r"""Read matrices or points with factors, such as `3\begin{pmatrix}1&2\end{pmatrix}` and `(1,2)+t(3,5)`, cell by cell."""
    if "," not in text and r"\begin" not in text:
        return None
    signs = [match for match, depth in brackets(text, "|(?P<sign>[-+])") if match["sign"] and depth == 0]
    ends = [(0, 0), *(match.span() for match in signs), (len(text), len(text))]
    terms = [(text[a:b], _split_vector(text[b:c])) for (a, b), (c, _) in pairwise(ends) if text[a:c]]
    factors = [sign + (term[0] or "1") for sign, term in terms if term]
    forms = [term[1] for _, term in terms if term]
    shapes = {(form.kind, tuple(len(row.items) for row in form.items)) for form in forms}
    clear = r"\begin" in text or {"1", "+1"} & {*factors} or all(map(CONSTANT.fullmatch, factors))
    if len(factors) < len(terms) or len(shapes) != 1 or not clear:
        return None
    return _combined(factors, forms)


def _split_vector(term: str) -> tuple[str, Form] | None:
    r"""Return the factor and the matrix or point of a term such as `2e^t(1,2)`, also where that is a sum in parentheses."""
    opened, places = 0, []
    for match, depth in brackets(term):
        opened = match.start() if match["open"] and depth == 1 else opened
        if match["close"] and depth == 0 and re.search(r"\\begin|^\([^()]*,", term[opened : match.end()]):
            places.append((opened, match.end()))
    if len(places) != 1 or term[places[0][1] : places[0][1] + 1] in {*"_^!'"}:
        return None
    begin, end = places[0]
    form, factor = _read_bracketed(term[begin:end]), term[:begin] + term[end:]
    is_vector = form is not None and form.kind in ("matrix", "()") and not re.search(r"[&,=]|^[fgh]$", factor)
    return (factor, form) if form and is_vector else None


def _combined(factors: list[str], forms: list[Form]) -> Form:
    if forms[0].items:
        return replace(
            forms[0], items=tuple(_combined(factors, [*cells]) for cells in zip(*(f.items for f in forms), strict=True))
        )
    text = "".join(rf"+({factor})\cdot({form.text})" for factor, form in zip(factors, forms, strict=True))[1:]
    numbers = [(read_number(factor), form.number) for factor, form in zip(factors, forms, strict=True)]
    if any(factor is None or cell is None for factor, cell in numbers):
        return Form("value", text)
    value = sum(factor.value * cell.value for factor, cell in numbers if factor and cell)
    return Form("value", str(value), number=Number(Fraction(value)))


def _read_inequality(text: str) -> Form | None:
    r"""Read `a<x\leq b`, `x>a`, `x\neq a` and the like as sets of the variable."""
    if (match := _ABSOLUTE.fullmatch(text)) and read_number(match[3]):
        name, sign, bound = match.groups()
        less = {"<": "<", r"\leq": r"\leq", ">": r"\leq", r"\geq": "<"}[sign]
        within = _read_inequality(f"-{bound}{less} {name}{less} {bound}")
        return within if less == sign or within is None else Form("without", text, (REAL_LINE, within), name)
    signs = _RELATION.findall(text)
    parts = [part.strip() for part in _RELATION.split(text)]
    if len(signs) not in (1, 2) or "=" in text or not all(parts):
        return None
    if signs[0] in (">", r"\geq"):
        turned = {">": "<", r"\geq": r"\leq", "<": ">", r"\leq": r"\geq"}
        parts, signs = parts[::-1], [turned[sign] for sign in reversed(signs)]
    if len(signs) == 1:
        before = QUANTITY.fullmatch(parts[0]) is not None
        parts, signs = ([r"-\infty", *parts], ["<", *signs]) if before else ([*parts, r"\infty"], [*signs, "<"])
    if not QUANTITY.fullmatch(parts[1]) or not {*signs} <= {"<", r"\leq"}:
        return None
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    return Form(cast("Kind", brackets), text, (_read_value(parts[0]), _read_value(parts[2])), parts[1])


def _read_ratio(text: str) -> Form | None:
    """Read `3:2`, `3 to 2` and times of day such as `12:30 pm`."""
    value, unit, _ = split_unit(text)
    parts = _parts(re.sub(r"\\text\{ ?to ?\}|(?<=[0-9])to(?=[0-9])", ":", value), ":")
    if not parts or _ANY_RELATION.search(value):
        return None
    return Form("ratio", ":".join(parts), items=tuple(map(_read_value, parts)), unit=unit)


def _read_single(text: str) -> Form:
    if match := _WORDS.fullmatch(text):
        return _read_words(_flat(text).strip("()").strip())
    if _PLAIN_WORDS.fullmatch(text) or not text.isascii():
        form = _read_words(text)
        if form.kind != "word" or form.text != text:
            return form
    if match := _NUMERAL.fullmatch(text):
        if (match[2] or match[3]) == "10" and match[1].isdigit():
            return replace(_read_value(match[1]), text=text)  # 52_{10} is not 52_8 without its base
        return Form("word", f"{match[1]}_{match[2] or match[3]}")
    if compound := _read_compound(text):
        return compound
    if _PLUS_MINUS.search(text):
        plus = _PLUS_MINUS.sub(lambda sign: "+" if sign[0] == r"\pm" else "-", text)
        minus = _PLUS_MINUS.sub(lambda sign: "-" if sign[0] == r"\pm" else "+", text)
        return Form("list", items=(_read_value(plus.removeprefix("+")), _read_value(minus.removeprefix("+"))))
    if (
        text.endswith(r"\%")
        and not (text.endswith(r"\%\%") or _ANY_RELATION.search(text))
        and read_number(text) is None
    ):  # p\%, where the sign is often part of the question
        return replace(_read_single(text[:-2].strip()), unit=(("percent", 1),))
    value, unit, factor = split_unit(text)
    value = value[1:-1] if unit and value[:1] == "(" and enclosed(value) else value  # (\frac{45}{2})^\circ
    number = read_number(value)
    if number is not None and factor != 1:
        place = number.last_place and number.last_place * factor
        number = replace(number, value=number.value * factor, last_place=place)
        value = str(number.value)
    elif factor != 1:
        value, unit = text, None
    if _ANY_RELATION.search(value):
        return Form("relation", value, unit=unit, last=_last_value(text))
    return Form("value", value, unit=unit, number=number)


def _flat(text: str) -> str:
    r"""Return words without `\text`, wherever it is cut: `\text{Type}II` as `Type II`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z]+$)", " ", _TEXT.sub(r"\1", text)).strip()


def _read_words(words: str) -> Form:
    if (number := number_in_words(words)) is not None:
        return Form("value", str(number), number=Number(Fraction(number)))
    if (fraction := fraction_in_words(words)) is not None:
        return _read_value(fraction)
    words = read_sentence(words) or words
    if meaning := _MEANINGS.get(words.casefold().removesuffix("s")):
        return _read_value(meaning)
    parts = re.split(rf"\s*(?:,{AND}?|\band\b)\s*", words)
    if (
        1 < len(parts) < 10
        and OR not in words
        and all(re.fullmatch(r"[^\W\d_]+(?: [^\W\d_]+){0,2}", part) for part in parts)
    ):
        return Form("list", items=tuple(Form("word", part) for part in parts))
    return Form("word", words)


def _read_compound(text: str) -> Form | None:
    """Read `2\\text{ hours }30\\text{ minutes}` as a number of the first unit, `6\\text{ red}4\\text{ blue}` as a list."""
    parts = _COMPOUND.findall(text)
    if len(parts) < 2 or _COMPOUND.sub("", text):
        return None
    units = [read_unit(words) for _, words in parts]
    if all(unit and unit[0][0].startswith(UNKNOWN) for unit in units):
        return Form("list", items=tuple(_read_value(rf"{number}\text{{ {words}}}") for number, words in parts))
    factors = [in_base_units(unit) if unit else (Fraction(0), ()) for unit in units]
    if len({base for _, base in factors}) > 1 or any(a <= b for (a, _), (b, _) in pairwise(factors)):
        return None
    value = (
        sum(Fraction(number) * factor for (number, _), (factor, _) in zip(parts, factors, strict=True)) / factors[0][0]
    )
    return Form("value", str(value), unit=units[0], number=Number(value))


def _last_value(text: str) -> Form | None:
    """Return what follows the last `=`, if the text has no other relation and that is a single value."""
    *left, last = split_top_level(text, "=")
    signs = set(_ANY_RELATION.findall(text))
    if not (left and all(left) and last) or signs != {"="} or any(map(NOT_EQUAL.search, left)):
        return None
    if not all(map(is_left_side, left)):
        return None
    form = _read_value(last)
    chain = tuple(part for part in left if CONSTANT.fullmatch(part))
    return None if form.items or form.kind == "relation" else replace(form, chain=chain)
