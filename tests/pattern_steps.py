"""Steps of a backtracking search, counted: how a pattern's work grows is the same number on every machine.

The tree of a pattern, as the standard library parses it, is walked in the order in which its engine does. Spans agree with the
engine's, so the steps are those of the same search but for a factor.
"""

import math
import re
import sys
from functools import cache
from itertools import chain

try:
    from re import _constants as sre
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as sre
    import sre_parse as parser

MOST = 200_000
"""Steps after which a search counts as one without an end."""
_DEEP = 20_000  # calls, some six for each turn of a repeat
_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
_BOUNDARIES = {"AT_BOUNDARY": r"\b", "AT_NON_BOUNDARY": r"\B", "AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\Z",
               "AT_BEGINNING": "^", "AT_END": "$"}  # fmt: skip
_SINGLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "RANGE", "CATEGORY"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


WHOLE = {"sub", "subn", "split", "findall", "finditer"}
METHODS = {"fullmatch", "match", "search", *WHOLE}
"""Those that read a text to its end, and all that search."""


class TooManyStepsError(Exception):
    """A search took more than `MOST` steps."""


def _holds(op, value, char, flags):
    """Whether one character fits a node that reads one."""
    name = str(op)
    if name == "LITERAL":
        folded = flags & re.IGNORECASE and chr(value).casefold() == char.casefold()
        return ord(char) == value or bool(folded)
    if name == "NOT_LITERAL":
        return not _holds(sre.LITERAL, value, char, flags)
    if name == "ANY":
        return char != "\n" or bool(flags & re.DOTALL)
    if name == "RANGE":
        cases = {char, char.lower(), char.upper()} if flags & re.IGNORECASE else {char}
        return any(value[0] <= ord(case) <= value[1] for case in cases if len(case) == 1)
    if name == "CATEGORY":
        _, negated, kind = str(value).rpartition("NOT_")
        wanted = re.match(_CATEGORIES[kind.removeprefix("CATEGORY_")], char, flags & re.ASCII) is not None
        return wanted != bool(negated)
    negated = str(value[0][0]) == "NEGATE"
    return any(_holds(*each, char, flags) for each in value[negated:]) != negated


class Search:
    """Search one text, and count: of each attempt its start, each character looked at, each turn of a repeat."""

    def __init__(self, pattern, text, bound=sre.MAXREPEAT):
        self._tree, self._text, self._bound = tree_of(pattern.pattern, pattern.flags), text, bound
        self._flags, self._groups, self._fits, self.steps = pattern.flags, {}, {}, 0

    def _step(self, count=1):
        self.steps += count
        if self.steps > MOST:
            raise TooManyStepsError

    def spans(self, method="finditer", pos=0):
        """Return the spans that `method` of a compiled pattern finds."""
        found, empty = [], -1
        for start in range(pos, len(self._text) + 1):
            while start >= pos:
                ends = []

                def ended(at, start=start, ends=ends, empty=empty):
                    if at == start == empty or (method == "fullmatch" and at < len(self._text)):
                        return False
                    ends.append(at)
                    return True

                self._step()
                self._groups = {}
                if not self._sequence(self._tree, 0, start, self._flags, ended):
                    break
                found.append((start, ends[-1]))
                pos, empty = ends[-1], start if ends[-1] == start else -1  # a longer match may follow an empty one
            if method in ("match", "fullmatch") or (found and method == "search"):
                break
        return found

    def _fit(self, node, at, flags):
        """Whether the character at a place fits."""
        self._step()
        if at >= len(self._text):
            return False
        key = id(node), self._text[at]
        if key not in self._fits:
            self._fits[key] = _holds(*node, self._text[at], flags)
        return self._fits[key]

    def _sequence(self, nodes, k, at, flags, then):
        while k < len(nodes) and str(nodes[k][0]) in _SINGLE:
            if not self._fit(nodes[k], at, flags):
                return False
            at, k = at + 1, k + 1
        if k == len(nodes):
            return then(at)
        return self._node(nodes[k], at, flags, lambda end: self._sequence(nodes, k + 1, end, flags, then))

    def _node(self, node, at, flags, then):
        op, value = str(node[0]), node[1]
        if op in _REPEATS:
            return self._repeat(op, *value, at, flags, then)
        if op == "BRANCH":
            return any(self._sequence(branch, 0, at, flags, then) for branch in value[1])
        if op == "SUBPATTERN":
            group, added, removed, body = value
            return self._group(group, body, at, (flags | added) & ~removed, then)
        if op == "ATOMIC_GROUP":
            return self._atomic(lambda ended: self._sequence(value, 0, at, flags, ended), then)
        if op in ("ASSERT", "ASSERT_NOT"):
            start = at if value[0] > 0 else at - value[1].getwidth()[0]
            holds = start >= 0 and self._sequence(value[1], 0, start, flags, lambda end: value[0] > 0 or end == at)
            return holds == (op == "ASSERT") and then(at)
        if op == "AT":
            self._step()
            return re.compile(_BOUNDARIES[str(value)], flags & (re.M | re.A)).match(
                self._text, at
            ) is not None and then(at)
        if op == "GROUPREF":
            start, end = self._groups.get(value, (1, 0))
            self._step(max(1, end - start))
            held = self._text[start:end]
            return start <= end and self._text.startswith(held, at) and then(at + len(held))
        if op == "GROUPREF_EXISTS":
            start, end = self._groups.get(value[0], (1, 0))
            return self._sequence((value[1] if start <= end else value[2]) or [], 0, at, flags, then)
        raise NotImplementedError(op)

    def _group(self, group, body, at, flags, then):
        before = self._groups.get(group)

        def ended(end):
            kept, self._groups[group] = self._groups.get(group), (at, end)
            if then(end):
                return True
            self._groups[group] = kept or (1, 0)
            return False

        if self._sequence(body, 0, at, flags, ended):
            return True
        self._groups[group] = before or (1, 0)
        return False

    @staticmethod
    def _atomic(match, then):
        ends = []
        return match(lambda end: ends.append(end) or True) and then(ends[0])

    def _repeat(self, op, least, most, body, at, flags, then):
        if most != sre.MAXREPEAT:
            least, most = min(least, self._bound), min(most, self._bound)
        if op == "POSSESSIVE_REPEAT":
            return self._atomic(lambda ended: self._repeat("MAX_REPEAT", least, most, body, at, flags, ended), then)
        if len(body) == 1 and str(body[0][0]) in _SINGLE:
            return self._run(op, least, most, body[0], at, flags, then)

        def turn(begin, count):
            def more():
                def ended(end):
                    return (end > begin or count < least) and turn(end, count + 1)

                return count < most and self._sequence(body, 0, begin, flags, ended)

            self._step()
            if op == "MAX_REPEAT" or count < least:
                return more() or (count >= least and then(begin))
            return then(begin) or more()

        return turn(at, 0)

    def _run(self, op, least, most, node, at, flags, then):
        """Repeat one character, without a call for each."""
        end = at
        while end - at < least:
            if not self._fit(node, end, flags):
                return False
            end += 1
        if op == "MIN_REPEAT":
            while not then(end):
                if end - at >= most or not self._fit(node, end, flags):
                    return False
                end += 1
            return True
        while end - at < most and self._fit(node, end, flags):
            end += 1
        first = at + least
        while end >= first:
            self._step()
            if then(end):
                return True
            end -= 1
        return False


