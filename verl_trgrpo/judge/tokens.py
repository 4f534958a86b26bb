r"""Take a normalized answer apart into words, inside `\text` or not, and formulas, which are not looked into."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any

from lark import Token
from lark.lexer import Lexer

from verl_trgrpo.judge.spelling import AND, OR, ROW
from verl_trgrpo.judge.units import CHANGING_WORDS

SYMBOL = r"(?:[a-zA-Z]|\\(?:alpha|beta|gamma|lambda|mu|theta|omega))(?:_(?:\w|\{\w+\}))?"
_LETTERS = rf"{SYMBOL}(?:,[{AND}{OR}]?{SYMBOL})*"
_SET = r"(?:(?:\\mathbb)?\{ ?[RCZNQ]\}|[RCZNQ])(?:[_^](?:[+*]|\{[+>0*]{1,2}\}))?"
_NAMES = re.compile(_LETTERS)  # c; a,b
_DOMAIN = re.compile(rf"(?P<names>{_LETTERS})\\in ?{_SET}")  # x\in\mathbb{R}_+
_FREE = re.compile(
    r"[klmn]\\in ?\\mathbb\{Z\}|(?:(?![klmn])[a-zA-Z](?:_\w)?,)*(?![klmn])[a-zA-Z](?:_\w)?\\in ?\\mathbb\{R\}"
)  # k\in\mathbb{Z}
_RELATION = re.compile(r"[=<>]|\\(?:leq|geq|neq|equiv|mid|nmid|in|notin)(?![a-zA-Z])")  # x>0
_PIECE = re.compile(
    r"\\text\{(?P<text>[^{}]*)\}|(?P<open>\\\{|\\begin\{[a-z]*\*?\}|[(\[{])|(?P<close>\\\}|\\end\{[a-z]*\*?\}|[)\]}])"
    rf"|(?P<sep>[,;][{AND}{OR}]?|{ROW})|(?P<word>(?<![a-zA-Z\\_^])[a-zA-Z]{{2,}}(?![a-zA-Z(]))"
    r"|\\(?P<quantity>min|max)(?=[-0-9=]|\\[a-z])|(?P<formula>\\[a-zA-Z]+|.)",
    re.DOTALL,
)  # \text{if}; (; ); ,; odd; \min2; x
_WORD = re.compile(
    rf"(?P<word>[^\W\d_]{{2,}}(?:[-'’][^\W\d_]+)*|\b[aA]\b)|(?P<sep>[,;][{AND}{OR}]?)|(?P<open>\()|(?P<close>\))|(?P<formula>[^\s:])"
)  # well-known; ,; (; ); n
_OPENS_CLAUSE = re.compile(
    rf"\((?:\\text\{{ ?(?:for|where|with|if|when)\b|{_LETTERS}(?:\\in|\\text\{{ ?(?:is|are|an?|real|constants?|arbitrary)\b))"
)  # (c\text{ constant)}
_OPENERS = {"FOR", "WHERE", "SUCH", "IF", "OTHERWISE", "FREE", "_LP", "LABEL"}
_DEFINE = {"FOR", "WHERE", "THAT", "_LP", "ARTICLE", "EVERY", "SOME", "ADJECTIVE", "NOUN", "CONSTANT"}
_COUNT = r"(?P<number>[1-9]|[a-h]|[iv]{1,3})"
_IN_PARENTHESES = re.compile(
    rf"(?<![_^\\+*/=(a-zA-Z-])(?P<text>\\text\{{ ?)?\({_COUNT}\)(?(text) ?:? ?\}}) ?:? ?"
)  # (1); \text{(ii)}
_BEHIND = re.compile(rf"(?:^|(?<=[,; ])){_COUNT}\) ?")  # 1)
_PART = re.compile(
    rf"\\text\{{ ?(?:(?:part|question|problem) ?\(?{_COUNT}\)?[:.)]?|{_COUNT.replace('number', 'dotted')}\.) ?\}} ?:? ?",
    re.IGNORECASE,
)  # \text{Part1:}
_LABEL_IN_TEXT = re.compile(r"(?<=[a-zA-Z{,. ])(\((?:[1-9]|[a-h]|[iv]{1,3})\)) ?(?=[^{}]*\})")  # \text{(a) Yes,(b) No}
_LABELS = (_IN_PARENTHESES, _BEHIND, _PART)
_FIRST_LABEL = re.compile(
    r"(?:\\text\{ ?)?\(?[1ai]\)|\\text\{ ?(?:part|question|problem|[1ai]\.)", re.IGNORECASE
)  # (1); \text{Part 1:}
_COUNTS = ("123456789", "abcdefgh", ("i", "ii", "iii", "iv", "v", "vi"))


class AnswerLexer(Lexer):
    """Takes a text apart into the words of the grammar and formulas."""

    def __init__(self, conf: Any) -> None:
        self.known = [
            (each.name, re.compile(each.pattern.to_regexp(), re.IGNORECASE))
            for each in conf.terminals
            if each.pattern is not None
        ]
        self.type_of = lru_cache(maxsize=1024)(self.type_of)  # type: ignore[method-assign]

    def type_of(self, word: str) -> str:
        return next((name for name, pattern in self.known if pattern.fullmatch(word)), "WORD")

    def lex(self, text: Any) -> Iterator[Token]:  # type: ignore[override]
        """Yield the tokens of a normalized text."""
        tokens = self._merged(self._raw(text))
        kinds = [kind for kind, _ in tokens] + ["SEP"]
        for place, kind in enumerate(kinds):
            before, behind = kinds[place - 1] if place else "", (kinds[place + 1 :] or [""])[0]
            if kind == "FREE" and before not in ("SEP", "_LP"):
                kinds[place] = "DOMAIN"
            elif kind == "OTHERWISE" and behind not in ("SEP", "_RP"):
                kinds[place] = "ELSE"
        for (_, content), kind, behind in zip(tokens, kinds, kinds[1:], strict=False):
            if kind != "SEP" or OR in content or behind not in _OPENERS:
                yield Token(kind, content)

    def _raw(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield words, separators and pieces of formulas; what is in brackets is one piece."""
        labels = _labels_of(text)
        begin = depth = clauses = skip = 0
        for match in _PIECE.finditer(text):
            if match.start() < skip:
                continue
            if depth == 0 and match.start() in labels:
                skip = labels[match.start()]
                yield "LABEL", text[match.start() : skip]
                continue
            if depth:
                depth += bool(match["open"]) - bool(match["close"])
                if depth == 0:
                    yield "MATH", text[begin : match.end()]
            elif match["open"]:
                if _OPENS_CLAUSE.match(text, match.start()):
                    clauses += 1
                    yield "_LP", "("
                else:
                    begin, depth = match.start(), 1
            elif match["close"]:
                yield ("_RP" if clauses else "MATH"), match[0]
            elif match["text"] is not None:
                yield from self._inner(match["text"])
            elif match["word"]:
                kind = self.type_of(match["word"])
                is_product = match["word"] == "an" and text[match.end() : match.end() + 1] != " "  # an+b
                unknown = kind == "WORD" and match["word"].lower() not in CHANGING_WORDS
                yield ("MATH" if is_product or unknown else kind), match[0]
            elif match["sep"]:
                yield "SEP", match[0].replace(ROW, ",")
            elif match["quantity"]:
                yield "QUANTITY", match["quantity"]
            elif match[0] == r"\forall":
                yield from (("FOR", match[0]), ("EVERY", ""))
            else:
                yield "MATH", match[0]
        if depth:
            yield "MATH", text[begin:]

    def _inner(self, words: str) -> Iterator[tuple[str, str]]:
        """Yield what is in `\\text`: a letter or number is a formula."""
        for match in _WORD.finditer(words):
            kind = {"sep": "SEP", "open": "_LP", "close": "_RP", "formula": "MATH"}.get(match.lastgroup or "")
            yield kind or self.type_of(match[0]), match[0]

    @staticmethod
    def _merged(raw: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
        """Join pieces of formulas, and letters that are defined together."""
        found: list[tuple[str, str]] = []
        for is_formula, run in groupby(raw, key=lambda token: token[0] == "MATH"):
            if not is_formula:
                found += run
            elif formula := "".join(content for _, content in run).strip():
                found.append((_kind_of(formula), formula))
                kinds = [kind for kind, _ in found[-4:]]
                defined = kinds[-1] in ("DOMAIN", "FREE") or (kinds[-1] == "NAMES" and kinds[0] in _DEFINE)
                if kinds[1:-1] == ["NAMES", "SEP"] and defined:
                    formula = "".join(content for _, content in found[-3:])
                    found[-3:] = [(_kind_of(formula), formula)]
        return found


def _kind_of(formula: str) -> str:
    if _NAMES.fullmatch(formula):
        return "NAMES"
    if _FREE.fullmatch(formula):
        return "FREE"
    if _DOMAIN.fullmatch(formula):
        return "DOMAIN"
    if formula.isdigit():
        return "DIGITS"
    return "RELATION" if _RELATION.search(formula) else "FORMULA"


def _labels_of(text: str) -> dict[int, int]:
    """Return where numbers of parts begin and end, in order from the first: `(1)`, `(2)`."""
    for pattern in _LABELS:
        if not (first := pattern.match(text)):
            continue
        for count in _COUNTS:
            found: dict[int, int] = {}
            for match in pattern.finditer(text):
                if (
                    len(found) < len(count)
                    and (match["number"] or match.groupdict().get("dotted")) == count[len(found)]
                ):
                    found[match.start()] = match.end()
            if first.start() in found and len(found) > 1:
                return found
    return {}


def has_labels(text: str) -> bool:
    """Return whether a text is made of numbered parts."""
    return _FIRST_LABEL.match(text) is not None and bool(_labels_of(labels_outside(text)))


def labels_outside(text: str) -> str:
    r"""Return a text with the numbers of parts outside of `\text`."""
    return text if _labels_of(text) else _LABEL_IN_TEXT.sub(r"}\1\\text{", text).removeprefix(r"\text{}")
