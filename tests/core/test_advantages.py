"""GRPO's advantages against plain Python and veRL's own estimator; Reinforce-Rej, HA-DW and W-REINFORCE by hand."""

import logging
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_trgrpo.core import (
    DifficultyOptions,
    OutcomeOptions,
    difficulty_weighted_advantages,
    group_relative_advantages,
    mean_relative_advantages,
    outcome_advantages,
    positive_advantages,
    rejection_advantages,
)

PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LENGTH = 3
# Quarters: sums of a few are exact, so that equal rewards are equal.
REWARD = st.integers(-12, 12).map(lambda quarters: quarters / 4)


@st.composite
def groups(draw, min_size=2, varied=False):
    """(rewards, mask, labels): float64 rewards on all tokens of 1 to 4 shuffled groups."""
    sizes = draw(st.lists(st.integers(min_size, 5), min_size=1, max_size=4))
    labels = draw(st.permutations([label for label, size in enumerate(sizes) for _ in range(size)]))
    rows = draw(
        st.lists(st.lists(REWARD, min_size=LENGTH, max_size=LENGTH), min_size=len(labels), max_size=len(labels))
    )
    if varied:  # make sure that no group has equal returns
        for label in set(labels):
            members = [i for i, other in enumerate(labels) if other == label]
            if len({sum(rows[i]) for i in members}) == 1:
                rows[members[0]][0] += 1.0
    # Of any form: what an agent observes stands between the parts of its response.
    mask = draw(st.lists(st.booleans(), min_size=len(labels) * LENGTH, max_size=len(labels) * LENGTH))
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(mask).reshape(-1, LENGTH).double(), labels


@PROPERTY
@given(groups(min_size=1), st.booleans(), st.sampled_from([1e-6, 0.5]))
def test_plain_python_agrees(case, normalize, epsilon):
    rewards, mask, labels = case
    returns = [sum(row) for row in rewards.tolist()]
    expected = []
    for value, label in zip(returns, labels, strict=True):
        group = [other for other, its in zip(returns, labels, strict=True) if its == label]
        centred = value - statistics.fmean(group)
        equal = len(set(group)) == 1
        expected.append(0.0 if equal else centred / (statistics.stdev(group) + epsilon) if normalize else centred)
    advantages = group_relative_advantages(rewards, mask, labels, epsilon, normalize)
    torch.testing.assert_close(
        advantages, torch.tensor(expected, dtype=torch.float64)[:, None] * mask, rtol=1e-9, atol=1e-12
    )


@PROPERTY
@given(st.lists(REWARD, min_size=LENGTH, max_size=LENGTH), st.integers(1, 9), st.booleans(), groups(varied=True))
def test_a_group_of_equal_rewards_gives_exact_zeros_among_others(row, size, normalize, case):
    """Equal to the last bit, whatever the rewards: thirds of quarters have no exact mean."""
    rewards, mask, labels = case
    same = torch.tensor(row, dtype=torch.float64).expand(size, LENGTH) / 3
    rewards, mask = torch.cat([rewards, same]), torch.cat([mask, torch.ones(size, LENGTH).double()])
    advantages = group_relative_advantages(
        rewards, mask, [*map(str, labels), *["same"] * size], normalize_by_std=normalize
    )
    assert (advantages[len(labels) :] == 0).all()
    assert (advantages[: len(labels)][mask[: len(labels)] == 0] == 0).all()


@PROPERTY
@given(groups(varied=True), st.booleans())
def test_verls_grpo_gives_the_same(case, normalize):
    """Where it divides by no rounding residue: groups of two or more whose rewards differ."""
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    rewards, mask, labels = case
    index = np.array([f"prompt {label}" for label in labels], dtype=object)
    theirs, _ = compute_grpo_outcome_advantage(rewards.clone(), mask, index, norm_adv_by_std_in_grpo=normalize)
    ours = group_relative_advantages(rewards, mask, index, normalize_by_std=normalize)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask_type", [torch.float64, torch.float32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_type_of_the_rewards_comes_back_and_no_gradient(dtype, mask_type):
    rewards = torch.tensor([[1.0, 0.0], [0.0, 3.0]], dtype=dtype, requires_grad=True)
    advantages = group_relative_advantages(rewards, torch.ones(2, 2, dtype=mask_type), ["g", "g"])
    assert advantages.dtype == dtype and not advantages.requires_grad
    assert advantages[:, 0].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-2)


LABELS = {
    "strings": ["01", "1", "01", "1", "1", "x", "x"],
    "integers": [10**12, -3, 10**12, -3, -3, 0, 0],
    "tuples": [("a", 1), ("a", 2), ("a", 1), ("a", 2), ("a", 2), (), ()],
    "mixed": ["1", 1, "1", 1, 1, None, None],
}