@cache
def tree_of(pattern, flags):
    return parser.parse(pattern, flags)


def steps(pattern, text, method="finditer", pos=0):
    """Return the steps of one search; infinity for more than `MOST`. Bounded repeats count as short ones."""
    search = Search(pattern, text, bound=10)
    sys.setrecursionlimit(max(_DEEP, sys.getrecursionlimit()))
    try:
        search.spans(method, pos)
    except TooManyStepsError:
        return math.inf
    return search.steps


def example(nodes, flags):
    """Return a short text that nodes read, with one turn of each repeat; what looks around is left out."""
    parts = []
    for node in nodes:
        op, value = str(node[0]), node[1]
        if op in _SINGLE:
            fits = (c for c in chain(_ALPHABET, map(chr, _first(node))) if _holds(*node, c, flags))
            parts.append(next(fits, ""))
        elif op in _REPEATS:
            parts.append(example(value[2], flags) * max(1, value[0]))
        elif op == "BRANCH":
            parts.append(example(value[1][0], flags))
        elif op in ("SUBPATTERN", "ATOMIC_GROUP"):
            parts.append(example(value[3] if op == "SUBPATTERN" else value, flags))
    return "".join(parts)


_ALPHABET = "a1 .,;:!?-=+*/\\(){}[]<>|'\"`$%&^_#~AZz\n\t"


def _first(node):
    """Yield the characters that a node names itself."""
    for kind, value in node[1] if str(node[0]) == "IN" else [node]:
        if str(kind) in ("LITERAL", "RANGE"):
            yield value if isinstance(value, int) else value[0]


def pumps(pattern):
    """Return what to repeat before a search, each behind a front: a repeat's body, alone or with what is in front."""
    found = {}

    def walk(nodes, front):
        for k, node in enumerate(nodes):
            op, value = str(node[0]), node[1]
            before = front + example(list(nodes)[:k], pattern.flags)
            bodies = value[1] if op == "BRANCH" else [value[-1]] if op in (*_REPEATS, "SUBPATTERN") else []
            bodies = [value] if op == "ATOMIC_GROUP" else bodies
            if op in _REPEATS and value[1] > SIZES[-1] // 10:
                turns = value[2][0][1][1] if str(value[2][0][0]) == "BRANCH" else [value[2]]
                for text in (example(turn, pattern.flags) for turn in turns):
                    found.update(dict.fromkeys([("7", text), (before, text), ("", before + text)]))
            for body in bodies:
                walk(body, before)

    walk(tree_of(pattern.pattern, pattern.flags), "")
    return [(front, text) for front, text in found if text]


SIZES = 60, 240


def grows(work):
    """Whether work, of a size, grows by more than the size does: by 4 if in proportion to it, by 16 if to its square."""
    short, long = map(work, SIZES)
    return long == math.inf or long > 2 * short * SIZES[1] / SIZES[0]


def repeated(piece, size):
    """Return as many whole pieces as reach a size."""
    return piece * (size // len(piece) + 1)


def squares(pattern, method="finditer"):
    """Return the fronts and pieces whose repetition takes more than work in proportion to its length."""
    return [
        (front, piece)
        for front, piece in pumps(pattern)
        if grows(lambda size, f=front, p=piece: steps(pattern, f + repeated(p, size) + "!", method))
    ]
