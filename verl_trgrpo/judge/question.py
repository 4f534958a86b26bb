r"""Read what a question says about its answer: its formulas, the form that it asks for, its letters, and its unit.

One reading for each question. What is not recognised is not known, and then the judge decides without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from verl_trgrpo.judge.arranged import arranged, parsed
from verl_trgrpo.judge.parser import Tree, tokens_of
from verl_trgrpo.judge.spelling import normalize, split_top_level
from verl_trgrpo.judge.units import UNKNOWN, Unit, number_in_words, read_unit

_MAX_CHARS = 8000
_MAX_FORMULAS = 200

_FORMULA = re.compile(
    r"\$\$(?P<display>[^$]{1,400})\$\$|\$(?P<dollars>(?:[^$\\]|\\.){1,400})\$|\\\((?P<round>(?:[^\\]|\\[^)]){1,400})\\\)"
    r"|\\\[(?P<square>(?:[^\\]|\\[^\]]){1,400})\\\]"
    r"|\\begin\{(?:align|gather|equation)\*?\}(?P<lines>(?:[^\\]|\\(?!end\{)){1,400})\\end\{",
    re.DOTALL,
)  # $x+y$; \(x\); \[x\]; $$x$$; \begin{align*}x&=1\end{align*}
_SIDE = r"[(\[]?[\w(][\w.()\[\]{}\\]{0,40}"
_PLAIN_FORMULA = re.compile(
    rf"(?<![\w\\.()\[\]{{}}]){_SIDE}(?: ?[-+*/^=] ?[\w.()\[\]{{}}\\]{{1,40}}){{1,20}}"
)  # x^2 - 49
_LAYOUT = re.compile(r"\\(?:displaystyle|textstyle|label\{[^{}]{0,40}\}|tag\{[^{}]{0,40}\})")  # \displaystyle
_COMMAND = r"\b(?:express|write|convert|change|simplify|reduce|compute|calculate|evaluate|find|determine|give|what is|what's)\b"
_OBJECT = re.compile(
    rf"{_COMMAND}(?: (?:the|value|exact|sum|product|difference|quotient|fraction|decimal|number|expression|following|result|of"
    r"|repeating|infinite|periodic|as))*:?\s*$",
    re.IGNORECASE,
)  # Find the value of
_PLACES = (
    r"(?:decimal place|significant (?:figure|digit))s?|d\.p\.|(?:nearest|closest) (?:tenth|hundredth|thousandth|hundred|thousand"
    r"|ten|million|whole number|integer|cent|dollar|percent)"
)
_PLACE_NAMES = ("integer", "tenth", "hundredth", "thousandth")
_PLACES_ASKED = re.compile(
    r"\bto (?:the )?(?:nearest|closest) (integer|whole number|tenth|hundredth|thousandth)\b"
    r"|\b(?:to|correct to) \$?([1-6]|one|two|three|four)\$? (?:decimal places?|d\.p\.)",
    re.IGNORECASE,
)  # to the nearest hundredth; to 2 decimal places
_BASE_ASKED = re.compile(
    r"\bin base[- ]\$?([0-9]{1,2})\$?(?![0-9]|[^.?!]{0,40}\b(?:is|to base)\b)", re.IGNORECASE
)  # in base 5
_OPTION = re.compile(
    r"(?:\\(?:text|textbf|mathrm)\{ ?|(?<=quad)|(?<![a-zA-Z\\{(]))(\(([A-J])\)|([A-J])[.):])(?:\\?[ ~])*\}?"
)  # \textbf{(B)}; B.
_BETWEEN = re.compile(r"\\(?:q?quad|hfill|hspace)(?![a-zA-Z])")  # \qquad
_WORDINGS = {
    "factored": (
        r"\bfactori[sz]e\b", r"\bfactor\b(?! (?:of|in|that|is|which|by)\b)", r"\bas a product of\b", r"\bin factored form\b",
    ),
    "expanded": (
        r"\bexpand(?:ed)?\b", r"\bmultiply out\b", r"\bas a polynomial\b", r"\bpolynomial\b[^.?!]{0,80}\bstandard form\b",
        r"\bslope[- ]intercept\b", r"\bform\b[^.?!]{0,9}\by ?= ?m ?x ?\+ ?[bc]\b",
    ),
    "primes": (r"\bprime[- ]factori[sz]ation\b", r"\bas a product of (?:powers of )?primes?\b"),
    "a power": (r"\bas a (?:single )?power of\b",),
    "a square": (
        r"\bvertex form\b", r"\bcomplet(?:e|ing) the square\b", r"\bin the form \$[^$]{0,40}\)\^\{?2\}? ?[+-]",
        r"\b(?:circle|ellipse|hyperbola|parabola)\b[^?!]{0,120}\bstandard form\b",
    ),
    "a line in standard form": (r"\bline\b[^?!]{0,120}\bstandard form\b",),
    "partial fractions": (r"\bpartial[- ]fractions?\b",),
    "simplified": (r"\bsimplif(?:y|ied)\b", r"\bsimplest (?:radical )?form\b"),
    "rationalized": (r"\brationali[sz]e", r"\brational denominator\b"),
    "solved": (
        r"\bsolve\b", r"\bslope[- ]intercept\b", r"\bin terms of\b", r"\bin the form \$? ?[a-z] ?=",
    ),
    "reduced": (
        r"\blowest terms\b", r"\bsimplest form\b", r"\bsimplif(?:y|ied)\b", r"\b(?:common|reduced|irreducible) fraction\b",
    ),
    "fraction": (r"\bcommon fraction\b", r"\bas an? (?:single |simplified |reduced |improper |irreducible )?fraction\b"),
    "decimal": (r"\bas a (?:terminating )?decimal\b", r"\bin decimal form\b", r"\bto a decimal\b"),
    "approximate": (r"\b(?:round|nearest|closest|estimat|about|significant)", "approx"),
    "scientific": (r"\bscientific (?:notation|form)\b", r"\bstandard (?:index )?(?:form|notation)\b"),
    "mixed": (r"\bmixed (?:number|fraction|numeral)\b",),
    "radians": (r"\b(?:in|to|into) radians\b", r"\bradian measure\b"),
    "degrees": (r"\b(?:in|to|into|many) degrees\b", r"\bdegree measure\b"),
    "rounded": (
        rf"\b(?:round(?:ed)?|correct|accurate|approximat\w+|answer|express\w*|give\w*)\b[^.?!]{{0,60}}?\b(?:{_PLACES})\b",
        rf"\bto (?:the |\w+ )(?:{_PLACES})\b",
    ),
    "ordered": (
        r"\brespectively\b",
        r"\b(?:increasing|ascending|decreasing|descending|alphabetical|chronological) order\b",
        r"\bin order\b(?! to\b| that\b| for\b)",
        r"\brank(?:ing|ed)\b|\brank (?:the|them|these)\b",
        r"\bfrom (?:the )?(?:least|greatest|smallest|largest|lowest|highest|shortest|longest|most|fewest)\b[^.?!]{0,20}\bto\b",
    ),
    "several": (
        r"\b(?:all|both|each|every|list|solutions|roots|zeros|values|respectively)\b", r"\((?:b|2|ii)\)",
    ),
    "percent": (r"\bper ?cent", "%"),
    "a percentage": (r"\b(?:as|to|into) an? per ?cent", r"\bwhat per ?cent"),
    "natural logarithm": (
        r"\\ln(?![a-z])", r"\bnatural log", r"\\int(?![a-z])", r"\\lim(?![a-z])", r"\be\^", r"\\infty(?![a-z])",
        r"\bderivative", r"\bdifferential",
        r"\bintegral", r"\bentropy\b", r"\basymptotic",
    ),
    "decimal logarithm": (
        r"\\log_\{?10\}?", r"\bcommon log", r"\bbase[- ](?:10|ten)\b", r"\bdecibel", r"\bpH\b", r"\bdigits\b", r"\\lg\b",
    ),
}  # fmt: skip
"""What a question asks for, and the words that say so."""


def _any_of(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(words), re.IGNORECASE)


_ASKED = {name: _any_of(words) for name, words in _WORDINGS.items()}
_UNIT = re.compile(
    r"\b(?:[Ii]n|[Hh]ow many|number of|[Cc]onvert\b[^.?!]{0,80}?\b(?:in)?to) "
    r"(?P<unit>(?:(?:square|cubic) )?[a-zA-Z]+(?:(?: per |/)(?:square |cubic )?[a-zA-Z]+)?)"
)  # in square centimeters; How many hours; Convert 3 hours to minutes
_REQUEST = re.compile(
    r"\b(?:what|which|find|determine|compute|list|enter|give|express|arrange|order|rank|state|write|sort|put|answer|how|solve|name)\b",
    re.IGNORECASE,
)  # Find
_ANALYSIS = re.compile(r"(?<![a-zA-Z\\])e\^|\\pi(?![a-zA-Z])|\\arctan|\\zeta|\\gamma")  # e^{2}; \pi; \arctan
_RELATIONS = {
    "=": "=",
    "<": ">",
    ">": "<",
    r"\leq": r"\geq",
    r"\geq": r"\leq",
    r"\neq": r"\neq",
}  # and read from the right
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")  # n


@dataclass(frozen=True)
class Asked:
    """What a question says about its answer; all of it empty for a question that is not known.

    Args:
        text: as it was given.
        formulas: its formulas, the sides of their relations and the relations, in their arrangement (`arranged`).
        texts: the same as normalized text without spaces.
        objects: texts of the formulas behind a command, such as ``Find the value of``.
        letters: names in the formulas.
        asks: the names of `_WORDINGS` that it asks for.
        unit: in which the answer is asked; None if that is not recognised.
        places: decimal places to which the answer is to be rounded; None if that is not asked, or twice.
        base: in which the answer is to be written, other than 10; None if that is not recognised.
        options: what stands behind the letters of a choice, as written; empty without two of them in order.
    """

    text: str = ""
    formulas: frozenset[Tree] = frozenset()
    texts: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    letters: frozenset[str] = frozenset()
    asks: frozenset[str] = frozenset()
    unit: Unit | None = None
    places: int | None = None
    base: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    known: bool = field(default=False)

    def has_formula(self, text: str) -> bool:
        """Return whether a normalized formula is one of the question's."""
        return text.replace(" ", "") in self.texts or arrangement(text) in self.formulas

    def option_behind(self, letter: str) -> str:
        """Return what stands behind the letter of a choice, "" where another letter has the same or the letter is asked for."""
        texts = [text for _, text in self.options]
        found = dict(self.options).get(letter, "")
        return found if texts.count(found) == 1 and "letter" not in self.text.casefold() else ""

    def has_natural_log(self, gold: str, in_source: bool) -> bool:
        r"""Return whether `\log` without a base is the natural one: in the gold's source, or because the question or the gold is
        of analysis; not where the question names base 10."""
        if "decimal logarithm" in self.asks:
            return False
        return in_source or "natural logarithm" in self.asks or _ANALYSIS.search(gold) is not None


