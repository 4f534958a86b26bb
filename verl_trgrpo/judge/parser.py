r"""Parse a LaTeX formula into a tree, strictly: what is not in the grammar raises, nothing is skipped.

A tree is a tuple of an operation and its operands. ``("number", Fraction)``, ``("name", str)``, ``("pi",)``, ``("e",)`` and
``("i",)`` are leaves; ``("call", name, ...)`` is a function without a value of its own, equal only at equal arguments.
"""

import re
from collections.abc import Collection
from fractions import Fraction
from typing import Any

Tree = tuple[Any, ...]

GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar infty partial"
)
_ACCENTS = "bar overline hat widehat tilde vec overrightarrow mathbb mathcal variable text"
_SCRIPT = r"_(?:[0-9a-zA-Z]|\\[a-zA-Z]+|\{[^{}]*\})"
_TOKEN = re.compile(
    rf"(?P<name>(?:\\(?:{'|'.join(_ACCENTS.split())}) ?(?:\{{[^{{}}]*\}}|[a-zA-Z](?![a-zA-Z]))"
    rf"|\\(?:{'|'.join(GREEK.split())})(?![a-zA-Z])"
    rf"|[a-zA-Z])(?: ?{_SCRIPT})?'*)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)|(?P<command>\\[a-zA-Z]+|\\.)|(?P<sign>[^\s])"
)  # `\vec{u}_1`, `x_{12}''`, `3.5`, `\frac`, `+`
_INVERTIBLE = ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "sech", "csch"]  # \sin^{-1}
FUNCTIONS = {
    "arctg": "atan", "arcctg": "acot", "tg": "tan", "ctg": "cot", "sh": "sinh", "ch": "cosh", "th": "tanh", "cth": "coth",
    "cosec": "csc", "sen": "sin", "arccosec": "acsc", "argsh": "asinh", "argch": "acosh", "argth": "atanh",
}  # fmt: skip
FUNCTIONS |= {name: name for name in [*_INVERTIBLE, "exp", "ln", "log", "lg", "det", "arg", "deg"]}
FUNCTIONS |= {
    prefix + name: "a" + name for name in _INVERTIBLE for prefix in ("arc", *("ar", "a", "arg") * name.endswith("h"))
}
"""What the names of functions mean; the only list of them."""
_SEVERAL = {"max", "min", "gcd", "lcm"}
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_BIG = {r"\sum", r"\prod", r"\int", r"\iint", r"\oint", r"\lim"}
_PREFIXES = {*_BIG, *(f"\\{name}" for name in [*FUNCTIONS, *_SEVERAL, "frac", "sqrt", "binom"])}
_TIMES = {"*", r"\cdot", r"\times", r"\ast"}
# Letters that usually name functions, and those that are usually factors of what stands in parentheses.
_FUNCTION_NAMES = "phi psi sigma tau zeta chi Gamma Phi Psi Theta"
_FUNCTION_LETTERS = frozenset("fghFGH") | {rf"\{name}" for name in _FUNCTION_NAMES.split(" ")}
_FACTORS = frozenset("abcdkmnpqrstxyzABCKRV") | {
    rf"\{name}" for name in ["alpha", "beta", "lambda", "mu", "theta", "omega"]
}
_MAX_DEPTH = 40


class UnreadableFormulaError(ValueError):
    """The text is not a formula of the grammar."""


def tokens_of(text: str) -> list[tuple[str, str]]:
    """Return the tokens of a formula as pairs of kind (name, number, command, sign) and text."""
    return [(match.lastgroup or "", re.sub(r" |\{(.)\}", r"\1", match[0])) for match in _TOKEN.finditer(text)]


