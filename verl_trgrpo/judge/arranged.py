r"""Trees of formulas in one arrangement, and what is left to do in them.

Two formulas are a trivial rewriting of one another if their trees are the same after terms and factors are sorted, numbers added
and multiplied, and like terms and factors collected: `2x+3x+1\cdot y` and `y+5x`. Nothing is expanded, factored or evaluated, so
`x^2-1` and `(x-1)(x+1)` are not.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from math import gcd

from verl_trgrpo.judge.parser import Tree, UnreadableFormulaError, functions_of, parse_formula, tokens_of

_ONE, _DEGREE = Fraction(1), ("/", ("pi",), ("number", Fraction(180)))
_DERIVATIVE = re.compile(r"\\frac\{ ?(?:d|\\partial)(?![a-z])|\\frac\{ ?d[a-zA-Z\\]|\\partial")  # \frac{dy}{dx}
_ATOMS = {"number", "name", "pi", "e", "i", "degree"}
# Functions whose value at a number is a task; a hyperbolic one is as finished as the exponentials that it is made of.
_CLASSES = {
    "trigonometric": "sin cos tan cot sec csc", "inverse": "asin acos atan acot asec acsc",
    "log": "log", "count": "! !! binomial gcd lcm",
    "step": "floor ceiling", "choice": "max min abs", "det": "det arg deg",
}  # fmt: skip
_CLASS_OF = {name: group for group, names in _CLASSES.items() for name in names.split()}


@lru_cache(maxsize=1024)
def parsed(text: str) -> Tree | None:
    """Return the tree of a normalized formula without a relation, or None if it is not understood or has derivatives."""
    if _DERIVATIVE.search(text):
        return None
    tokens = tokens_of(text)
    try:
        return parse_formula(tokens, functions_of(tokens, tokens))
    except (UnreadableFormulaError, RecursionError, ValueError):
        return None


def arranged(tree: Tree) -> tuple[Tree, int]:
    """Return a tree in its arrangement, and how many steps were made that a finished formula does not leave."""
    arrangement = _Arrangement()
    return arrangement.of(tree), arrangement.steps


class _Arrangement:
    def __init__(self) -> None:
        self.steps = 0

    def of(self, tree: Tree) -> Tree:
        kind = tree[0]
        if kind in _ATOMS:
            return tree
        if kind == "group":
            return self.of(tree[1])
        if tree == _DEGREE:
            return ("degree",)
        if (integer := _negative(tree)) is not None:
            return ("number", integer)
        if kind == "+":
            return self.sum(tree)
        if kind in ("*", "/"):
            return self.product(tree)
        parts = [self.of(part) if isinstance(part, tuple) else part for part in tree[1:]]
        if kind == "^" and parts[1] == ("number", _ONE):
            self.steps += 1
            return parts[0]
        if kind == "log" and (power := parts[0])[0] == "^" and power[1] == parts[1]:
            self.steps += 1
            return power[2]
        if kind == "log" and parts[0] == parts[1]:
            self.steps += 1
            return ("number", _ONE)
        if kind in ("symmetric", "gcd", "lcm", "max", "min"):
            names, trees = ([p for p in parts if not isinstance(p, tuple)], [p for p in parts if isinstance(p, tuple)])
            return (kind, *names, *sorted(trees, key=repr))
        return (kind, *parts)

    def sum(self, tree: Tree) -> Tree:
        """Collect like terms: numbers are terms of 1."""
        found: dict[Tree, list[Fraction]] = {}
        for term in self.terms(tree):
            number, base = _split(term)
            found.setdefault(base, []).append(number)
        terms = []
        for base, numbers in found.items():
            self.steps += len(numbers) - 1 + (numbers == [0])
            if total := sum(numbers):
                terms.append(_scaled(total, base))
        return _joined("+", terms, ("number", Fraction(0)))

    def terms(self, tree: Tree, factor: Fraction = _ONE) -> Iterator[Tree]:
        """Yield the arranged terms of a sum, those of sums in it and of their negatives, too."""
        if tree[0] == "+":
            for part in tree[1:]:
                yield from self.terms(part, factor)
        elif tree[0] == "group":
            yield from self.terms(tree[1], factor)
        elif tree[0] == "*" and tree[1] == ("number", Fraction(-1)) and len(tree) == 3:
            yield from self.terms(tree[2], -factor)
        else:
            number, base = _split(self.of(tree))
            inner = base[1:] if base[0] == "+" and abs(number) == 1 else (base,)
            for each in inner:
                own, rest = _split(each)
                yield _scaled(factor * number * own, rest)

    def product(self, tree: Tree) -> Tree:
        """Multiply numbers and collect powers of atoms."""
        tops, bottoms = Counter[int](), Counter[int]()
        powers: dict[Tree, list[int]] = {}
        number, before = _ONE, self.steps
        for factor, sign, explicit in _factors(tree, 1, True):
            own, base = _split(self.of(factor))
            self.steps -= _is_mixed(factor)
            if own != _ONE or base == ("number", _ONE):
                number *= own**sign if own else 0
                top, bottom = (own.numerator, own.denominator)[::sign]
                tops[abs(top)] += 1
                bottoms[abs(bottom)] += 1
                self.steps += base == ("number", _ONE) and own == _ONE and (explicit or sign < 0)
                if not own:
                    self.steps += 1
                    return ("number", Fraction(0))
            if base != ("number", _ONE):
                for each in base[1:] if base[0] == "*" else (base,):
                    inner, exponent = _power(each)
                    powers.setdefault(inner, []).append(sign * exponent)
        if ("i",) in powers and _product(tops) == _product(bottoms) == 1:
            self.steps = before  # 2-1i
        shared = gcd(_product(tops), _product(bottoms)) > 1
        self.steps += max(0, _count(tops) - 1) + max(0, _count(bottoms) - 1) + shared
        factors = []
        for base, exponents in powers.items():
            total = sum(exponents)
            self.steps += (len(exponents) - 1) * (base[0] in _ATOMS or not total)
            if total:
                factors.append(base if total == 1 else ("^", base, ("number", Fraction(total))))
        return _scaled(number, _joined("*", factors, ("number", _ONE)))


def _factors(tree: Tree, sign: int, explicit: bool) -> Iterator[tuple[Tree, int, bool]]:
    """Yield the factors of a product, whether each stands above (1) or below (-1), and whether a 1 is written as a factor."""
    if tree[0] == "group":
        yield from _factors(tree[1], sign, explicit)
    elif tree[0] == "*":
        for part in tree[1:]:
            yield from _factors(part, sign, True)
    elif tree[0] == "/" and tree != _DEGREE:
        yield from _factors(tree[1], sign, False)
        yield from _factors(tree[2], -sign, False)
    else:
        yield tree, sign, explicit


def _negative(tree: Tree) -> Fraction | None:
    """Return a number with a minus sign in front."""
    minus = tree[0] == "*" and len(tree) == 3 and tree[1] == ("number", Fraction(-1)) and tree[2][0] == "number"
    return -tree[2][1] if minus else None


def _is_mixed(tree: Tree) -> bool:
    r"""Return whether a tree is a mixed number such as `3\frac{1}{2}`."""
    if tree[0] != "+" or len(tree) != 3 or tree[2][0] != "/":
        return False
    return all(part[0] == "number" for part in (tree[1], *tree[2][1:]))


def _split(tree: Tree) -> tuple[Fraction, Tree]:
    """Return an arranged tree as its number and the rest."""
    if tree[0] == "number":
        return tree[1], ("number", _ONE)
    if tree[0] == "*" and tree[1][0] == "number":
        return tree[1][1], tree[2] if len(tree) == 3 else ("*", *tree[2:])
    return _ONE, tree


def _scaled(number: Fraction, tree: Tree) -> Tree:
    if tree == ("number", _ONE) or not number:
        return ("number", number)
    if number == 1:
        return tree
    own, rest = _split(tree)
    factors = rest[1:] if rest[0] == "*" else (rest,)
    return rest if own * number == 1 else ("*", ("number", own * number), *factors)


def _power(tree: Tree) -> tuple[Tree, int]:
    """Return a factor as a base and an integer exponent."""
    if tree[0] == "^" and tree[2][0] == "number" and tree[2][1].denominator == 1 and tree[1][0] != "number":
        return tree[1], int(tree[2][1])
    return tree, 1


def _joined(kind: str, parts: list[Tree], empty: Tree) -> Tree:
    if not parts:
        return empty
    return parts[0] if len(parts) == 1 else (kind, *sorted(parts, key=repr))


def _product(numbers: Counter[int]) -> int:
    product = 1
    for number, count in numbers.items():
        product *= number**count
    return product


def _count(numbers: Counter[int]) -> int:
    return sum(count for number, count in numbers.items() if number != 1)


# --- What a formula is made of ---------------------------------------------------------------------------------------


def parts(tree: Tree) -> Iterator[Tree]:
    """Yield a tree and all trees in it."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from parts(part)