@lru_cache(maxsize=1024)
def read_question(text: str) -> Asked:
    """Return what a question says. Cached because every response of a group has the same one."""
    if not text.strip():
        return Asked()
    text = text[-_MAX_CHARS:]
    texts, objects, trees = set[str](), set[str](), set[Tree]()
    letters: set[str] = set()
    for before, formula in _formulas(text):
        normal = normalize(formula)
        letters |= {each for kind, each in tokens_of(normal) if kind == "name"}
        for piece in _pieces(normal):
            texts.add(piece.replace(" ", ""))
            trees |= {tree for tree in [arrangement(piece)] if tree is not None}
        if _OBJECT.search(before):
            objects.add(normal.replace(" ", ""))
    letters |= {*_LETTER.findall(text)} - {"a", "A", "I"}
    found = {name for name, pattern in _ASKED.items() if pattern.search(text)}
    if "ordered" in found and not any(_ASKED["ordered"].search(each) for each in _requests(text)):
        found.remove("ordered")  # of points on two sides, respectively
    return Asked(
        text, frozenset(trees), frozenset(texts), frozenset(objects), frozenset(letters), frozenset(found), _unit(text),
        _places(text), _base(text), _options(text), True,
    )  # fmt: skip


def _requests(text: str) -> list[str]:
    """Return the sentences that ask for something."""
    return [each for each in re.split(r"(?<=[.?!])\s", text) if _REQUEST.search(each)]


