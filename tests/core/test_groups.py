"""Shares of groups without a difference and of responses without an answer, against counting by hand."""

import random
from itertools import groupby

import pytest

from verl_trgrpo.core import group_metrics


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_counting(seed):
    chance = random.Random(seed)
    batch = [
        (chance.randrange(12), chance.choice([0.0, 1.0]), {"format_ok": chance.choice([0.0, 1.0])}) for _ in range(40)
    ]
    groups, rewards, infos = zip(*batch, strict=True)
    found = group_metrics(groups, rewards, infos)
    by_group = [
        [reward for _, reward, _ in rows] for _, rows in groupby(sorted(batch, key=lambda x: x[0]), lambda x: x[0])
    ]
    equal = [all(reward == rows[0] for reward in rows) for rows in by_group]
    assert found["critic/equal_groups_frac"] == sum(equal) / len(equal)
    assert found["critic/no_answer_frac"] == sum(info["format_ok"] == 0 for info in infos) / 40


def test_a_reward_that_says_nothing_of_answers_gets_no_share_of_them():
    assert group_metrics("aabb", [1, 1, 0, 1], [{}] * 4) == {"critic/equal_groups_frac": 0.5}
    assert group_metrics("aabb", [1, 1, 0, 1], []) == {"critic/equal_groups_frac": 0.5}
    assert group_metrics("", [], []) == {}
