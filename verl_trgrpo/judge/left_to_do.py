"""What is left to do in one formula: functions to evaluate, products to expand, roots to take out.

The trees are arranged (`verl_trgrpo.judge.arranged`) unless said otherwise. A gold for which one of these holds leaves it to the
answer, too.
"""

from math import gcd

from verl_trgrpo.judge.arranged import base_and_exponent, factors, names, parts, split_number
from verl_trgrpo.judge.parser import Tree

# Functions whose value at a number is a task; a hyperbolic one is as finished as the exponentials that it is made of.
_CLASSES = {
    "trigonometric": "sin cos tan cot sec csc", "inverse": "asin acos atan acot asec acsc",
    "log": "log", "count": "! !! binomial gcd lcm",
    "step": "floor ceiling", "choice": "max min abs", "det": "det arg deg",
}  # fmt: skip
_CLASS_OF = {name: group for group, names in _CLASSES.items() for name in names.split()}


def left_to_evaluate(tree: Tree) -> frozenset[str]:
    r"""Return the kinds of functions that are applied to numbers: `\sin 60^\circ` is trigonometric."""
    found = {_CLASS_OF[part[0]] for part in parts(tree) if part[0] in _CLASS_OF and not names(part)}
    polar = any(part[:2] == ("^", ("e",)) and ("i",) in parts(part[2]) for part in parts(tree))
    return frozenset(found | ({"trigonometric"} if polar else set()))


def has_product_of_sums(tree: Tree) -> bool:
    """Return whether a product or a power is left to expand."""
    return any(_has_sum_as_factor(part) for part in parts(tree) if part[0] in ("*", "^"))


def _has_sum_as_factor(tree: Tree) -> bool:
    single = tree[0] == "^"
    return any(base[0] == "+" and exponent > single for base, exponent in factors(tree)[1])


def has_power_of_product(tree: Tree) -> bool:
    """Return whether a power of a product or a quotient is left to work out in a tree that is not arranged: `(2x)^3`."""
    return any(
        part[0] == "^" and part[1][0] in ("*", "/") and part[2][0] == "number" and bool(names(part[1]))
        for part in parts(tree)
    )


def are_primes(tree: Tree) -> bool:
    """Return whether a tree that is not arranged is a product of primes and their powers."""
    if tree[0] == "*":
        return all(map(are_primes, tree[1:]))
    number = tree[1] if tree[0] == "^" and tree[2][0] == "number" else tree
    return number[0] == "number" and number[1].denominator == 1 and _exponents_of(int(number[1])) == [1]


def has_root_below(tree: Tree) -> bool:
    """Return whether there is a root in a denominator, or a fraction in a root."""
    return any(
        (part[0] == "^" and part[2][0] == "number" and part[2][1] < 0 and any(map(_is_root, parts(part[1]))))
        or (_is_root(part) and any(split_number(each)[0].denominator > 1 for each in parts(part[1])))
        for part in parts(tree)
    )


def has_root_left(tree: Tree) -> bool:
    r"""Return whether a root can be made smaller: `\sqrt{12}`, `\sqrt[4]{9}`, `\sqrt{2}\sqrt{3}`."""
    return any(
        (_is_root(part) and (_has_power(part) or split_number(part[1])[0].denominator > 1))
        or (part[0] == "*" and (sum(_is_root_of_number(each) for each in part[1:]) > 1 or _divides_root(part)))
        for part in parts(tree)
    )


def _is_root(tree: Tree) -> bool:
    fraction = tree[0] == "^" and tree[2][0] == "number" and tree[2][1].denominator > 1
    return fraction or (tree[0] == "root" and tree[2][0] == "number")


def _is_root_of_number(tree: Tree) -> bool:
    base, _ = base_and_exponent(tree)
    return base[0] == "root" and base[1][0] == "number"


def _divides_root(product: Tree) -> bool:
    r"""Return whether a root below divides a number above it: `\frac{30}{\sqrt5}`, but not `\frac{1}{\sqrt5}`."""
    number, found = factors(product)
    below = [base[1][1].numerator for base, exponent in found if exponent < 0 and _is_root_of_number(base)]
    return any(gcd(number.numerator, each) > 1 for each in below)


def _has_power(root: Tree) -> bool:
    """Return whether a root has a power of its index, or of a divisor of it in all of what is under it."""
    if root[0] != "root":
        return False
    number, found = factors(root[1])
    exponents = [abs(exponent) for _, exponent in found] + _exponents_of(abs(number.numerator))
    index = int(root[2][1])
    common = gcd(index, *exponents) if exponents and number.denominator == 1 else 1
    return common > 1 or any(each >= index for each in exponents)


def _exponents_of(number: int) -> list[int]:
    """Return the exponents of the primes below 1,000 in a number, and 1 for what is left."""
    found, rest = [], number
    for prime in range(2, 1000):
        count = 0
        while rest and rest % prime == 0:
            rest, count = rest // prime, count + 1
        found += [count] * bool(count)
    return found + [1] * (rest > 1)