def arrangement(text: str) -> Tree | None:
    """Return a normalized formula, with or without one relation, in its arrangement; None if it is not understood."""
    sign, sides = next(
        ((each, sides) for each in _RELATIONS if len(sides := split_top_level(text, each)) > 1), ("", [text])
    )
    trees = [parsed(side) for side in sides]
    if len(sides) > 2 or None in trees:
        return None
    found = [arranged(tree)[0] for tree in trees if tree is not None]
    if not sign:
        return found[0]
    turned = _RELATIONS[sign]
    return (
        (turned, *sorted(found, key=repr))
        if turned == sign
        else (min(sign, turned), *found[:: 1 if sign < turned else -1])
    )


def _formulas(text: str) -> Iterator[tuple[str, str]]:
    """Yield the formulas of a question, each with the text in front of it."""
    pattern = _FORMULA if "$" in text or "\\" in text else _PLAIN_FORMULA
    for number, match in enumerate(pattern.finditer(text)):
        if number >= _MAX_FORMULAS:
            return
        content = next((each for name, each in match.groupdict().items() if each), match[0])
        before = text[max(0, match.start() - 100) : match.start()]
        content = _LAYOUT.sub(" ", content)
        lines = content.replace("&", " ").split(r"\\") if match.groupdict().get("lines") else [content]
        for line in lines:
            if 0 < len(line.strip()) <= 400:
                yield before, line.strip().rstrip(".,;:? ")


