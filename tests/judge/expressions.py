r"""Random expressions as trees, the spellings that docs/math_language.md gives them, and their values by sympy.

A tree is a number, a letter, or a tuple of an operation and its trees.
"""

import sympy

from verl_trgrpo.judge.language import LANGUAGE

LETTERS = ("x", "n")
FUNCTIONS = ("sin", "cos", "ln", "arctan")
SYMBOLS = {name: sympy.Symbol(name, positive=True) for name in LETTERS}
POINTS = [dict(zip(SYMBOLS.values(), values, strict=True)) for values in ((2, 3), (5, 4), (7, 11))]


def random_tree(source, depth=3):
    if depth == 0 or source.random() < 0.2:
        return source.choice([*LETTERS, "pi", *range(1, 30)])
    kind = source.choice(["+", "-", "*", "*", "*", "/", "/", "^", "^", "sqrt", "binom", "neg", *FUNCTIONS])
    if kind == "^":
        letter, number = source.choice(LETTERS), source.randint(2, 6)
        exponent = source.choice([letter, number, number, ("+", letter, number), ("-", letter, 1), ("*", 2, letter)])
        return "^", random_tree(source, depth - 1), exponent
    if kind == "binom":
        return kind, ("+", "n", source.randint(4, 9)), source.randint(1, 3)
    return (kind, *(random_tree(source, depth - 1) for _ in range(2 if kind in "+-*/" else 1)))


def mutant(source, tree):
    """Return a tree with one operation, letter or number replaced, or two operands in the other order."""
    if not isinstance(tree, tuple):
        if isinstance(tree, int):
            return tree + source.choice([1, 2, 10])
        return source.choice([name for name in (*LETTERS, "pi") if name != tree])
    place = source.randrange(len(tree))
    if place:
        return (*tree[:place], mutant(source, tree[place]), *tree[place + 1 :])
    if tree[0] in ("-", "/") or (tree[0] == "^" and not isinstance(tree[1], tuple)):
        return tree[0], tree[2], tree[1]
    others = {"+": "-*", "*": "+/"}.get(tree[0])
    if others:
        return source.choice(others), *tree[1:]
    return ("+", tree, 1) if tree[0] == "binom" else tree[1] if tree[0] in ("neg", "sqrt") else ("sqrt", tree)


def value(tree):
    """Return the sympy expression of a tree."""
    if isinstance(tree, int):
        return sympy.Integer(tree)
    if isinstance(tree, str):
        return sympy.pi if tree == "pi" else SYMBOLS[tree]
    kind, *parts = tree
    one, *rest = map(value, parts)
    two = rest[0] if rest else None
    return {
        "+": lambda: one + two, "-": lambda: one - two, "*": lambda: one * two, "/": lambda: one / two, "^": lambda: one**two,
        "sqrt": lambda: sympy.sqrt(one), "binom": lambda: sympy.ff(one, two) / sympy.factorial(two), "neg": lambda: -one,
        "sin": lambda: sympy.sin(one), "cos": lambda: sympy.cos(one), "ln": lambda: sympy.log(one),
        "arctan": lambda: sympy.atan(one),
    }[kind]()  # fmt: skip


def values_at_points(tree):
    """Return the values of a tree at several points; None where one is not a real number of ordinary size."""
    if not all(in_domain(each) for each in subtrees(tree)):
        return None
    expression = value(tree)
    found = [sympy.N(expression.subs(point), 30) for point in POINTS]
    plain = all(number.is_Float or number.is_Integer for number in found)
    return found if plain and all(1e-12 < abs(number) < 1e60 for number in found) else None


def subtrees(tree):
    if isinstance(tree, tuple):
        yield tree
        for part in tree[1:]:
            yield from subtrees(part)


def in_domain(tree):
    """Return whether the argument of a root or logarithm is positive, and a sine is not zero."""
    if tree[0] not in ("sqrt", "ln", "sin", "cos"):
        return True
    found = [sympy.N(value(tree if tree[0] in ("sin", "cos") else tree[1]).subs(point), 15) for point in POINTS]
    return all(number != 0 if tree[0] in ("sin", "cos") else number.is_positive for number in found)


def differ(one, other):
    return any(abs(a - b) > 1e-15 * max(abs(a), abs(b)) for a, b in zip(one, other, strict=True))


def is_kind(tree, *kinds):
    return isinstance(tree, tuple) and tree[0] in kinds


