"""Every spelling of the language of the same value is right, every expression with another value is wrong."""

import random
import re
from pathlib import Path

import pytest

from tests.judge.expressions import Writer, differ, mutant, plain_text, random_tree, values_at_points
from verl_trgrpo.judge.equality import equal_answers
from verl_trgrpo.judge.formulas import same_formula
from verl_trgrpo.judge.language import LANGUAGE
from verl_trgrpo.judge.parser import UnreadableFormulaError
from verl_trgrpo.judge.spelling import normalize

DOCS = Path(__file__).parents[2] / "docs/math_language.md"


def verdict(gold, answer):
    def same(one, other):
        try:
            return same_formula(one, other)
        except UnreadableFormulaError:
            return False

    return equal_answers([gold], answer, same)


def pair_of(seed):
    """Return a gold, a spelling of its value, a spelling of another value, and whether that is another; None without values."""
    source = random.Random(seed)
    tree = random_tree(source)
    other = mutant(source, tree)
    values, others = (values_at_points(each) for each in (tree, other))
    if not values or not others or not isinstance(tree, tuple):
        return None
    plain = plain_text(tree) and plain_text(other) and source.random() < 0.3
    gold = Writer(source).write(tree)
    return gold, Writer(source, plain).write(tree), Writer(source, plain).write(other), differ(values, others)


def wrong_verdicts(seeds):
    """Yield what is judged wrongly: gold, answer, and whether it was paid."""
    for seed in seeds:
        if (pair := pair_of(seed)) is None:
            continue
        gold, spelled, changed, is_other = pair
        # A number to be worked out is not an answer where the gold is a number, which a spelling of a formula never is.
        if not verdict(gold, spelled):
            yield gold, spelled, False
        if is_other and verdict(gold, changed):
            yield gold, changed, True


@pytest.mark.parametrize("part", range(4))
def test_every_spelling_of_a_value_is_right_and_another_value_is_wrong(part):
    assert [*wrong_verdicts(range(100 * part, 100 * part + 100))] == []


def test_every_spelling_of_the_table_is_read_as_what_it_spells():
    for name, spellings in LANGUAGE.items():
        for spelling in spellings.split():
            for template in ("7 {} (x)", "x_1 {} 2/7"):
                assert normalize(template.format(spelling)) == normalize(template.format(name)), (name, spelling)


def test_the_page_shows_the_language_that_is_read():
    rows = dict(
        re.findall(r"^\| `` (\S+(?: \S+)?) `` \| `` (.+) `` \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert rows == {name.replace("|", r"\|"): text.replace("|", r"\|") for name, text in LANGUAGE.items()}
