r"""Read a question as words in one spelling of its mathematics, so that differently typeset files can be compared."""

from __future__ import annotations

import re

from verl_trgrpo.data.rows import normalize_text
from verl_trgrpo.tasks.math.language import LATEX_COMMANDS
from verl_trgrpo.tasks.math.spelling import plain_characters

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
# Characters of scripts without spaces are words by themselves.
_WORD = re.compile(
    r"[\u3040-\u30ff\u4e00-\u9fff]|[^\W\d_\u3040-\u30ff\u4e00-\u9fff]+|\d+(?:\.\d+)?|[-+*/=<>]"
)  # 面; area; 3.5; +


def words_of(text: str) -> list[str]:
    r"""Return the words of a question, in lower case.

    Words are runs of letters, numbers, and signs of arithmetic one by one. Within formulas every letter is a word, commands
    have one spelling (`\leqslant` and `\le`, `\dfrac12` and `\frac{1}{2}`), and layout is left out (`\left`, `$`, `[b]`).
    """
    if "\\" in text or "$" in text or not text.isascii():
        text = plain_characters(text).replace("...", r"\ldots ")
        text = _THOUSANDS.sub("", _SHORT_FRACTION.sub(r"\\frac \1 \2", text))
        text = _MARKUP.sub(" ", _FORMULA.sub(_spaced, text))
        text = _COMMAND.sub(_spelled, text)
    else:
        text = _THOUSANDS.sub("", text)
    return _WORD.findall(normalize_text(text))


def _spaced(formula: re.Match[str]) -> str:
    """Return a formula with spaces around each of its letters."""
    return _WORDS_IN_FORMULA.sub(lambda match: f" {match[0]} ", f" {formula[0]} ")


def _spelled(command: re.Match[str]) -> str:
    name = command[1]
    if name in _LAYOUT:
        return " "
    name = LATEX_COMMANDS.get(name, name).lstrip("\\")
    return f" {_SPELLING.get(name, name)} "