def _pieces(formula: str) -> Iterator[str]:
    """Yield a formula, and the text on each side of its equals signs."""
    yield formula
    sides = split_top_level(formula, "=")
    if len(sides) > 1:
        yield from (side for side in sides if side)


def _places(text: str) -> int | None:
    """Return the decimal places to which a question asks to round."""
    asked = {(a or b).casefold().replace("whole number", "integer") for a, b in _PLACES_ASKED.findall(text)}
    found = {_PLACE_NAMES.index(each) if each in _PLACE_NAMES else number_in_words(each) or int(each) for each in asked}
    return found.pop() if len(found) == 1 else None


def _base(text: str) -> int | None:
    """Return the last base in which a question asks for a number."""
    found = [int(match[1]) for match in _BASE_ASKED.finditer(text)]
    return found[-1] if found and found[-1] != 10 else None


def _options(text: str) -> tuple[tuple[str, str], ...]:
    """Return the options of a question, each letter with what stands behind it up to the next letter or line."""
    marks = [*_OPTION.finditer(text)]
    letters = "".join(mark[2] or mark[3] for mark in marks)
    if len(letters) < 2 or letters != "ABCDEFGHIJ"[: len(letters)]:
        return ()
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    spans = [text[mark.end() : end].strip().partition("\n")[0] for mark, end in zip(marks, ends, strict=True)]
    return tuple(zip(letters, (_BETWEEN.split(span)[0].rstrip("\\ ,;.~") for span in spans), strict=True))


def _unit(text: str) -> Unit | None:
    """Return the last unit of which a question says that the answer is in it."""
    found = None
    for match in _UNIT.finditer(text):
        words = match["unit"]
        unit = read_unit(words) or read_unit(words.split(" ")[0])
        if unit and not any(name.startswith(UNKNOWN) for name, _ in unit):
            found = unit
    return found
