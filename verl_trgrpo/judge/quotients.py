"""What is left to do in formulas of letters that are quotients of polynomials: factors, common factors, like terms.

The gold decides: its denominator is reduced, its factors are all there are. What is not a quotient of polynomials is not judged.
"""

from collections.abc import Iterator

from verl_trgrpo.judge.arranged import factors, names, parts, split_number
from verl_trgrpo.judge.parser import Tree
from verl_trgrpo.judge.polynomials import NoPolynomialError, Quotient, content, divided, is_constant


def is_factored_as(answer: Tree, gold: Tree) -> bool:
    """Return whether an arranged product has polynomials as factors, each of which divides one of the gold's, without a common
    integer in their coefficients unless the gold has one; where these are not polynomials, as many factors as the gold."""
    letters = _letters(answer, gold)
    ours, theirs = ([each for each in factors(tree)[1] if names(each[0])] for tree in (answer, gold))
    try:
        found = [Quotient(base, letters) for base, _ in ours]
        wanted = [Quotient(base, letters) for base, _ in theirs]
    except NoPolynomialError:
        counts = [sum(min(20, max(1, exponent)) for _, exponent in each) for each in (ours, theirs)]
        return counts[0] >= counts[1] and (answer[0] != "+" or gold[0] == "+")
    if any(content(each.top).numerator > 1 for each in found) and all(
        content(each.top).numerator == 1 for each in wanted
    ):
        return False
    return all(any(divided(each.top, ours.top) is not None for each in wanted) for ours in found)


def has_common_factor(answer: Tree, gold: Tree, strict: bool) -> bool:
    r"""Return whether an arranged formula is divided by more than the gold: `\frac{1-x^2}{1-x}` for `1+x`.

    Args:
        answer, gold: of equal value.
        strict: also where it is a sum of quotients, or has quotients in its sums: `\frac{1}{1-x}-\frac{x^2}{1-x}`.
    """
    if not names(answer) or (not strict and any(map(_has_quotient_inside, parts(answer)))):
        return False
    letters = _letters(answer, gold)
    try:
        return divided(Quotient(gold, letters).bottom, Quotient(answer, letters).bottom) is None
    except NoPolynomialError:
        return False


def _has_quotient_inside(tree: Tree) -> bool:
    return tree[0] == "+" and any(
        part[0] == "^" and part[2][:1] == ("number",) and part[2][1] < 0 for part in parts(tree)
    )


def is_less_split(answer: Tree, gold: Tree) -> bool:
    r"""Return whether an arranged sum has fewer terms than the gold, or a term with more factors below: `\frac{2}{x^2-1}`."""
    ours, theirs = map(_factors_below, (answer, gold))
    return len(ours) < len(theirs) or max(ours) > max(theirs)


def _factors_below(tree: Tree) -> list[int]:
    """Return how many factors with letters each term divides by."""
    _, rest = split_number(tree)
    terms = rest[1:] if rest[0] == "+" else (rest,)
    return [sum(exponent < 0 and bool(names(base)) for base, exponent in factors(term)[1]) for term in terms]


def has_like_terms(tree: Tree) -> bool:
    """Return whether terms of a sum in an arranged tree are alike once each of them is expanded: `(x+1)^2-(x-1)^2`."""
    letters = _letters(tree)
    for part in parts(tree):
        if part[0] == "+":
            found = [monomial for term in part[1:] for monomial in _monomials(term, letters)]
            if len(found) > len({*found}):
                return True
    return False


def _monomials(term: Tree, letters: list[str]) -> Iterator[tuple[int, ...]]:
    try:
        quotient = Quotient(term, letters)
    except NoPolynomialError:
        return
    if is_constant(quotient.bottom):
        yield from quotient.top


def _letters(*trees: Tree) -> list[str]:
    """Return all letters of formulas, of which pi and e are two."""
    return sorted(frozenset({"pi", "e"}).union(*map(names, trees)))