def functions_of(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> frozenset[str]:
    r"""Return the letters that are functions in two formulas: `f` in `3f(x)` and `f(3x)`, but not `k` in `k(k+1)`.

    A letter that stands alone somewhere is a factor in its formula, and in the other one unless it usually names a function or
    has a single letter or number as its argument there.
    """
    found = set()
    uses = [_uses(tokens) for tokens in (one, other)]
    for name in uses[0].keys() | uses[1].keys():
        (called, alone, plain), (called_too, alone_too, plain_too) = (use.get(name, (0, 0, 0)) for use in uses)
        if not called + called_too or (called and alone) or (called_too and alone_too):
            continue
        base = name.partition("_")[0].rstrip("'")
        usual = base in _FUNCTION_LETTERS or "'" in name or plain + plain_too
        if usual or (base not in _FACTORS and not alone + alone_too):
            found.add(name)
    return frozenset(found)


def _uses(tokens: list[tuple[str, str]]) -> dict[str, tuple[int, int, int]]:
    """Return how often each name is followed by a parenthesis, stands alone, and has a single name or number as its argument."""
    uses: dict[str, tuple[int, int, int]] = {}
    texts = [text for _, text in tokens] + [""] * 8
    for place, (kind, name) in enumerate(tokens):
        if kind == "name" and name not in (r"\pi", "e"):
            behind = place + (6 if texts[place + 1 : place + 6] == ["^", "{", "-", "1", "}"] else 1)
            called = texts[behind] in ("(", "[") and (place == 0 or texts[place - 1] not in ("^", "_"))
            plain = called and texts[behind + 2] in (")", "]", ",") and texts[behind + 1] != ")"
            one, alone, single = uses.get(name, (0, 0, 0))
            uses[name] = (one + called, alone + (not called), single + plain)
    return uses


def parse_formula(tokens: list[tuple[str, str]], functions: Collection[str] = (), by: str = "") -> Tree:
    """Return the tree of a formula.

    Args:
        tokens: of `tokens_of`, without a relation such as `=`.
        functions: names that are functions where a parenthesis follows.
        by: the variable of derivatives written as primes.

    Raises:
        UnreadableFormulaError: the formula is not in the grammar.
    """
    parser = _Parser(tokens, functions, by)
    tree = parser.sum()
    if parser.place < len(tokens):
        raise UnreadableFormulaError(f"{parser.text!r} is not expected")
    return tree


class _Parser:
    """Reads `tokens` from `place` on, by recursive descent."""

    def __init__(self, tokens: list[tuple[str, str]], functions: Collection[str], by: str) -> None:
        self.tokens, self.functions, self.by = tokens, functions, by
        self.place = self.depth = self.exponent_end = 0
        self.bars: list[str] = []

    @property
    def kind(self) -> str:
        return self.tokens[self.place][0] if self.place < len(self.tokens) else ""

    @property
    def text(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def next(self) -> str:
        text = self.text
        self.place += 1
        return text

    def take(self, *texts: str) -> bool:
        """Return whether the next token is one of `texts`, and skip it if so."""
        found = self.place < len(self.tokens) and self.text in texts
        self.place += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise UnreadableFormulaError(f"{text!r} is missing at {self.text!r}")

    def sum(self) -> Tree:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise UnreadableFormulaError("brackets are nested too deeply")
        terms = []
        sign = self.next() if self.text in ("+", "-") else "+"
        while True:
            term = self.product()
            terms.append(term if sign == "+" else ("*", ("number", Fraction(-1)), term))
            if self.text not in ("+", "-"):
                break
            sign = self.next()
        self.depth -= 1
        return terms[0] if len(terms) == 1 else ("+", *terms)

    def product(self) -> Tree:
        tree = self.factor()
        while True:
            if self.text in _TIMES:
                tree = _times(tree, self.next(), self.signed())
            elif self.take("/", r"\div"):
                tree = ("/", tree, self.signed())
            elif self.begins_factor():
                before = self.tokens[self.place - 1]
                if self.merges(before) or (is_vector(tree) and self.vector()):
                    raise UnreadableFormulaError(f"{before[1]} and {self.text} stand side by side")
                mixed = self.mixed(tree) if before[0] == tree[0] == "number" and self.text == r"\frac" else None
                tree = mixed or self.juxtaposed(tree)
            else:
                return tree

    def merges(self, before: tuple[str, str]) -> bool:
        """Return whether a number that follows may belong to what stands in front: `3 2`, `x2`, `x^25`.

        It does not where it has its own power, unless a number stands in front on the line: `n2^n` and `2^4 3^m`, not `3 2^n`;
        nor behind an exponent in braces.
        """
        if self.kind != "number":
            inside = [kind for kind, _ in self.tokens[self.place + 1 : self.place + 2]]
            return before[0] == "number" and self.text == "{" and inside == ["number"]
        exponent = self.place == self.exponent_end
        powered = [text for _, text in self.tokens[self.place + 1 : self.place + 2]] == ["^"]
        if before[0] == "number":
            return not (exponent and powered)
        return not powered and before[0] == "name"

    def juxtaposed(self, tree: Tree) -> Tree:
        factor = self.factor()
        if tree[0] == factor[0] == "group":
            raise UnreadableFormulaError("numbers in parentheses side by side may be cycles")
        return ("*", tree, factor)

    def mixed(self, whole: Tree) -> Tree | None:
        r"""Return the value of `3\frac{1}{2}`; None if it is a product such as `3\frac{x}{2}`."""
        texts = [text for _, text in self.tokens[self.place : self.place + 7]]
        if texts[1:2] + texts[3:5] + texts[6:] != ["{", "}", "{", "}"] or not (texts[2] + texts[5]).isdigit():
            return None
        self.place += 7
        if self.text in ("^", "!"):
            raise UnreadableFormulaError("the power of a mixed number is not clear")
        return ("+", whole, ("/", ("number", Fraction(texts[2])), ("number", Fraction(texts[5]))))

    def vector(self) -> bool:
        return self.kind == "name" and is_vector(("name", self.text))

    def signed(self) -> Tree:
        if self.take("-"):
            return ("*", ("number", Fraction(-1)), self.factor())
        return self.factor()

    def begins_factor(self) -> bool:
        if self.text in ("|", r"\|"):
            return self.text not in self.bars
        return self.kind in ("name", "number") or self.text in _CLOSING or self.text in _PREFIXES

    def factor(self) -> Tree:
        """Parse a factor with what is attached to it: powers, factorials, degrees, primes."""
        base, tree = self.text, self.atom()
        raised = tree[0] == "^" and base not in _CLOSING
        while True:
            if self.take("!"):
                tree = ("!!", tree) if self.take("!") else ("!", tree)
                if self.text == "!":
                    raise UnreadableFormulaError("three factorials")
            elif self.take("^"):
                if self.take(r"\circ"):
                    tree = ("*", tree, ("/", ("pi",), ("number", Fraction(180))))
                    continue
                if raised:
                    raise UnreadableFormulaError("two exponents side by side")
                exponent = self.script()
                if exponent == ("name", "T") and (tree[0] == "name" or base == "("):
                    raise UnreadableFormulaError("a transpose")
                tree, raised = ("^", _ungrouped(tree), exponent), True
                self.exponent_end = self.place
            elif self.text == "'":
                tree = ("call", "prime", tree)
                self.next()
            else:
                return tree

    def script(self) -> Tree:
        """Parse an exponent: a group, or a single character."""
        if self.take("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        if self.kind == "number" and len(self.text) == 1:
            return ("number", Fraction(self.next()))
        if self.kind == "name":
            return _leaf(self.next())
        raise UnreadableFormulaError(f"the exponent {self.text!r} is not clear")

    def atom(self) -> Tree:
        kind, text = self.kind, self.text
        if kind == "number":
            return ("number", Fraction(self.next()))
        if kind == "name":
            return self.symbol()
        if text in ("|", r"\|"):
            return self.between_bars()
        if text in (r"\lfloor", r"\lceil", "(", "[", "{"):
            self.next()
            begin, tree = self.place, self.sum()
            self.expect(_CLOSING[text])
            if text in (r"\lfloor", r"\lceil"):
                return ("floor" if text == r"\lfloor" else "ceiling", tree)
            single = text == "(" and self.place - begin == 2 and self.tokens[begin][0] == "number"
            return ("group", tree) if single else tree
        if text in _BIG:
            return self.big_operator()
        if kind == "command":
            return self.command(self.next()[1:])
        raise UnreadableFormulaError(f"{text!r} is not expected")

    def between_bars(self) -> Tree:
        bar = self.next()
        self.bars.append(bar)
        tree = self.sum()
        self.expect(bar)
        self.bars.pop()
        if bar == r"\|" or is_vector(tree):
            norm = "norm" + ("".join(self.next() for _ in range(2)) if self.text == "_" else "")
            return ("call", norm, tree)
        return ("abs", tree)

    def symbol(self) -> Tree:
        name = self.next()
        letter, primes = name.rstrip("'"), len(name) - len(name.rstrip("'"))
        if primes:
            name = derivative("D", str(primes), letter, self.by)
        if letter + primes * "'" not in self.functions:
            return _leaf(name)
        inverse = [text for _, text in self.tokens[self.place : self.place + 6]] == ["^", "{", "-", "1", "}", "("]
        self.place += 5 * inverse
        return ("call", name + "^-1" * inverse, *self.arguments()) if self.text in ("(", "[") else _leaf(name)

    def arguments(self) -> list[Tree]:
        closing = _CLOSING[self.next()]
        found = [self.sum()]
        while self.take(",", ";"):
            found.append(self.sum())
        self.expect(closing)
        return found

    def command(self, name: str) -> Tree:
        if name in ("frac", "binom"):
            parts = []
            for _ in range(2):
                self.expect("{")
                parts.append(self.sum())
                self.expect("}")
            return ("/" if name == "frac" else "binomial", *parts)
        if name == "sqrt":
            index: Tree = ("number", Fraction(2))
            if self.take("["):
                index = self.sum()
                self.expect("]")
            self.expect("{")
            tree = self.sum()
            self.expect("}")
            return ("root", tree, index)
        if name in _SEVERAL and self.text in ("(", r"\{"):
            return (name, *self.arguments())
        if name in FUNCTIONS:
            return self.function(FUNCTIONS[name])
        raise UnreadableFormulaError(f"\\{name} is not expected")

    def function(self, name: str) -> Tree:
        base: Tree = ("e",) if name == "ln" else ("number", Fraction(10))
        exponent = None
        while self.text in ("^", "_"):
            if self.next() == "^":
                exponent = self.script()
            elif name == "log":
                base = self.script()
            else:
                raise UnreadableFormulaError(f"an index of {name}")
        if exponent == ("*", ("number", Fraction(-1)), ("number", Fraction(1))):
            if name not in _INVERTIBLE:
                raise UnreadableFormulaError("an inverse function")
            name, exponent = "a" + name, None
        bracket = self.text in ("(", "[", "{")
        tree = self.atom() if bracket else self.unbracketed()
        if name == "exp":
            found: Tree = ("^", ("e",), tree)
        else:
            found = ("log", tree, base) if name in ("ln", "log", "lg") else (name, tree)
        return found if exponent is None else ("^", found, exponent)

    def unbracketed(self) -> Tree:
        r"""Parse the argument of a function without brackets: `2\pi x` of `\sin 2\pi x`, up to a sign or another function."""
        if self.take("-"):
            return ("*", ("number", Fraction(-1)), self.unbracketed())
        tree = self.factor()
        while self.begins_factor() and self.text[1:] not in FUNCTIONS and self.kind != "number" and self.text != "(":
            tree = ("*", tree, self.factor())
        if self.text in ("/", "("):
            raise UnreadableFormulaError(f"where the argument of a function ends is not clear before {self.text}")
        return tree

    def big_operator(self) -> Tree:
        r"""Take a sum, product, integral or limit with all that follows as one name, whatever letter it runs over."""
        rest: list[str] = []
        depth = 0
        while self.place < len(self.tokens):
            depth += (self.text in _CLOSING) - (self.text in _CLOSING.values())
            if depth < 0:
                break
            rest.append(self.next())
        runs_over = rest[3] if rest[1:3] == ["_", "{"] and rest[0] != r"\int" and rest[4:5] == ["="] else ""
        return ("name", "".join(r"\bound" if text == runs_over else f"{text} " for text in rest))


def derivative(kind: str, order: str, of: str, by: str) -> str:
    """Return the name of a derivative."""
    return rf"\variable{{{re.sub('[{} ]', '', f'{kind}{order}{of}/{by}')}}}"


def _leaf(name: str) -> Tree:
    return (name.strip("\\"),) if name in ("e", "i", r"\pi") else ("name", name)


def _ungrouped(tree: Tree) -> Tree:
    return tree[1] if tree[0] == "group" else tree


def _times(left: Tree, sign: str, right: Tree) -> Tree:
    if is_vector(left) and is_vector(right):
        return ("call", "cross", left, right) if sign == r"\times" else ("symmetric", "dot", left, right)
    return ("*", left, right)


def is_vector(tree: Tree) -> bool:
    r"""Return whether a tree has a vector such as `\vec u` outside of a product or norm of vectors."""
    if tree[0] == "name":
        return tree[1].startswith((r"\vec", r"\overrightarrow"))
    return tree[0] not in ("call", "symmetric") and any(is_vector(part) for part in tree[1:] if isinstance(part, tuple))
