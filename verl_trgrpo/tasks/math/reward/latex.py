r"""One spelling for what LaTeX lets one write in several ways: `\dfrac12`, `\frac{1}{2}` and `\frac 12` become equal.

Only notation is touched, never a value. Texts are short (an answer is capped), so a few passes cost microseconds.
"""

import re

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "∞": r"\infty ", "°": r"^\circ ",
        "²": "^2", "³": "^3", "≤": r"\leq ", "≥": r"\geq ", "∪": r"\cup ", "∈": r"\in ", "±": r"\pm ", "θ": r"\theta ",
        "½": r"\frac{1}{2}", "’": "'", "\u00a0": " ", "~": " ", "％": "%", "，": ",",
        "≠": r"\neq ", "≈": r"\approx ", "√": r"\sqrt ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "€": r"\text{euros}",
    }
)  # fmt: skip
_TEXT = r"\\(?:text(?:bf|rm|it|normal|sf|tt|up)?|mbox|mathrm|textnormal|mathbf|mathit|mathsf|operatorname\*?|bf|rm)\s*(?=\{)"
_CURRENCIES = ((r"\$", r"\text{dollars}"), (r"\text{euros}", r"\text{euros}"))
ROW = "\ue000"
"""Stands for the row break of a matrix in normalized texts."""

_ROW_BREAK = re.compile(r"\\\\(?:\s*\[[-0-9.]+ *[a-z]+\])?")
_DELIMITER = re.compile(r"\\[()\[\]]")
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(?<=[0-9])(?:,\s*\\!\s*|\{,\}|\\,|\\!)(?=[0-9]{3}(?![0-9]))", ""),  # 10,\!080
        (r"\\(?:[!,;:> ]|q?quad(?![a-zA-Z])|hspace\{[^{}]*\})", " "),
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits)(?![a-zA-Z])\s*\.?", ""),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
        (r"\\(?:geqslant|geqq|ge)(?![a-zA-Z])", r"\\geq"),
        (r"\\(?:leqslant|leqq|le)(?![a-zA-Z])", r"\\leq"),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\(?:lbrace)(?![a-zA-Z])", r"\\{"),
        (r"\\(?:rbrace)(?![a-zA-Z])", r"\\}"),
        (r"\\[lr]vert(?![a-zA-Z])", "|"),
        (r"\\lparen(?![a-zA-Z])", "("),
        (r"\\rparen(?![a-zA-Z])", ")"),
        (r"\\infin(?![a-zA-Z])", r"\\infty"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"\\(?:text)?color\s*\{[a-zA-Z]*\}|\\underline\s*(?=\{)", ""),
        (r"\\pmod\s*([0-9]+|[a-zA-Z])", r"\\pmod{\1}"),
        (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"^([^{}]*)\\over(?![a-zA-Z])([^{}]*)$", r"\\frac{\1}{\2}"),
        (r"(?<![\\a-zA-Z])sqrt\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<=[0-9a-zA-Z)}])\s*\*\*\s*(?=[0-9a-zA-Z({\\])", "^"),
        (r"(?<=[0-9a-zA-Z)}])\s*\*\s*(?=[0-9a-zA-Z(\\])", r"\\cdot "),
        (r"\\ast(?![a-zA-Z])", r"\\cdot"),
        (r"\+\s*\\infty", r"\\infty"),
        (r"\\degrees?(?![a-zA-Z])", r"^\\circ"),
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
_MAX_OUTER_BRACES = 20  # each pair is one more look over the text
_OPENERS = frozenset(("(", "[", "{", r"\{"))
_BRACKET = re.compile(r"\\begin\{[a-z]*\*?\}|\\end\{[a-z]*\*?\}|\\[{}]|[()\[\]{}]")


def normalize(text: str) -> str:
    """Return `text` in the one spelling, without spaces that mean nothing, dollar signs and a final period."""
    text = _ROW_BREAK.sub(ROW, text.translate(_CHARACTERS)).strip()
    for sign, unit in _CURRENCIES:  # a price; the sign becomes a unit, which is compared like other units
        if text.startswith(sign):
            text = text.removeprefix(sign).rstrip(".,;: ") + unit
    text = text.replace(r"\$", "").replace("$", "")
    text = _DELIMITER.sub("", text)
    text = re.sub(_TEXT, r"\\text", text)
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
    depth = 0
    for match in _BRACKET.finditer(text, start):
        opens = match[0] in _OPENERS or match[0].startswith(r"\begin")
        depth += 1 if opens else -1
        if depth <= 0:
            return match.start()
    return None


def split_top_level(text: str, separator: str) -> list[str]:
    """Return the parts of `text` between those separators that stand outside all brackets."""
    parts, depth, begin = [], 0, 0
    for match in re.finditer(rf"{_BRACKET.pattern}|{re.escape(separator)}", text):
        token = match[0]
        if token == separator:
            if depth == 0:
                parts.append(text[begin : match.start()].strip())
                begin = match.end()
        else:
            depth += 1 if token in _OPENERS or token.startswith(r"\begin") else -1
    return [*parts, text[begin:].strip()]


def nesting(text: str) -> int:
    """Return the depth of nested brackets."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += 1 if match[0] in _OPENERS or match[0].startswith(r"\begin") else -1
        deepest = max(deepest, depth)
    return deepest