@pytest.mark.parametrize("kind", LABELS)
def test_groups_are_told_apart_whatever_their_labels(kind):
    index = np.empty(7, dtype=object)
    index[:] = LABELS[kind]
    rewards = torch.tensor([3.0, -1.0, -0.5, 0.7, 0.2, 1.0, 2.0])[:, None]
    groups = torch.tensor([0, 1, 0, 1, 1, 2, 2])
    expected = group_relative_advantages(rewards, torch.ones(7, 1), groups)
    assert torch.equal(group_relative_advantages(rewards, torch.ones(7, 1), index), expected)


def test_a_group_of_one_gives_zero_and_where_all_are_a_warning(caplog):
    rewards = torch.tensor([[5.0], [1.0], [2.0]])
    with caplog.at_level(logging.WARNING):
        advantages = group_relative_advantages(rewards, torch.ones(3, 1), ["alone", "g", "g"])
        assert advantages[0] == 0 and advantages[1] < 0 < advantages[2]
        assert not caplog.text
        assert not group_relative_advantages(rewards, torch.ones(3, 1), ["f", "g", "h"]).any()
    assert "rollout.n" in caplog.text


def test_integer_rewards_and_an_empty_batch():
    rewards = torch.tensor([[0, 1], [0, 3]])
    assert group_relative_advantages(rewards, torch.ones(2, 2), ["g", "g"]).tolist()[0][0] == pytest.approx(-(0.5**0.5))
    assert group_relative_advantages(torch.zeros(0, 3), torch.zeros(0, 3), []).shape == (0, 3)


@pytest.mark.parametrize(("reward_columns", "mask_columns", "labels"), [(3, 3, 3), (3, 2, 2), (2, 3, 2)])
def test_shapes_that_do_not_agree_are_named(reward_columns, mask_columns, labels):
    with pytest.raises(ValueError, match=rf"\(2, {reward_columns}\).*\(2, {mask_columns}\).*got {labels} labels"):
        group_relative_advantages(torch.zeros(2, reward_columns), torch.ones(2, mask_columns), ["g"] * labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("mask_type", [torch.float32, torch.int64, torch.bool])
def test_a_reward_that_is_not_a_number_stays_visible_but_inside_the_mask_and_its_group(mask_type, value):
    rewards = torch.zeros(4, 5)
    rewards[:, -1] = torch.tensor([value, 3.0, 1.0, 2.0])
    mask = torch.ones(4, 5)
    mask[0, 2:] = 0
    advantages = group_relative_advantages(rewards, mask.to(mask_type), ["a", "a", "b", "b"])
    assert torch.isnan(advantages[0, :2]).all() and (advantages[0, 2:] == 0).all()
    assert torch.isfinite(advantages[2:]).all()


def test_reinforce_rej_gives_the_rewards_of_mixed_groups():
    labels = ["a", "b", "c", "a", "b", "c", "d", "d", "a", "alone"]
    scores = [1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0]
    mask = torch.arange(6)[None] < torch.tensor([3, 6, 1, 2, 6, 4, 5, 1, 6, 2])[:, None]
    rewards = torch.zeros(10, 6)
    rewards[:, 0] = torch.tensor(scores)
    expected = [score if label in "ad" else 0.0 for score, label in zip(scores, labels, strict=True)]
    assert torch.equal(rejection_advantages(rewards, mask, labels), torch.tensor(expected)[:, None] * mask)


BATCHES = [
    # a hard prompt, an easy one, one that is always solved
    {"hard": [3.0, -0.5, -0.5, -1.5], "easy": [3.0, 3.0, 3.0, -0.5], "solved": [3.0, 3.0, 3.0, 3.0]},
    {"x": [3.0, -0.5, 3.0, -0.5], "y": [-0.5, -0.5, -0.5, 3.0]},
    {"z": [-1.5, -0.5]},
]


def tensors(groups):
    labels = [label for label, scores in groups.items() for _ in scores]
    scores = [score for scores in groups.values() for score in scores]
    mask = torch.arange(3)[None] < torch.tensor([1 + i % 3 for i in range(len(scores))])[:, None]
    rewards = torch.zeros(len(scores), 3, dtype=torch.float64)
    rewards[:, 0] = torch.tensor(scores, dtype=torch.float64)
    return rewards, mask, labels


def by_hand(groups, anchor, scale, correct_from):
    expected = []
    for scores in groups.values():
        rate = sum(score >= correct_from for score in scores) / len(scores)
        for score in scores:
            advantage = (score - statistics.fmean(scores)) / (statistics.stdev(scores) + 1e-6)
            direction = -math.copysign(1, advantage) * math.copysign(1, rate - anchor)
            expected.append(advantage * scale * math.exp(direction * abs(rate - anchor)) if advantage else 0.0)
    return torch.tensor(expected, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Of accuracies 8/12, 3/8 and 0 the mean of the last two, or of all
        (DifficultyOptions(window=2), [2 / 3, (2 / 3 + 3 / 8) / 2, 3 / 16]),
        (DifficultyOptions(), [2 / 3, (2 / 3 + 3 / 8) / 2, (2 / 3 + 3 / 8) / 3]),
        (DifficultyOptions(window=1, correct_from=-0.5), [11 / 12, 1.0, 1 / 2]),
    ],
)
def test_ha_dw_over_three_batches_with_a_history(options, expected):
    history = []
    for groups, anchor in zip(BATCHES, expected, strict=True):
        rewards, mask, labels = tensors(groups)
        advantages, history = difficulty_weighted_advantages(rewards, mask, labels, options, history)
        by_formula = by_hand(groups, anchor, options.scale, options.correct_from)[:, None] * mask
        torch.testing.assert_close(advantages, by_formula, rtol=1e-9, atol=1e-12)


