"""Names and qualifiers around a value: `x` of `x=5`, and "for all real x"."""

import re

from verl_trgrpo.tasks.math.forms import Form
from verl_trgrpo.tasks.math.spelling import split_top_level

VARIABLE = r"(?:[a-zA-Z]|\\(?!in\b|frac|sqrt|text)[a-zA-Z]+)(?:_(?:\w|\{[^{}]*\}))?'{0,2}"
_VARIABLES = rf"\({VARIABLE}(?:,{VARIABLE})*\)"
COMPLEX = r"(?:z|w|\\psi|\\Psi)(?![a-zA-Z])"
"""Letters that stand for complex numbers where an absolute value is taken."""
SIMPLE_NAME = re.compile(
    rf"{VARIABLE}(?:\^\{{-1\}})?(?:{_VARIABLES})?|{_VARIABLES}|\\vec\{{?{VARIABLE}\}}?"
)  # x_1; f^{-1}(x); \vec{v}; (x,y)
NAME_OF_FUNCTION = re.compile(rf"({VARIABLE}(?:\^\{{-1\}})?)\(({VARIABLE})\)")  # f(x)
_MEMBER = re.compile(rf"({VARIABLE}|{_VARIABLES})\\(?:in|approx)(?![a-zA-Z]) ?(.+)", re.DOTALL)  # x\in[1,2]; x\approx 5
NAME_BEHIND = re.compile(rf"([^=]+)=({VARIABLE})")  # 5=x
# Left sides that name a quantity
_QUANTITY = re.compile(
    r"(?:m?\\(?:angle|triangle|overline|vec|hat|bar|text|mathbb|sin|cos|tan|cot|sec|csc|det|sum|prod|lim|int|gcd|max|min|arg)(?![a-zA-Z])"
    r"|\||\\\||\\frac\{[^{}0-9]*\}\{[^{}0-9]*\}|\([a-zA-Z]\\circ|[a-zA-Z](?:_\w|_\{[^{}]*\})?'*[(\[]|[A-Z]{2,}$).*",
    re.DOTALL,
)  # \angle ABC; |AB|; \frac{dy}{dx}; P(A|B); f(g(x)); \sum a_n; \text{Area}; AB
_QUALIFIER = re.compile(
    r",?(?:\\text\{)?[\s,]*\(?(?:for ?(?:all|any|every|each)|where)(?![a-zA-Z])(?P<rest>.*)|,\(?[kmnl]\\in ?\\mathbb\{Z\}\)?$",
    re.IGNORECASE | re.DOTALL,
)  # f(x)=0 for all x; x,\text{ where }c\text{ is a constant}; 2n\pi,n\in\mathbb{Z}
_QUALIFYING = re.compile(
    r"\\text|\\in|\\mathbb\{[RCZN]\}|\\R|[{}(),.\s]|\b(?:real|reals|complex|numbers?|integers?|values?|of|the|constants?|arbitrary|is|are|an|any"
    r"|and|some)\b|(?<![a-zA-Z])[a-zA-Z](?:_\w)?(?![a-zA-Z])",
    re.IGNORECASE,
)  # \text{real numbers }x_1; n\in\mathbb{Z}
CONSTANT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot|times)(?![a-zA-Z])|[^a-zA-Z\\])+")  # 3\sqrt{2}
NOT_EQUAL = re.compile(r"(?:(?<![0-9)])!|\\not)$")  # x!; x\not
_MAX_NAME = 60


def split_name(text: str) -> tuple[str, str] | None:
    """Return the name and the rest of `name=value`, where the left side names a quantity; None for other equations."""
    parts = split_top_level(text, "=")
    left = parts[0]
    if len(parts) > 1 and all(parts) and not NOT_EQUAL.search(left) and len(left) <= _MAX_NAME:
        is_sum = re.search(r"[+<>]|(?<!\{)-|\\(?:leq|geq|neq)", left.split("(")[0])
        if SIMPLE_NAME.fullmatch(left) or (_QUANTITY.fullmatch(left) and not is_sum):
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


def names_differ(gold: Form, answer: Form) -> bool:
    if gold.name is None or answer.name is None or gold.name == answer.name:
        return False
    plain = [
        re.sub(r"^\\vec\{?([^{}]*)\}?$", r"\1", re.sub(r"^m(?=\\angle)", "", name)) for name in (gold.name, answer.name)
    ]
    return plain[0] != plain[1]


def may_lose_name(gold: Form) -> bool:
    """Return whether the value alone is right: of `x=5`, `AB=10` and `y=2x`, but not of an equation of two quantities."""
    return gold.number is not None or bool(SIMPLE_NAME.fullmatch(gold.name or "") or CONSTANT.fullmatch(gold.text))
