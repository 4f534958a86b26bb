"""Group-relative advantages: plain Python and veRL's own estimator next to them, and what holds for any rewards."""

import logging
import statistics

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_trgrpo.core import group_relative_advantages

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


def scalars(rewards, labels, **options):
    """(batch,) the advantage of each row, read at tokens that are all valid."""
    advantages = group_relative_advantages(rewards, torch.ones_like(rewards), labels, **options)
    assert torch.equal(advantages, advantages[:, :1].expand_as(advantages))
    return advantages[:, 0]


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
@given(groups(), st.integers(-8, 8), st.booleans())
def test_a_common_reward_changes_nothing(case, shift, normalize):
    rewards, _, labels = case
    shifted = rewards.clone()
    shifted[:, -1] += shift / 2
    plain, moved = (scalars(x, labels, normalize_by_std=normalize) for x in (rewards, shifted))
    torch.testing.assert_close(moved, plain, rtol=1e-9, atol=1e-9)


@PROPERTY
@given(groups(varied=True), st.floats(0.01, 100.0), st.sampled_from([1.0, -1.0]))
def test_scale_cancels_and_sign_does_not(case, scale, sign):
    rewards, _, labels = case
    plain, scaled = (scalars(x, labels, epsilon=0.0) for x in (rewards, sign * scale * rewards))
    torch.testing.assert_close(scaled, sign * plain, rtol=1e-9, atol=1e-9)
    centred, wide = (scalars(x, labels, normalize_by_std=False) for x in (rewards, sign * scale * rewards))
    torch.testing.assert_close(wide, sign * scale * centred, rtol=1e-9, atol=1e-9)


@PROPERTY
@given(groups(varied=True))
def test_each_group_has_mean_zero_and_sample_variance_one(case):
    rewards, _, labels = case
    advantages = scalars(rewards, labels, epsilon=0.0)
    for label in set(labels):
        group = [value for value, its in zip(advantages.tolist(), labels, strict=True) if its == label]
        assert statistics.fmean(group) == pytest.approx(0.0, abs=1e-9)
        assert statistics.variance(group) == pytest.approx(1.0, rel=1e-9)


@PROPERTY
@given(groups(), st.data())
def test_order_and_other_groups_do_not_matter(case, data):
    rewards, mask, labels = case
    order = data.draw(st.permutations(range(len(labels))))
    advantages = group_relative_advantages(rewards, mask, labels)
    shuffled = group_relative_advantages(rewards[order], mask[order], [labels[i] for i in order])
    torch.testing.assert_close(shuffled, advantages[order], rtol=1e-12, atol=1e-12)
    chosen = [i for i, label in enumerate(labels) if label == labels[0]]
    alone = group_relative_advantages(rewards[chosen], mask[chosen], ["g"] * len(chosen))
    torch.testing.assert_close(alone, advantages[chosen], rtol=1e-12, atol=1e-12)


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


def test_a_group_of_one_gives_zero_and_a_warning(caplog):
    rewards = torch.tensor([[5.0], [1.0], [2.0]])
    with caplog.at_level(logging.WARNING):
        advantages = group_relative_advantages(rewards, torch.ones(3, 1), ["alone", "g", "g"])
        assert advantages[0] == 0 and advantages[1] < 0 < advantages[2]
        assert "1 of 2 groups have a single response" in caplog.text
        caplog.clear()
        group_relative_advantages(rewards, torch.ones(3, 1), ["g", "g", "g"])
    assert not caplog.text


def test_integer_rewards_and_an_empty_batch():
    rewards = torch.tensor([[0, 1], [0, 3]])
    assert group_relative_advantages(rewards, torch.ones(2, 2), ["g", "g"]).tolist()[0][0] == pytest.approx(-(0.5**0.5))
    assert group_relative_advantages(torch.zeros(0, 3), torch.zeros(0, 3), []).shape == (0, 3)


@pytest.mark.parametrize(("reward_columns", "mask_columns", "labels"), [(3, 3, 3), (3, 2, 2), (2, 3, 2)])
def test_shapes_that_do_not_agree_are_named(reward_columns, mask_columns, labels):
    with pytest.raises(ValueError, match=rf"\(2, {reward_columns}\).*\(2, {mask_columns}\).*got {labels} labels"):
        group_relative_advantages(torch.zeros(2, reward_columns), torch.ones(2, mask_columns), ["g"] * labels)


@pytest.mark.parametrize("mask_type", [torch.float32, torch.int64, torch.bool])
def test_a_reward_that_is_not_a_number_stays_visible_but_inside_the_mask(mask_type):
    rewards = torch.zeros(4, 5)
    rewards[:, -1] = torch.tensor([float("nan"), 3.0, 1.0, 2.0])
    mask = torch.ones(4, 5)
    mask[0, 2:] = 0
    advantages = group_relative_advantages(rewards, mask.to(mask_type), ["a", "a", "b", "b"])
    assert torch.isnan(advantages[0, :2]).all() and (advantages[0, 2:] == 0).all()
    assert torch.isfinite(advantages[2:]).all()
