r"""Write a question in one spelling of its mathematics, so that differently typeset files can be compared."""

from __future__ import annotations

import re

from verl_trgrpo.judge.language import LATEX_COMMANDS
from verl_trgrpo.judge.spelling import plain_characters

# Presentation, which says nothing about the problem.
_MARKUP = re.compile(
    r"\\(?:begin|end)\s*\{[^}]*\}(?:\{[^}]*\})?|\\tag\s*\{[^}]*\}|\[/?(?:i|b|u|list|hide|\*)\]|\\[()\[\]]|\$"
)  # \begin{align}; \tag{1}; [b]; \[; $
_LAYOUT_NAMES = (
    "left right middle displaystyle textstyle quad qquad text textbf textit textrm mathrm mathbf mathit emph mbox bf rm it "
    "big bigg limits hline cline operatorname ensuremath phantom"
)
_LAYOUT = frozenset(_LAYOUT_NAMES.split(" "))
_SPELLING = {
    "leq": "le", "geq": "ge", "neq": "ne", "dotsc": "ldots", "dotsb": "ldots", "to": "rightarrow", "mapsto": "rightarrow",
    "cdot": "times", "ast": "times", "equal": "=", "plus": "+", "minus": "-",
}  # fmt: skip
_FORMULA = re.compile(
    r"\$\$?(.*?)\$\$?|\\\((.*?)\\\)|\\\[(.*?)\\\]|\\begin\{(?:align|gather|equation)\*?\}(.*?)\\end\{", re.DOTALL
)  # $x+y$; \(x\); \[x\]; \begin{align}x\end{align}
_WORDS_IN_FORMULA = re.compile(
    r"\\(?:text\w*|mathrm|mbox|operatorname)\s*\{[^{}]*\}|\\[a-zA-Z]+|([a-zA-Z])"
)  # \text{cm}; \sin; x
_THOUSANDS = re.compile(r"(?<=[0-9])(?:,\\!|\{,\}|\\,|,)(?=[0-9]{3}(?![0-9]))")  # 1,250; 1{,}250
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s*([0-9])\s*([0-9])")  # \frac12
_COMMAND = re.compile(r"\\([a-zA-Z]+)")  # \leqslant


def in_one_spelling(text: str) -> str:
    r"""Return a question without layout (`\left`, `$`, `[b]`), with spaces around the letters of its formulas.

    Commands have one spelling (`\leqslant` and `\le`, `\dfrac12` and `\frac{1}{2}`).
    """
    if text.isascii() and "\\" not in text and "$" not in text:
        return _THOUSANDS.sub("", text)
    text = plain_characters(text).replace("...", r"\ldots ")
    text = _THOUSANDS.sub("", _SHORT_FRACTION.sub(r"\\frac \1 \2", text))
    return _COMMAND.sub(_spelled, _MARKUP.sub(" ", _FORMULA.sub(_spaced, text)))


def _spaced(formula: re.Match[str]) -> str:
    """Return a formula with spaces around each of its letters."""
    return _WORDS_IN_FORMULA.sub(lambda match: f" {match[0]} ", f" {formula[0]} ")


def _spelled(command: re.Match[str]) -> str:
    name = command[1]
    if name in _LAYOUT:
        return " "
    name = LATEX_COMMANDS.get(name, name).lstrip("\\")
    return f" {_SPELLING.get(name, name)} "
