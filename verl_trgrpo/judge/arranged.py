r"""Trees of formulas in one arrangement, and how much is left to do to come to it.

Two formulas are a trivial rewriting of one another if their trees are the same after terms and factors are sorted, numbers added
and multiplied, and like terms and factors collected: `2x+3x+1\cdot y` and `y+5x`. Nothing is expanded, factored or evaluated, so
`x^2-1` and `(x-1)(x+1)` are not.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import gcd

from verl_trgrpo.judge.parser import Tree, UnreadableFormulaError, functions_of, parse_formula, tokens_of

_ONE, _TEN, _DEGREE = Fraction(1), Fraction(10), ("/", ("pi",), ("number", Fraction(180)))
_SIGN = ("number", -_ONE)  # a minus sign, the first of two factors
_MOST_BITS = 256  # of a power of a number that is worked out
_DERIVATIVE = re.compile(
    r"\\frac\{ ?(?:d|\\partial)(?:\^\{?[0-9]\}?)? ?\\?[a-zA-Z]{0,12} ?\}\{ ?(?:d|\\partial) ?[a-zA-Z\\]|\\partial"
)  # \frac{dy}{dx}
_ATOMS = {"number", "name", "pi", "e", "i", "degree"}


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
        if kind == "+":
            return self.sum(tree)
        if kind in ("*", "/"):
            return self.product(tree)
        parts = [self.of(part) if isinstance(part, tuple) else part for part in tree[1:]]
        if kind == "^":
            return self.power(*parts)
        if kind == "root" and parts[1][0] == "number":
            return self.root(*parts)
        if kind == "log":
            return self.logarithm(*parts)
        if kind in ("symmetric", "gcd", "lcm", "max", "min"):
            names, trees = ([p for p in parts if not isinstance(p, tuple)], [p for p in parts if isinstance(p, tuple)])
            return (kind, *names, *sorted(trees, key=repr))
        return (kind, *parts)

    def power(self, base: Tree, exponent: Tree) -> Tree:
        """Multiply exponents, work out powers of numbers and of i, and write a unit fraction as a root."""
        number = exponent[1] if exponent[0] == "number" else None
        if number in (0, 1) or base == ("number", _ONE):
            self.steps += 1
            return base if number == 1 else ("number", _ONE)
        if _undoes(exponent, base):
            self.steps += 1
        if number is None:
            return ("^", base, exponent)
        if number.denominator > 1:
            if abs(number.numerator) > 1:
                return ("^", base, exponent)
            root = self.root(base, ("number", Fraction(number.denominator)))
            return root if number > 0 else self.power(root, ("number", -_ONE))
        power = int(number)
        if base == ("i",):
            self.steps += 1
            return _scaled(Fraction((1, 1, -1, -1)[power % 4]), base if power % 2 else ("number", _ONE))
        if base[0] == "number":
            self.steps += base[1] != _TEN
            small = abs(power) * max(base[1].numerator.bit_length(), base[1].denominator.bit_length()) <= _MOST_BITS
            return ("number", base[1] ** power) if small and base[1] else ("^", base, exponent)
        inner, before = base_and_exponent(base)
        if before != 1:
            self.steps += 1
            return self.power(inner, ("number", number * before)) if before * power != 1 else inner
        return ("^", base, exponent)

    def root(self, radicand: Tree, index: Tree) -> Tree:
        """Take out a root that is a number, or of a power with a multiple of its index."""
        number = index[1]
        if radicand[0] == "number" and (value := _exact_root(radicand[1], number)) is not None:
            self.steps += 1
            return ("number", value)
        self.steps += _is_power_of(radicand, number)
        return ("root", radicand, index)

    def logarithm(self, tree: Tree, base: Tree) -> Tree:
        if tree == ("number", _ONE) or tree == base:
            self.steps += 1
            return ("number", Fraction(tree == base))
        if tree[0] == "^" and tree[1] == base:
            self.steps += 1
            return tree[2]  # type: ignore[no-any-return]
        return ("log", tree, base)

    def sum(self, tree: Tree) -> Tree:
        """Collect like terms: numbers are terms of 1."""
        found: dict[Tree, list[Fraction]] = {}
        for term in self.terms(tree):
            number, base = split_number(term)
            found.setdefault(base, []).append(number)
        terms = []
        for base, numbers in found.items():
            self.steps += len(numbers) - 1 + (numbers == [0])
            if total := sum(numbers):
                terms.append(_scaled(total, base))
        return _joined("+", terms, ("number", Fraction(0)))

    def terms(self, tree: Tree) -> Iterator[Tree]:
        """Yield the arranged terms of a sum, those of sums in it and of their negatives, too."""
        if tree[0] == "+":
            for part in tree[1:]:
                yield from self.terms(part)
        else:
            number, base = split_number(self.of(tree))
            inner = base[1:] if base[0] == "+" and abs(number) == 1 else (base,)
            for each in inner:
                own, rest = split_number(each)
                yield _scaled(number * own, rest)

    def product(self, tree: Tree) -> Tree:
        """Multiply numbers and collect powers of atoms."""
        tops, bottoms = Counter[int](), Counter[int]()
        powers: dict[Tree, list[int]] = {}
        number, ones, negative = _ONE, 0, 0
        for factor, sign, explicit in _factors(tree, 1, False):
            self.steps += sign < 0 and factor[0] == "/" and factor != _DEGREE
            own, base = split_number(self.of(factor))
            self.steps -= _is_mixed(factor)
            negative += own < 0
            if own != _ONE or base == ("number", _ONE):
                number *= own**sign if own else 0
                top, bottom = (own.numerator, own.denominator)[::sign]
                tops[abs(top)] += 1
                bottoms[abs(bottom)] += 1
                ones += base == ("number", _ONE) and own == _ONE and (explicit or sign < 0)
            if base != ("number", _ONE):
                for each in base[1:] if base[0] == "*" else (base,):
                    inner, exponent = base_and_exponent(each)
                    self.steps += exponent < 0 and sign < 0
                    powers.setdefault(inner, []).append(sign * exponent)
        if ("i",) not in powers or not _product(tops) == _product(bottoms) == 1:
            self.steps += ones  # but not of 2-1i
        self.steps += max(0, negative - 1) + _multiply_i(powers) + _has_factor_of_power(powers)
        shared = gcd(_product(tops), _product(bottoms)) > 1
        self.steps += max(0, _count(tops) - 1) + max(0, _count(bottoms) - 1) + shared
        self.steps += _share_content(number, powers) + _make_a_number(powers)
        factors = []
        for base, exponents in powers.items():
            total = sum(exponents)
            cancels = min(exponents) < 0 < max(exponents)
            self.steps += (len(exponents) - 1) * (base[0] in _ATOMS or base[0] == "root" or cancels)
            if total:
                factors.append(base if total == 1 else ("^", base, ("number", Fraction(total))))
        return _scaled(number, _joined("*", factors, ("number", _ONE)))


def _factors(tree: Tree, sign: int, explicit: bool) -> Iterator[tuple[Tree, int, bool]]:
    """Yield the factors of a product, whether each stands above (1) or below (-1), and whether a 1 is written as a factor."""
    if tree[0] == "*":
        for part in tree[1:]:
            yield from _factors(part, sign, explicit or tree[1] != _SIGN)
    elif tree[0] == "/" and tree != _DEGREE:
        yield from _factors(tree[1], sign, False)
        yield from _factors(tree[2], -sign, False)
    else:
        yield tree, sign, explicit


def _undoes(exponent: Tree, base: Tree) -> bool:
    """Return whether a power undoes a logarithm in its exponent, which it has as its only factor with letters: 2 log_b x."""
    factors = exponent[1:] if exponent[0] == "*" else (exponent,)
    logarithms = [each for each in factors if each[0] == "log"]
    others = [each for each in factors if each[0] not in ("log", "number")]
    return len(logarithms) == 1 and not others and logarithms[0][2] == base


def _exact_root(number: Fraction, index: Fraction) -> Fraction | None:
    """Return the root of a number where it is a number."""
    if number < 0 or index.denominator != 1 or not 2 <= index <= _MOST_BITS:
        return None
    found = [_integer_root(each, int(index)) for each in (number.numerator, number.denominator)]
    return Fraction(*found) if None not in found else None  # type: ignore[arg-type]


def _integer_root(number: int, index: int) -> int | None:
    low, high = 0, 1 << (number.bit_length() // index + 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if middle**index < number else (low, middle)
    return low if low**index == number else None


def _is_power_of(tree: Tree, index: Fraction) -> bool:
    """Return whether an arranged tree is a power of what its root is, without an absolute value: `x^4` and `(12 pi)^2`."""
    number, found = factors(tree)
    if index.denominator != 1 or index < 2 or (number != 1 and _exact_root(number, index) is None):
        return False
    step = 2 * index if index % 2 == 0 and names(tree) else index
    return bool(found) and all(exponent % step == 0 for _, exponent in found)


def _has_factor_of_power(powers: Mapping[Tree, list[int]]) -> bool:
    """Return whether a factor of a product stands beside a power of that product: `(2x)^2/x`."""
    return any(base[0] == "*" and any(base_and_exponent(each)[0] in powers for each in base[1:]) for base in powers)


def _multiply_i(powers: Mapping[Tree, list[int]]) -> bool:
    """Return whether several factors without letters have i, or one divides by i."""
    found = [(base, sum(map(abs, each))) for base, each in powers.items() if ("i",) in parts(base) and not names(base)]
    return sum(count for _, count in found) > 1 or min(powers.get(("i",), [0])) < 0


def _share_content(number: Fraction, powers: Mapping[Tree, list[int]]) -> bool:
    """Return whether what all terms of a sum are multiples of is left in a fraction: `(2x+4)/6`, `6/(2x+4)`, `3(x/3+y/3)`."""
    above, below = 1, 1
    for base, exponents in powers.items():
        if base[0] != "+" or not (power := sum(exponents)):
            continue
        numbers = [split_number(term)[0] for term in base[1:]]
        common = gcd(*(each.numerator for each in numbers))
        above, below = (above * common, below) if power > 0 else (above, below * common)
        if power > 0 and gcd(number.numerator, *(each.denominator for each in numbers)) > 1:
            return True
    return gcd(above, number.denominator * below) > 1 or gcd(below, number.numerator) > 1


def _make_a_number(powers: Mapping[Tree, list[int]]) -> bool:
    r"""Return whether several roots of numbers make a number: `\sqrt{2}\sqrt{8}`."""
    roots = [
        (base, sum(exponents)) for base, exponents in powers.items() if base[0] == "root" and base[1][0] == "number"
    ]
    if len(roots) < 2 or len({base[2] for base, _ in roots}) > 1 or any(abs(power) > 20 for _, power in roots):
        return False
    radicand = _ONE
    for base, power in roots:
        radicand *= base[1][1] ** power if base[1][1] else 0
    return _exact_root(radicand, roots[0][0][2][1]) is not None if roots[0][0][2][0] == "number" else False


def _is_mixed(tree: Tree) -> bool:
    r"""Return whether a tree is a mixed number such as `3\frac{1}{2}`."""
    if tree[0] != "+" or len(tree) != 3 or tree[2][0] != "/":
        return False
    return all(part[0] == "number" for part in (tree[1], *tree[2][1:]))


def split_number(tree: Tree) -> tuple[Fraction, Tree]:
    """Return an arranged tree as its number and the rest."""
    if tree[0] == "number":
        return tree[1], ("number", _ONE)
    if tree[0] == "*" and tree[1][0] == "number":
        return tree[1][1], tree[2] if len(tree) == 3 else ("*", *tree[2:])
    return _ONE, tree


def _scaled(number: Fraction, tree: Tree) -> Tree:
    if tree == ("number", _ONE) or not number:
        return ("number", number)
    own, rest = split_number(tree)
    factors = rest[1:] if rest[0] == "*" else (rest,)
    return rest if own * number == 1 else ("*", ("number", own * number), *factors)


def base_and_exponent(tree: Tree) -> tuple[Tree, int]:
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


def parts(tree: Tree) -> Iterator[Tree]:
    """Yield a tree and all trees in it."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from parts(part)


def names(tree: Tree) -> frozenset[str]:
    return frozenset(part[1] for part in parts(tree) if part[0] == "name")


def factors(tree: Tree) -> tuple[Fraction, list[tuple[Tree, int]]]:
    """Return an arranged tree as its number, and its other factors as bases and exponents."""
    number, rest = split_number(tree)
    if rest == ("number", _ONE):
        return number, []
    return number, [base_and_exponent(each) for each in (rest[1:] if rest[0] == "*" else (rest,))]
