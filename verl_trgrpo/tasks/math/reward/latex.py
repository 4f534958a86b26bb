r"""One spelling for what LaTeX lets one write in several ways: `\dfrac12`, `\frac{1}{2}` and `\frac 12` become equal.

Only notation is touched, never a value. Texts are short (an answer is capped), so a few passes cost microseconds.
"""

import re
from collections.abc import Iterator

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
ROW = "\ue000"
"""Stands for the row break of a matrix in normalized texts."""

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
        (r"\\frac\s*([0-9a-zA-Z])\s*([0-9a-zA-Z])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([0-9a-zA-Z])\s*\{", r"\\frac{\1}{"),
        (r"(\\frac\s*\{[^{}]*\})\s*([0-9a-zA-Z])", r"\1{\2}"),
        (r"\\sqrt\s*([0-9a-zA-Z])", r"\\sqrt{\1}"),
        (r"([_^])\s*\{\s*([0-9a-zA-Z])\s*\}", r"\1\2"),
        (r"\s+", " "),
        (r"(?<![0-9a-zA-Z]) | (?![0-9a-zA-Z])", ""),
        (r"(?<=[0-9]) (?=[a-zA-Z])|(?<=[a-zA-Z]) (?=[0-9])", ""),
    )
)
_MAX_OUTER_BRACES = 3  # each pair is one more look over the text
_OPENERS, _CLOSERS = frozenset(("(", "[", "{", r"\{")), frozenset((")", "]", "}", r"\}"))
_BRACKET = re.compile(r"\\begin\{[a-z]*\*?\}|\\end\{[a-z]*\*?\}|\\[{}]|[()\[\]{}]")


def normalize(text: str) -> str:
    """Return `text` in the one spelling, without spaces that mean nothing, dollar signs and a final period."""
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
    for _ in range(_MAX_OUTER_BRACES):
        if not (text.startswith("{") and matching_close(text, 0) == len(text) - 1):
            break
        text = text[1:-1].strip()
    return text


def matching_close(text: str, start: int) -> int | None:
    """Return the position of the bracket that closes the one at `start`; any kind closes any other, as in `(0,1]`."""
    return next((match.start() for match, depth in _walk(_BRACKET, text, start) if depth <= 0), None)


def split_top_level(text: str, separator: str) -> list[str]:
    """Return the parts of `text` between those separators that stand outside all brackets."""
    if separator not in text:
        return [text.strip()]
    parts, begin = [], 0
    for match, depth in _walk(re.compile(rf"{_BRACKET.pattern}|{re.escape(separator)}"), text):
        if match[0] == separator and depth == 0:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    return [*parts, text[begin:].strip()]


def nesting(text: str) -> int:
    """Return the depth of nested brackets."""
    return max([0, *(depth for _, depth in _walk(_BRACKET, text))])


def _walk(pattern: re.Pattern[str], text: str, start: int = 0) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the matches of a pattern that finds all brackets, each with the number of brackets open behind it."""
    depth = 0
    for match in pattern.finditer(text, start):
        if match[0] in _OPENERS or match[0].startswith(r"\begin"):
            depth += 1
        elif match[0] in _CLOSERS or match[0].startswith(r"\end"):
            depth -= 1
        yield match, depth
