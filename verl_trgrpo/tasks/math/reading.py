r"""What an answer says: its spelling made one, numbers, units, and its shape.

Reading the shape here keeps `(1,2)` apart from `[1,2]`, `\{1,2\}` and `1,2`, and makes an answer that lists several
candidates a list, which never equals a single value. Texts are short (an answer is capped).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ", "°": r"^\circ ",
        "²": "^2", "³": "^3", "≤": r"\leq ", "≥": r"\geq ", "∪": r"\cup ", "∈": r"\in ", "±": r"\pm ", "θ": r"\theta ",
        "½": r"\frac{1}{2}", "’": "'", "\u00a0": " ", "~": " ", "％": "%", "，": ",",
        "≠": r"\neq ", "≈": r"\approx ", "√": r"\sqrt ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "€": r"\text{euros}",
    }
)  # fmt: skip
_COMMANDS = {
    "dfrac": r"\frac", "tfrac": r"\frac", "cfrac": r"\frac", "dbinom": r"\binom", "tbinom": r"\binom",
    "geqslant": r"\geq", "geqq": r"\geq", "ge": r"\geq", "leqslant": r"\leq", "leqq": r"\leq", "le": r"\leq",
    "lt": "<", "gt": ">", "lbrace": r"\{", "rbrace": r"\}", "lvert": "|", "rvert": "|", "lparen": "(", "rparen": ")",
    "infin": r"\infty", "varnothing": r"\emptyset", "degree": r"^\circ", "degrees": r"^\circ",
}  # fmt: skip
_COMMAND = re.compile(rf"\\({'|'.join(_COMMANDS)})(?![a-zA-Z])")
_TEXT = re.compile(r"\\(?:text(?:bf|rm|it|normal|sf|tt|up)?|mbox|math(?:rm|bf|it|sf)|operatorname\*?|bf|rm)\s*(?=\{)")
ROW = "\ue000"  # stands for the row break of a matrix in normalized texts
_ROW_BREAK = re.compile(r"\\\\(?:\s*\[[-0-9.]+ *[a-z]+\])?")
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[()\[\]]", ""),  # \( and \[ begin a formula
        (r"(?<=[0-9])(?:,\s*\\!\s*|\{,\}|\\,|\\!)(?=[0-9]{3}(?![0-9]))", ""),  # 10,\!080
        (r"\\(?:[!,;:> ]|q?quad(?![a-zA-Z])|hspace\{[^{}]*\})", " "),
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits)(?![a-zA-Z])\s*\.?", ""),
        (r"\\(?:text)?color\s*\{[a-zA-Z]*\}|\\underline\s*(?=\{)", ""),
        (r"\\pmod\s*([0-9]+|[a-zA-Z])", r"\\pmod{\1}"),
        (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"^([^{}]*)\\over(?![a-zA-Z])([^{}]*)$", r"\\frac{\1}{\2}"),
        (r"(?<![\\a-zA-Z])sqrt\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<=[0-9a-zA-Z)}])\s*\*\*\s*(?=[0-9a-zA-Z({\\])", "^"),
        (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ"),
        (r"\^\s*\{\s*\\prime\s*\}|\^\s*\\prime(?![a-zA-Z])", "'"),
        (r"(?:,\s*)?\\text\{\s*(?:,\s*)?(?:and|or)\s*\}", ","),
        (r"(?<![a-zA-Z\\])(?:,\s*)?(?<=[\s,}\d])(?:and|or)(?=[\s\\\d(-])", ","),
        (r"\\frac\s*([0-9a-zA-Z])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*([0-9a-zA-Z])", r"\1{\2}"),
        (r"\\sqrt\s*([0-9a-zA-Z])", r"\\sqrt{\1}"),
        (r"([_^])\s*\{\s*([0-9a-zA-Z])\s*\}", r"\1\2"),
        (r"\s+", " "),
        (r"(?<![0-9a-zA-Z]) | (?![0-9a-zA-Z])", ""),
        (r"(?<=[0-9]) (?=[a-zA-Z])|(?<=[a-zA-Z]) (?=[0-9])", ""),
    )
)
_BRACKET = r"(?P<open>\\begin\{[a-z]*\*?\}|\\\{|[(\[{])|(?P<close>\\end\{[a-z]*\*?\}|\\\}|[)\]}])"


def normalize(text: str) -> str:
    r"""Return `text` in one spelling of what LaTeX lets one write in several ways: `\dfrac12` and `\frac 12` become equal.

    Spaces that mean nothing, dollar signs and a final period go; a value is never touched.
    """
    text = _ROW_BREAK.sub(ROW, text.translate(_CHARACTERS)).strip()
    for sign, unit in ((r"\$", r"\text{dollars}"), (r"\text{euros}", r"\text{euros}")):
        if text.startswith(sign):  # a price; the sign becomes a unit, which is compared like other units
            text = text.removeprefix(sign).rstrip(".,;: ") + unit
    text = text.replace(r"\$", "").replace("$", "")
    text = _COMMAND.sub(lambda match: _COMMANDS[match[1]], _TEXT.sub(r"\\text", text))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = text.strip().rstrip(".,;:") if not text.endswith("\\") else text
    text = re.sub(r"^=(?!=)", "", text)  # the left side is in front of the box
    if "," not in text:
        text = text.replace(";", ",")
    return text[1:-1].strip() if text.startswith("{") and enclosed(text) else text


def enclosed(text: str) -> bool:
    """Return whether the bracket at the start closes at the end; any kind closes any other, as in `(0,1]`."""
    return next((match.end() for match, depth in _walk(text) if depth <= 0), None) == len(text)


def split_top_level(text: str, separator: str) -> list[str]:
    """Return the parts of `text` between those separators that stand outside all brackets."""
    if separator not in text:
        return [text.strip()]
    parts, begin = [], 0
    for match, depth in _walk(text, "|" + re.escape(separator)):
        if match[0] == separator and depth == 0:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    return [*parts, text[begin:].strip()]


def _walk(text: str, pattern: str = "") -> Iterator[tuple[re.Match[str], int]]:
    """Yield brackets and what else `pattern` finds, each with the number of brackets open behind it."""
    depth = 0
    for match in re.finditer(_BRACKET + pattern, text):
        depth += bool(match["open"]) - bool(match["close"])
        yield match, depth


_MAX_DIGITS = 300  # longer numbers are not read, so that arithmetic on them stays cheap
_MAX_EXPONENT = 1000
_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_POWER_OF_TEN = r"10\^(?P<NAME>[0-9]|\{[-+]?[0-9]+\})"
_FRACTION = re.compile(r"\\frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}(?![0-9])")
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)(?:"
    r" ?(?:(?P<whole>[0-9]+) )?(?P<top>-?[0-9]+)/(?P<bottom>-?[0-9]+)"
    r"|(?P<before>[0-9]+\.(?P<plain>[0-9]*))\\(?:overline|bar)(?P<period>[0-9]|\{[0-9]+\})"
    rf"|(?P<mantissa>{_DECIMAL})(?:(?:\\times|\\cdot|\*|x){_POWER_OF_TEN.replace('NAME', 'a')}|[eE](?P<b>[-+]?[0-9]+))?"
    rf"|{_POWER_OF_TEN.replace('NAME', 'c')}"
    r")(?P<percent>\\?%)?"
)


@dataclass(frozen=True)
class Number:
    """A number as written.

    value: without a percent sign, exactly.
    percent: a percent sign follows.
    literal_integer: no fraction bar. An integer ground truth wants such an answer: `\\frac{10}{2}` is a task, not a result.
    last_place: the value of the last digit written, such as 0.1 for `9.6`; None for fractions and plain integers.
    """

    value: Fraction
    percent: bool = False
    literal_integer: bool = True
    last_place: Fraction | None = None


def read_number(text: str) -> Number | None:
    r"""Return the number that `text` (normalized) writes, or None if it is anything else, even a sum of numbers.

    Numbers are written as `-1,234.5`, `\frac{3}{4}`, `1\frac{4}{5}`, `8.7\times10^{8}`, `0.\overline{3}` or `62.5\%`.
    """
    match = _NUMBER.fullmatch(_FRACTION.sub(r" \1/\2", text)) if len(text) <= _MAX_DIGITS else None
    if match is None:
        return None
    sign, percent = -1 if match["sign"] == "-" else 1, match["percent"] is not None
    if match["top"]:
        whole, top, bottom = int(match["whole"] or 0), int(match["top"]), int(match["bottom"])
        if bottom == 0 or (whole and min(top, bottom) < 0):
            return None
        return Number(sign * (whole + Fraction(top, bottom)), percent, literal_integer=False)
    if match["period"]:
        period = match["period"].strip("{}")
        repeated = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(match["plain"]))
        return Number(sign * (Fraction(match["before"] + "0") + repeated), percent)
    exponent = int((match["a"] or match["b"] or match["c"] or "0").strip("{}"))
    if abs(exponent) > _MAX_EXPONENT:
        return None
    mantissa = (match["mantissa"] or "1").replace(",", "")
    scale = Fraction(10) ** exponent
    decimals = len(mantissa.partition(".")[2])
    rounded = match["mantissa"] is not None and (decimals > 0 or exponent != 0)
    return Number(sign * Fraction(mantissa) * scale, percent, last_place=scale / 10**decimals if rounded else None)


_SPELLINGS = (
    "cm centimeter centimetre", "mm millimeter millimetre", "km kilometer kilometre", "m meter metre", "inch inches in",
    "foot feet ft", "yard yd", "mile", "second sec s", "ms", "minute min", "hour hr h", "day", "week", "month", "year yr",
    "kg kilogram", "gram g", "pound lb", "liter litre l", "dollar usd", "cent", "euro eur", "degree deg", "radian rad",
    "unit", "mph mileperhour mile/hour", "hz hertz", "percent", "angstrom",
)  # fmt: skip
_SAME = {word: words.split()[0] for words in _SPELLINGS for word in words.split()}
_SAME |= {f"{word}s": unit for word, unit in _SAME.items() if len(word) > 1}
# One letter without \text is a variable, so `6m` keeps its m.
_PLAIN = sorted(word for word in _SAME if len(word) > 1)
_RATIO = (
    r"(?:km|cm|mm|m|ft|mi|kg|g|J|N|W)/(?:s|sec|min|hr|h|km|cm|mm|m|ft|kg|g|L)(?![a-zA-Z])"  # 9.8 m/s^2 is no formula
)
_UNIT_POWER = r"(?:\^(?:-?[0-9]|\{-?[0-9]\}))?"
_SUFFIX = re.compile(
    rf"(?P<value>.*?[^\s\\=+*/^_<>(,-])(?:(?P<degree>\^\\circ ?(?:\\text\{{[CF]\}}|[CF](?![a-zA-Z]))?)"
    rf"|(?P<text>(?:\\text\{{[^{{}}0-9,;=<>\\]{{1,40}}\}}{_UNIT_POWER})+)"
    rf"|(?<=[0-9}}) ])(?P<plain>(?:{_RATIO}|(?i:{'|'.join(_PLAIN)})){_UNIT_POWER}))",
    re.DOTALL,
)
_SENTENCE = re.compile(r"\b(?:or|and|not|but|if|is|are|maybe|either|no|to|with|where|when|for)\b", re.IGNORECASE)


def split_unit(text: str) -> tuple[str, str | None]:
    """Return the value and the unit in one spelling, or the text and None if it ends without a unit.

    A unit of unknown words counts as a unit too ("12 apples"), but a text that reads like a sentence does not.
    """
    match = _SUFFIX.fullmatch(text)
    if match is None:
        return text, None
    if match["degree"]:
        scale = re.sub(r"[^CF]", "", match["degree"].replace(r"\circ", ""))
        return match["value"], "degree" + scale
    unit = match["text"] or match["plain"]
    if _SENTENCE.search(unit):
        return text, None
    return match["value"], _spell(unit)


def _spell(unit: str) -> str:
    words = re.findall(r"[a-zA-Z/]+|\^\{?-?[0-9]", unit.replace(r"\text", "").lower())
    return " ".join(_SAME.get(word, word.removesuffix("s").replace("^{", "^")) for word in words)


_MAX_NESTING, _MAX_ITEMS = 12, 100
_MAX_NAMES = 20
r"""Each name with `\in` or `\approx` is one more level to read, over all that follows it."""

VALUE, WORD, RELATION, LIST, UNION, MATRIX = "value", "word", "relation", "list", "union", "matrix"


@dataclass(frozen=True)
class Form:
    r"""An answer as it was read: a single value, or several.

    kind: of a single value VALUE, WORD (written as `\text{...}`) or RELATION (an equation or inequality that is more than
        a name and a value); of several LIST (unordered), UNION, MATRIX (of rows), or the two brackets, such as `(]`.
    text: of a single value, without the name in front (`x=`) and the unit behind.
    items: of several.
    last: of an equation whose left side is no name, such as `AB=10`: what follows its last `=`, if that is finished.
    """

    kind: str
    text: str = ""
    items: tuple[Form, ...] = ()
    name: str | None = None
    unit: str | None = None
    number: Number | None = None
    last: Form | None = None


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
_REAL_LINE = Form("()", items=(Form(VALUE, r"-\infty"), Form(VALUE, r"\infty")))
_TEXT_ALONE = re.compile(r"\\text\{([^{}]*)\}")
_NUMBER_AND_UNIT = re.compile(r"([^a-zA-Z]*[0-9])\s*([a-zA-Z][^{}]*)")
_NOT_EQUAL = re.compile(r"(?:(?<![0-9)])!|\\not)$")
_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")
_NUMERAL = re.compile(r"[0-9A-F]+_(?:[0-9]|\{[0-9]+\})")  # 52_8: another base is part of the answer
_GROUPED = re.compile(r"[-+]?[0-9]{1,3}(?:,[0-9]{3})+")


def read_forms(text: str) -> tuple[Form, ...]:
    """Return the readings of a normalized text; two only for `1,234`, which is a number or a list."""
    if any(depth > _MAX_NESTING for _, depth in _walk(text)) or len(_NAME_SIGN.findall(text)) > _MAX_NAMES:
        return (Form(VALUE, text),)
    form = _read(text)
    return (form, _read_list(text.split(","))) if _GROUPED.fullmatch(text) else (form,)


def _read(text: str) -> Form:
    if (number := read_number(text)) is not None:
        return Form(VALUE, text, number=number)
    if len(split_top_level(text, ",")) > 1:
        parts = _parts(text, ",")
        return _read_list(parts) if parts else Form(VALUE, text)
    if parts := _parts(text, r"\cup"):
        return Form(UNION, items=tuple(map(_read, parts)))
    if match := _NAME.fullmatch(text):
        form = _read(split_top_level(match[2], "=")[-1])
        if form.kind != RELATION:
            return replace(form, name=match[1])
    if (match := _NAME_BEHIND.fullmatch(text)) and (number := read_number(match[1])) is not None:
        return Form(VALUE, match[1], name=match[2], number=number)
    if text in (r"\mathbb{R}", r"\R"):
        return _REAL_LINE
    return _read_inequality(text) or _read_bracketed(text) or _read_single(text)


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
    return Form(LIST, items=tuple(items))


def _read_bracketed(text: str) -> Form | None:
    if match := _MATRIX.fullmatch(text):
        rows = [split_top_level(row, "&") for row in match[2].split(ROW) if row.strip()]
        return Form(MATRIX, items=tuple(Form("row", items=tuple(map(_read, row))) for row in rows))
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
    r"""Read `a<x\leq b`, `x>a` and the like as intervals of the variable."""
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
    return Form(brackets, items=(_read(parts[0]), _read(parts[2])), name=parts[1])


def _read_single(text: str) -> Form:
    if match := _TEXT_ALONE.fullmatch(text):
        inner = match[1].strip().strip("()").strip()
        if match := _NUMBER_AND_UNIT.fullmatch(inner):
            form = _read_single(rf"{match[1]}\text{{{match[2]}}}")
            if form.number is not None:
                return form
        number = read_number(inner)
        return Form(WORD if number is None else VALUE, inner, number=number)
    if _NUMERAL.fullmatch(text):
        return Form(WORD, text)
    if _PLUS_MINUS.search(text):
        plus = _PLUS_MINUS.sub(lambda sign: "+" if sign[0] == r"\pm" else "-", text)
        minus = _PLUS_MINUS.sub(lambda sign: "-" if sign[0] == r"\pm" else "+", text)
        return Form(LIST, items=(_read(plus.removeprefix("+")), _read(minus.removeprefix("+"))))
    value, unit = split_unit(text)
    if _ANY_RELATION.search(value):
        return Form(RELATION, value, unit=unit, last=_last_value(text))
    return Form(VALUE, value, unit=unit, number=read_number(value))


def _last_value(text: str) -> Form | None:
    """Return what follows the last `=`, if the text has no other relation and that is a single value."""
    *left, last = split_top_level(text, "=")
    signs = set(_ANY_RELATION.findall(text))
    if not left or not all(left) or not last or signs != {"="} or any(map(_NOT_EQUAL.search, left)):
        return None
    form = _read(last)
    return None if form.items or form.kind == RELATION else form
