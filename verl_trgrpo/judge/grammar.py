r"""One grammar for what surrounds values: qualifiers, conditions, classes of integers, parts, and sentences around a word.

A rule is a line of the grammar with its example behind it. What is in no rule leaves the whole text unread, so nothing around a
value is skipped because it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from verl_trgrpo.judge.tokens import SYMBOL, AnswerLexer, has_labels, labels_outside

GRAMMAR = r"""
pieces: piece (SEP piece)*                                // x^2 \text{ if } n \text{ is even}, 0 \text{ otherwise}
parts: (LABEL pieces)+                                    // (1) 3 (2) \frac12
piece: body clause*                                       // f(x)=cx \text{ (where } c \text{ is a constant)}
     | ELSE body                                          // \text{otherwise } 0
     | IF body                                            // \text{if } n \text{ is even}
body: _words                                              // 2^k \text{ if } n=1
    | QUANTITY _words -> named                            // \text{maximum } 6
    | (_words | THERE) BE _words -> named                         // \text{the sum is } 5
    | _words? QUANTITY _words? BE _words -> named         // \text{the maximum value is } 5
    | _words? CLASS+ (NAMES | NOUN (OF? NAMES)?)? -> integers   // \text{all odd } n; \text{odd integers}
    | _words BE _words? CLASS+ NOUN? -> integers         // n \text{ is an odd integer}
    | (_words BE)? _words? _multiple -> integers         // \text{powers of } 2; n \text{ is divisible by } 3
_multiple: (POWER | MULTIPLE) OF DIGITS | NOT? DIVISIBLE BY DIGITS
_words: (ARTICLE | EVERY | SOME | ADJECTIVE | NOUN | CONSTANT | FORMULA | RELATION | NAMES | DOMAIN | DIGITS | WORD | SUBJECT
    | OF)+

// A qualifier says what a letter is, and restricts nothing; a condition restricts.
clause: FOR body                                          // \text{for all real } x; \text{for } x>0
       | (WHERE | SUCH THAT) body                         // \text{where } c \text{ is a constant}; \text{with constant } c
       | IF body                                          // \text{if } n \text{ is even}
       | OTHERWISE | FOR EVERY? OTHER (NAMES | NOUN)+     // \text{otherwise}; \text{for all other } n
       | FREE                                             // , k\in\mathbb{Z}
       | _LP (clause | body) _RP                          // (c \text{ constant})
cell: clause | body                                      // \text{if } x>0; n \text{ odd}

// Sentences around a word.
sentence: _subject? _EXIST -> exists                      // exists
        | _subject? (_DO NOT _EXIST | DNE) -> exists      // The limit does not exist; DNE
        | _subject? ((_DO | BE) NOT CONVERGE | BE? (CONVERGE | DIVERGE)) -> converges   // does not converge; is divergent
        | _subject? BE? WORD (CONVERGE | DIVERGE) -> converges   // The series is absolutely convergent
        | _subject? (CONVERGE | DIVERGE) WORD -> converges   // converges absolutely
        | YES (SEP? _yes)? -> verdict                     // Yes, such a function exists
        | NO (SEP? _no)? -> verdict                       // No, it does not exist
        | adjectives (HAS ARTICLE WINNING STRATEGY | (_DO | _MODAL)* WIN)   // Bob has a winning strategy
        | adjectives FINISH FIRST                          // Bob finished first
        | _subject (BE | FALL ON) predicate    // The triangle is isosceles; It falls on a Wednesday
        | (_subject BE)? (NOT TRUE | FALSE | TRUE) -> truth   // The statement is true; not possible
        | (THERE BE INFINITELY | INFINITELY) MANY SUBJECT? -> endless    // There are infinitely many solutions
        | (THERE BE | ARTICLE? SUBJECT HAS) NO ADJECTIVE? SUBJECT -> none   // There are no real solutions
        | NO ADJECTIVE? SUBJECT _EXIST -> none            // No solutions exist
        | MONTH DIGITS _ORDINAL? (SEP? DIGITS)? -> date   // March 15th, 2020
        | DIGITS _ORDINAL? OF? MONTH (SEP? DIGITS)? -> date   // 15 March