def names(tree: Tree) -> frozenset[str]:
    return frozenset(part[1] for part in parts(tree) if part[0] == "name")


def left_to_evaluate(tree: Tree) -> frozenset[str]:
    r"""Return the kinds of functions that are applied to numbers: `\sin 60^\circ` is trigonometric."""
    found = {_CLASS_OF[part[0]] for part in parts(tree) if part[0] in _CLASS_OF and not names(part)}
    polar = any(part[:2] == ("^", ("e",)) and ("i",) in parts(part[2]) for part in parts(tree))
    return frozenset(found | ({"trigonometric"} if polar else set()))


def factors(tree: Tree) -> list[Tree]:
    """Return the factors with letters of an arranged tree, each as often as its power says."""
    found = []
    for factor in tree[1:] if tree[0] == "*" else (tree,):
        base, exponent = _power(factor)
        if names(base):
            found += [base] * max(1, min(exponent, 20))
    return found


def has_product_of_sums(tree: Tree) -> bool:
    """Return whether a product or a power in an arranged tree is left to expand."""
    return any(
        (part[0] == "*" and any(_power(each)[0][0] == "+" and _power(each)[1] > 0 for each in part[1:]))
        or (part[0] == "^" and part[1][0] == "+" and _power(part)[1] > 1)
        for part in parts(tree)
    )


def has_root_below(tree: Tree) -> bool:
    """Return whether a denominator has a root."""
    return any(part[0] == "/" and any(each[0] == "root" for each in parts(part[2])) for part in parts(tree))


def has_square_in_root(tree: Tree) -> bool:
    r"""Return whether a square root has a square number that can be taken out: `\sqrt{12}`."""
    roots = [part[1] for part in parts(tree) if part[0] == "root" and part[2] == ("number", Fraction(2))]
    return any(_has_square(_split(_Arrangement().of(root))[0]) for root in roots)


def _has_square(number: Fraction) -> bool:
    return number.denominator != 1 or any(number.numerator % k**2 == 0 for k in _below_root(abs(number.numerator)))


def _below_root(number: int) -> Iterable[int]:
    return range(2, min(1000, int(min(number, 10**9) ** 0.5) + 1))
