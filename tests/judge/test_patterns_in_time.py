"""Gaps and clauses in an answer are read in proportion to their length."""

import pytest

from tests.pattern_steps import grows, repeated
from tests.work import counted
from verl_trgrpo.judge import judge_answer


@pytest.mark.parametrize("gap", [" ", "\n", r"\quad ", r"\ ", "~", "\t\n"])
def test_white_space_in_an_answer_is_read_in_proportion_to_it(gap):
    with counted("verl_trgrpo.judge") as work:
        assert not grows(lambda size: work.of(judge_answer, rf"\boxed{{5{repeated(gap, size)}x}}", "5"))


@pytest.mark.parametrize(
    "clause",
    [
        r"1\text{ if }n=1,",
        r"\text{ for all }x",
        r"(c\text{ constant)}",
        "(1)",
        r"\text{is }",
        r"n\equiv1,",
        r"k\in\mathbb{Z},",
    ],
)
def test_clauses_of_an_answer_are_read_in_proportion_to_it(clause):
    judge_answer(r"\boxed{5\text{ if }n=1}", "5")  # makes the parser
    with counted("verl_trgrpo.judge") as work:
        assert not grows(lambda size: work.of(judge_answer, rf"\boxed{{5{repeated(clause, size)}x}}", "5"))