adjectives: (ARTICLE | WORD | ADJECTIVE | CLASS | DIGITS | NAMES | FIRST)+
predicate: (ARTICLE | WORD | ADJECTIVE | CLASS | DIGITS | NAMES | SUBJECT | FIRST)+
_subject: _IT | ARTICLE? SUBJECT
_yes: _IT (_DO | BE | _EXIST | _DO _EXIST | BE TRUE) | ARTICLE? SUBJECT (_DO? _EXIST | _DO | CONVERGE) | _such _EXIST
    | THERE (BE | _DO | _EXIST) _such? | CONVERGE
_no: _IT (_DO NOT (_EXIST | CONVERGE)? | BE NOT TRUE? | BE FALSE) | ARTICLE? SUBJECT (_DO NOT (_EXIST | CONVERGE)? | DIVERGE)
   | NO SUCH SUBJECT _EXIST | THERE BE NO SUCH SUBJECT | THERE (BE | _DO) NOT (_EXIST _such?)? | _such _DO NOT _EXIST
_such: SUCH ARTICLE? SUBJECT

FOR: /for/
WHERE: /where|with/
SUCH: /such/
THAT: /that/
IF: /if|when|whenever|provided/
OTHERWISE: /otherwise|else/
OTHER: /other/
ARTICLE: /an?|the/
EVERY: /all|any|every|each|arbitrary/
SOME: /some/
ADJECTIVE: /real|complex|rational|natural|positive|non-?negative/
NOUN: /integers?|numbers?|reals|values?|naturals/
CONSTANT: /constants?|parameters?|scalars?/
BE: /is|are|be|being|equals/
CLASS: /odd|even|primes?/
POWER: /powers?/
MULTIPLE: /multiples?/
DIVISIBLE: /divisible/
OF: /of/
BY: /by/
QUANTITY: /min(?:imum)?|max(?:imum)?/
_EXIST: /exists?/
_DO: /does|do|can|did/
_MODAL: /always|can|will/
NOT: /not/
DNE: /dne/
CONVERGE: /converges?|convergent/
DIVERGE: /diverges?|divergent/
YES: /yes/
NO: /no/
HAS: /has|have/
WINNING: /winning/
STRATEGY: /strategy/
WIN: /wins?/
FINISH: /finishe[sd]|comes|came/
FIRST: /first/
FALL: /falls?|fell/
ON: /on/
_IT: /it|they/
THERE: /there/
INFINITELY: /infinitely/
MANY: /many/
TRUE: /true|possible|correct/
FALSE: /false|impossible|incorrect/
SUBJECT: /answer|circle|conic|curve|equation|figure|functions?|graph|integral|limit|matrix|polynomial|quadrilateral|relation/
       | /sequence|series|set|shape|line|slope|number|integer|solutions?|statement|sum|system|triangle|winner/