def test_wrong_options_are_all_named():
    with pytest.raises(ValueError, match=r"(?s)window=0.*scale=-1.0.*correct_from=nan"):
        DifficultyOptions(window=0, scale=-1.0, correct_from=math.nan)
    with pytest.raises(ValueError, match=r"(?s)positive=-1.*correct_from='x'"):
        OutcomeOptions(positive=-1, correct_from="x")


def test_rejected_responses_count_in_the_success_rates_and_groups_without_tokens_do_not():
    """A rollout correction took all tokens of a right response of `a`; veRL fills batches up with a group like `pad`."""
    scores, labels = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0], ["a", "a", "a", "b", "b", "pad", "pad"]
    rewards = torch.tensor(scores, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.0])
    mask = torch.tensor([[1, 1], [0, 0], [1, 0], [1, 1], [1, 0], [0, 0], [0, 0]], dtype=torch.bool)
    advantages, history = difficulty_weighted_advantages(rewards, mask, labels, DifficultyOptions(scale=1.0))
    assert history == [3 / 5]
    normalized = (1 - 2 / 3) / (statistics.stdev([1.0, 1.0, 0.0]) + 1e-6)
    assert advantages[0, 0].item() == pytest.approx(normalized * math.exp(-(2 / 3 - 3 / 5)))
    assert not advantages[[1, 5, 6]].any()


def test_raft_teaches_by_rewards_above_0_alone():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [-0.5, 0.0, 0.0]])
    expected = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.equal(positive_advantages(rewards, mask, ["a", "a", "b"]), expected)


def maxrl(rewards):
    """MaxRL's advantages of one group, response by response."""
    mean = statistics.fmean(rewards)
    return [0.0 if mean == 0 else reward / mean - 1 for reward in rewards]


@pytest.mark.parametrize("rewards", [[1, 0, 0, 0], [1, 1, 0.5, 0], [0, 0], [0.3, 0.3, 0.3], [1]])
def test_maxrl_divides_by_the_mean_of_the_group(rewards):
    token_rewards, labels = torch.zeros(len(rewards) + 2, 2), ["a", *["b"] * len(rewards), "a"]
    token_rewards[1:-1, 1], token_rewards[0, 0] = torch.tensor(rewards, dtype=torch.float32), 1.0
    found = mean_relative_advantages(token_rewards, torch.ones_like(token_rewards), labels)
    assert found[:, 0].tolist() == pytest.approx([1.0, *maxrl(rewards), -1.0])
    assert torch.equal(found[:, 0], found[:, 1])


def test_maxrl_refuses_rewards_below_0():
    """A mean below 0 would reward the worse response; one near 0 would blow up."""
    rewards = torch.tensor([[3.0], [-0.5], [-0.5]])
    with pytest.raises(ValueError, match=r"smallest here: -0\.5.*algorithm=grpo"):
        mean_relative_advantages(rewards, torch.ones_like(rewards), ["a"] * 3)


def test_w_reinforce_gives_right_and_wrong_their_own_advantages():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
    rewards = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    found = outcome_advantages(rewards, mask, ["a", "a", "b"], OutcomeOptions())
    expected = torch.tensor([[0.1, 0.1, 0.0], [-1.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    assert torch.equal(found, expected)
    found = outcome_advantages(rewards, mask, ["a", "a", "b"], OutcomeOptions(positive=0.0, correct_from=0.5))
    assert torch.equal(found[:, 0], torch.tensor([0.0, 0.0, -1.0]))
    for value in (float("nan"), float("inf"), -float("inf")):
        rewards[0, 1] = value
        found = outcome_advantages(rewards, mask, ["a", "a", "b"], OutcomeOptions())
        assert found[0, :2].isnan().all() and torch.equal(found[1:], expected[1:]), "not right or wrong"
