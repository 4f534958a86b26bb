"""Gaps in an answer are read in proportion to their length, before patterns read what is between them."""

import pytest

from tests.pattern_steps import grows, repeated
from tests.work import counted
from verl_trgrpo.judge import judge_answer


@pytest.mark.parametrize("gap", [" ", "\n", r"\quad ", r"\ ", "~", "\t\n"])
def test_white_space_in_an_answer_is_read_in_proportion_to_it(gap):
    with counted("verl_trgrpo.judge") as work:
        assert not grows(lambda size: work.of(judge_answer, rf"\boxed{{5{repeated(gap, size)}x}}", "5"))