MONTH: /january|february|march|april|may|june|july|august|september|october|november|december/
_ORDINAL: /st|nd|rd|th/
%declare LABEL SEP _LP _RP FORMULA RELATION NAMES FREE DOMAIN WORD DIGITS ELSE
"""


@dataclass(frozen=True)
class Integers:
    """A class of integers.

    Args:
        words: `odd`, `even`, `prime`, in small letters and sorted.
        multiple: with a number: `power` or `multiple`.
        name: the letter that stands for them.
    """

    words: tuple[str, ...] = ()
    multiple: tuple[str, str] | None = None
    name: str | None = None


@dataclass(frozen=True)
class Piece:
    """A value with what surrounds it.

    Args:
        value: a normalized text without its clauses, or a class of integers.
        conditions: what restricts it: relations, classes, or "otherwise".
        plain: nothing surrounds it.
        integer: letters that a qualifier calls integers.
    """

    value: str | Integers
    conditions: tuple[str | Integers, ...] = ()
    plain: bool = True
    integer: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Body:
    """Tokens, or two runs of them around "is"."""

    tokens: tuple[Token, ...]
    said: tuple[Token, ...] = ()


@dataclass(frozen=True)
class _Clause:
    condition: str | Integers | None = None
    names: frozenset[str] = frozenset()
    integer: bool = False
    some: bool = False
    restriction: _Clause | None = None


Pieces = tuple[tuple[str, Piece], ...]
"""Pieces, each with the separator in front."""


class UnclearError(ValueError):
    """A text follows a rule, but what it says is not clear."""


class _Trees(Transformer[Token, Any]):
    """Makes pieces, or canonical words, of a tree."""

    def body(self, tokens: list[Token]) -> _Body:
        return _Body(tuple(tokens))

    def named(self, tokens: list[Token]) -> _Body:
        place = next((k for k, token in enumerate(tokens) if token.type == "BE"), 1)
        return _Body(tuple(tokens[:place]), tuple(token for token in tokens[place:] if token.type != "BE"))

    def integers(self, tokens: list[Token]) -> Integers:
        kinds = [token.type for token in tokens]
        alone = len(kinds) == 1 and not tokens[0].lower().endswith("s")
        real = any(token.type == "NOUN" and token.lower() == "reals" for token in tokens)
        if {*kinds} - _OF_CLASSES or kinds.count("NAMES") > 1 or real or alone:
            raise UnclearError  # positive odd numbers; even
        name = next((str(token) for token in tokens if token.type == "NAMES"), None)
        if number := next((str(token) for token in tokens if token.type == "DIGITS"), None):
            kind = "power" if "POWER" in kinds else "not multiple" if "NOT" in kinds else "multiple"
            return Integers(multiple=(kind, number), name=name)
        return Integers(
            tuple(sorted(token.lower().removesuffix("s") for token in tokens if token.type == "CLASS")), name=name
        )

    def clause(self, children: list[Any]) -> _Clause:
        opener, body = (children[0] if isinstance(children[0], Token) else None), children[-1]
        kind = opener.type if opener else ""
        if isinstance(body, _Clause):
            return body
        if kind == "OTHERWISE" or any(isinstance(each, Token) and each.type == "OTHER" for each in children):
            return _Clause("otherwise")
        if kind == "FREE":
            return _qualifier(_Body((body,)))
        if kind == "IF" or isinstance(body, Integers) or body.tokens[0].type == "RELATION":
            return _Clause(_condition(body))
        if kind == "FOR" and body.said:
            raise UnclearError  # for x is real
        return _qualifier(body)

    def cell(self, children: list[Any]) -> str | Integers:
        return _condition(children[0])

    def piece(self, children: list[Any]) -> Piece:
        if isinstance(children[0], Token):
            value = _value(children[1]) if children[0].type == "ELSE" else _condition(children[1])
            if children[0].type == "IF" and isinstance(value, str) and "=" in value:
                raise UnclearError  # if x=5
            return Piece(value, ("otherwise",) * (children[0].type == "ELSE"), plain=False)
        body, *clauses = children
        value = _value(body)
        left = {*re.findall(SYMBOL, value.partition("=")[0])} if isinstance(value, str) and "=" in value else set()
        if any(each.some and each.names & left for each in clauses):
            raise UnclearError  # f(x)=x for some real x
        clauses = [each if each.restriction is None or each.names & left else each.restriction for each in clauses]
        integer = frozenset().union(*(each.names for each in clauses if each.integer))
        conditions = tuple(each.condition for each in clauses if each.condition is not None)
        plain = isinstance(body, _Body) and not body.said and not clauses
        return Piece(value, conditions, plain, integer)

    def pieces(self, children: list[Any]) -> Pieces:
        separators = ["", *(str(each) for each in children[1::2])]
        return tuple(zip(separators, children[::2], strict=True))

    def parts(self, children: list[Any]) -> list[Pieces]:
        return [each for each in children if not isinstance(each, Token)]

    # Sentences become the words that they are about.
    def sentence(self, children: list[Any]) -> str:
        return next(each for each in children if not isinstance(each, Token))

    def exists(self, tokens: list[Token]) -> str:
        return "does not exist" if {"NOT", "DNE"} & {token.type for token in tokens} else "exists"

    def truth(self, tokens: list[Token]) -> str:
        word, denied = tokens[-1].lower(), any(token.type == "NOT" for token in tokens)
        return {"true": "false", "possible": "impossible", "correct": "incorrect"}[word] if denied else word

    def none(self, tokens: list[Token]) -> str:
        if not tokens[-1].lower().startswith("solution"):
            raise UnclearError  # there is no limit
        return "no solution"

    def converges(self, tokens: list[Token]) -> str:
        manner = [token.casefold() for token in tokens if token.type == "WORD"]
        return " ".join(["diverges" if {"NOT", "DIVERGE"} & {token.type for token in tokens} else "converges", *manner])

    def endless(self, tokens: list[Token]) -> str:
        return "infinitely many"

    def verdict(self, tokens: list[Token]) -> str:
        return tokens[0].casefold()

    def adjectives(self, tokens: list[Token]) -> str:
        return " ".join(tokens)

    predicate = adjectives

    def date(self, tokens: list[Token]) -> str:
        found = {}
        for token in tokens:
            found["year" if token.type == "DIGITS" and "DIGITS" in found else token.type] = token.casefold()
        return " ".join(found[each] for each in ("MONTH", "DIGITS", "year") if each in found)


_BEGINNINGS = "EVERY|FOR|WHERE|SUCH|IF|OTHERWISE|CONSTANT|BE|CLASS|POWER|MULTIPLE|DIVISIBLE|QUANTITY"
_TRIGGER = re.compile(
    rf"(?<![a-zA-Z])(?:{'|'.join(re.findall(rf'^(?:{_BEGINNINGS}): /(.+)/$', GRAMMAR, re.MULTILINE))})(?![a-zA-Z])"
    r"|\\(?:in|forall)(?![a-zA-Z])",
    re.IGNORECASE,
)  # for; \in
MONTH = re.compile("|".join(re.findall(r"^MONTH: /(.+)/$", GRAMMAR, re.MULTILINE)), re.IGNORECASE)  # March
_PLAIN_WORD = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]{4}")  # unclear, not a product
_NARROW = ("positive", "non", "integer", "natural", "rational")
_KINDS = frozenset({"ARTICLE", "EVERY", "SOME", "ADJECTIVE", "NOUN", "CONSTANT"})
_OF_CLASSES = {
    "ARTICLE", "EVERY", "NOUN", "NAMES", "BE", "OF", "BY", "CLASS", "POWER", "MULTIPLE", "DIVISIBLE", "DIGITS", "NOT",
}  # fmt: skip
_FORMULAS = {"FORMULA", "RELATION", "NAMES", "DOMAIN", "DIGITS"}


def _value(body: _Body | Integers) -> str | Integers:
    if isinstance(body, Integers):
        return body
    if body.said and body.tokens[0].type == "THERE" and body.said[0].type == "DIGITS":
        return _written(body.said)
    if body.said:
        if any(token.type in ("DIGITS", "RELATION") for token in body.tokens) or body.said[0].type not in _FORMULAS:
            raise UnclearError  # 5 is wrong; the sum is not 5
        if any(_PLAIN_WORD.search(token) for token in body.said if token.type in _FORMULAS):
            raise UnclearError  # the answer is unclear
        left = rf"\{body.tokens[0][:3].lower()}" if body.tokens[0].type == "QUANTITY" else _written(body.tokens)
        return f"{left}={_written(body.said).lstrip('=')}"
    kinds = [token.type for token in body.tokens]
    if kinds[-1] == "RELATION" and {*kinds[:-1]} <= {"ARTICLE", "EVERY", "NOUN", "SUBJECT"}:
        return str(body.tokens[-1])  # all integers n>2
    if {*kinds} & {*_KINDS, "OF"}:
        raise UnclearError  # all x
    return _written(body.tokens)


def _condition(body: _Body | Integers | _Clause) -> str | Integers:
    if isinstance(body, _Clause):
        if body.condition is None:
            raise UnclearError
        return body.condition
    if isinstance(body, Integers):
        return body
    if len(body.tokens) > 1 or body.said:
        raise UnclearError  # if x is real
    return str(body.tokens[0])


def _qualifier(body: _Body) -> _Clause:
    """Return a clause that restricts nothing: letters, and what kind of number they are."""
    tokens = (*body.tokens, *body.said)
    kinds = {token.type for token in tokens}
    named = next((str(token) for token in tokens if token.type in ("NAMES", "DOMAIN", "FREE")), "")
    if kinds - {*_KINDS, "NAMES", "DOMAIN", "FREE"} or (body.said and not kinds & {"NOUN", "CONSTANT", "ADJECTIVE"}):
        raise UnclearError
    if "SOME" in kinds and not kinds & {"NOUN", "CONSTANT", "DOMAIN"}:
        raise UnclearError  # for some x
    letters, _, domain = named.partition(r"\in")
    integer = "Z" in domain or any(token.lower().startswith("integer") for token in tokens)
    names = frozenset(re.findall(SYMBOL, letters))
    # That a constant is positive or an integer is a condition, unless its letter usually stands for an integer.
    narrow = sorted({token.lower().rstrip("s") for token in tokens if token.lower().startswith(_NARROW)})
    narrow = [] if "EVERY" in kinds or all(re.fullmatch("[j-n]", name) for name in names) else narrow
    restriction = _Clause(rf"\text{{{' '.join([*sorted(names), *narrow])}}}") if narrow else None
    return _Clause(None, names, integer, "SOME" in kinds, restriction)


def _written(tokens: Sequence[Token]) -> str:
    """Return tokens as a normalized text, words that follow one another in one `\\text`."""
    runs = groupby(tokens, key=lambda token: token.type not in _FORMULAS)
    return "".join(rf"\text{{ {' '.join(run)}}}" if words else "".join(run) for words, run in runs)


@lru_cache(maxsize=2)
def _parser(*starts: str) -> Lark:
    """Return the parser of some rules, which knows the words of these alone; made at its first use."""
    return Lark(GRAMMAR, parser="lalr", lexer=AnswerLexer, start=[*starts])


def _parsed(text: str, start: str) -> Any:
    starts = ("sentence",) if start == "sentence" else ("pieces", "parts", "cell")
    try:
        return _Trees().transform(_parser(*starts).parse(text, start=start))
    except (UnexpectedInput, VisitError):
        return None


def read_pieces(text: str) -> Pieces | None:
    """Return the values of a text with what surrounds them; None where no clause or class is read."""
    if not _TRIGGER.search(text):
        return None
    found: Pieces | None = _parsed(text, "pieces")
    return None if found is None or all(piece.plain for _, piece in found) else found


def read_parts(text: str) -> list[Pieces] | None:
    """Return the numbered parts of a text; None where it has none."""
    return _parsed(labels_outside(text), "parts") if has_labels(text) else None


def read_condition(text: str) -> str | Integers:
    """Return the condition of a case, without the word in front."""
    return _parsed(text, "cell") or text


@lru_cache(maxsize=1024)
def read_sentence(words: str) -> str | None:
    """Return the words that a sentence states, such as "no" of "No, it does not exist"; None for other words."""
    words = re.sub(r"n['’]t\b", " not", words.rstrip(". "))
    return _parsed(rf"\text{{{words}}}", "sentence")