class Writer:
    """Writes a tree with one of the spellings that the language has at each place; without a backslash if `plain`."""

    def __init__(self, source, plain=False):
        self.source, self.plain = source, plain

    def spelled(self, name):
        """Return one of the spellings of a sign or command in the table, or itself."""
        known = [name, *LANGUAGE.get(name, "").split()]
        fitting = [text for text in known if self.plain == (text.isascii() and text[0] != "\\")] or [name]
        return self.source.choice(fitting if self.plain else [*fitting, name])

    def write(self, tree):
        if isinstance(tree, int):
            return str(tree)
        if isinstance(tree, str):
            return self.spelled(r"\pi") if tree == "pi" else tree
        kind, *parts = tree
        if kind in "+-":
            right = self.factor(parts[1]) if is_kind(parts[1], "+", "-", "neg") else self.write(parts[1])
            return f"{self.write(parts[0])}{self.space()}{kind}{self.space()}{right}"
        if kind == "neg":
            return "-" + (self.factor if is_kind(parts[0], "+", "-", "neg") else self.write)(parts[0])
        return {"*": self.product, "/": self.fraction, "^": self.power}.get(kind, self.function)(*parts, kind=kind)

    def space(self):
        return self.source.choice(["", "", " "])

    def bracketed(self, text):
        if self.plain or self.source.random() < 0.6:
            return f"({text})"
        return self.source.choice([rf"\left({text}\right)", rf"\left[{text}\right]", rf"\bigl({text}\bigr)"])

    def braced(self, text):
        return f"({text})" if self.plain else f"{{{text}}}"

    def factor(self, tree):
        """Return a tree so that a sign or a power may stand beside it."""
        plain = isinstance(tree, str) or (isinstance(tree, int) and tree >= 0)
        return self.write(tree) if plain else self.bracketed(self.write(tree))

    def product(self, left, right, kind):
        # What has no sign of its own between stands in parentheses, but for powers and letters.
        one, other = (self.write(t) if is_kind(t, "^") else self.factor(t) for t in (left, right))
        beside = not isinstance(right, int) and not (
            isinstance(left, int) and is_kind(right, "^") and isinstance(right[1], int)
        )
        if is_kind(left, "^") and not self.plain and is_kind(right, "^"):
            beside = isinstance(right[1], str) or one.endswith("}")
        if isinstance(left, str) and is_kind(right, "^") and isinstance(right[1], int):
            beside = True  # n2^{n-1}
        letters = {left, right} & {"pi"} if isinstance(left, str) and isinstance(right, str) else set()
        calls = isinstance(left, str) and other.lstrip().startswith(("(", "[", r"\left", r"\big"))
        if self.plain:
            return f"{one}*{other}"
        if beside and not letters and not calls and self.source.random() < 0.6:
            return f"{one} {other}"
        times = self.source.choice(["*", self.spelled(r"\cdot"), self.spelled(r"\times")])
        return f"{one}{times} {other}"

    def fraction(self, top, bottom, kind):
        if self.plain:
            return f"{self.factor(top)}/{self.factor(bottom)}"
        if self.source.random() < 0.2:
            return f"{self.bracketed(self.write(top))}/{self.bracketed(self.write(bottom))}"
        frac = self.spelled(r"\frac")
        digits = isinstance(top, int) and isinstance(bottom, int) and max(top, bottom) < 10
        if digits and self.source.random() < 0.5:
            return f"{frac}{top}{bottom}"
        return f"{frac}{{{self.write(top)}}}{{{self.write(bottom)}}}"

    def power(self, base, exponent, kind):
        single = isinstance(exponent, str) and exponent != "pi"
        text = exponent if single and self.source.random() < 0.5 else self.braced(self.write(exponent))
        return f"{self.factor(base)}^{text}"

    def function(self, *parts, kind):
        texts = [self.write(part) for part in parts]
        if kind == "sqrt":
            return f"sqrt({texts[0]})" if self.plain else rf"\sqrt{{{texts[0]}}}"
        if kind == "binom":
            return f"{self.spelled(chr(92) + kind)}{{{texts[0]}}}{{{texts[1]}}}"
        name = self.spelled(chr(92) + kind)
        if not self.plain and isinstance(parts[0], str):
            return f"{{{name} {texts[0]}}}"
        return f"{name}{self.bracketed(texts[0])}"


def plain_text(tree):
    """Return whether a tree can be written without a backslash: nothing but a power's exponent stands in nested parentheses."""
    if is_kind(tree, "binom") or (is_kind(tree, "^", "sqrt") and any(isinstance(part, tuple) for part in tree[1:])):
        return False
    return not isinstance(tree, tuple) or all(map(plain_text, tree[1:]))
