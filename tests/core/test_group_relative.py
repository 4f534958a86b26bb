"""Group-relative advantages against the standard library's statistics."""

import logging
import statistics
import uuid

import numpy as np
import pytest
import torch

from verl_trgrpo.core import group_relative_advantages


def rewards_at_the_end(scores, length=5):
    rewards = torch.zeros(len(scores), length)
    rewards[:, -1] = torch.tensor(scores)
    return rewards, torch.ones(len(scores), length)


def by_hand(scores, labels, normalize_by_std=True, epsilon=1e-6):
    expected = []
    for score, label in zip(scores, labels, strict=True):
        group = [s for s, other in zip(scores, labels, strict=True) if other == label]
        centred = score - statistics.fmean(group)
        expected.append(centred / (statistics.stdev(group) + epsilon) if normalize_by_std else centred)
    return torch.tensor(expected)


LABELS = {
    "strings": ["01", "1", "01", "1", "1", "x", "x"],
    "integers": [10**12, -3, 10**12, -3, -3, 0, 0],
    "tuples": [("a", 1), ("a", 2), ("a", 1), ("a", 2), ("a", 2), (), ()],
    "mixed": ["1", 1, "1", 1, 1, None, None],
}
SCORES = [3.0, -1.0, -0.5, 0.7, 0.2, 1.0, 2.0]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("normalize_by_std", [True, False])
def test_groups_are_told_apart_whatever_their_labels(kind, normalize_by_std):
    index = np.empty(len(SCORES), dtype=object)
    index[:] = LABELS[kind]
    advantages = group_relative_advantages(*rewards_at_the_end(SCORES), index, normalize_by_std=normalize_by_std)
    expected = by_hand(SCORES, LABELS[kind], normalize_by_std)
    torch.testing.assert_close(advantages, expected[:, None].expand(-1, 5), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reward", [0.7, -0.1, 1e-3, 12345.678, 0.0])
@pytest.mark.parametrize("size", [2, 8, 13])
def test_equal_rewards_give_exactly_zero(reward, size):
    advantages = group_relative_advantages(*rewards_at_the_end([reward] * size), ["g"] * size)
    assert (advantages == 0).all()


def test_a_group_of_one_gives_zero_and_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        advantages = group_relative_advantages(*rewards_at_the_end([5.0, 1.0, 2.0]), ["alone", "g", "g"])
    assert (advantages[0] == 0).all()
    assert advantages[1, 0] < 0 < advantages[2, 0]
    assert "1 of 2 groups have a single response" in caplog.text


@pytest.mark.parametrize("mask_type", [torch.float32, torch.int64, torch.bool])
def test_masked_tokens_get_zero(mask_type):
    rewards, mask = rewards_at_the_end([1.0, 3.0])
    mask[0, 2:] = 0
    advantages = group_relative_advantages(rewards, mask.to(mask_type), ["g", "g"])
    assert (advantages[0, 2:] == 0).all() and (advantages[0, :2] != 0).all()
    assert advantages.dtype == torch.float32


def test_order_does_not_matter():
    labels = [str(uuid.UUID(int=i // 4)) for i in range(32)]
    scores = torch.rand(32, generator=torch.Generator().manual_seed(0)).tolist()
    order = torch.randperm(32, generator=torch.Generator().manual_seed(1))
    advantages = group_relative_advantages(*rewards_at_the_end(scores), labels)
    shuffled = group_relative_advantages(*rewards_at_the_end([scores[i] for i in order]), [labels[i] for i in order])
    torch.testing.assert_close(shuffled, advantages[order])


def test_integer_rewards_and_an_empty_batch():
    rewards = torch.tensor([[0, 1], [0, 3]])
    assert group_relative_advantages(rewards, torch.ones(2, 2), ["g", "g"]).tolist()[0][0] == pytest.approx(-(0.5**0.5))
    assert group_relative_advantages(torch.zeros(0, 3), torch.zeros(0, 3), []).shape == (0, 3)


def test_bad_input_is_named():
    rewards, mask = rewards_at_the_end([1.0, 2.0])
    with pytest.raises(ValueError, match="got 3 labels"):
        group_relative_advantages(rewards, mask, ["a", "b", "c"])
    with pytest.raises(ValueError, match="must"):
        group_relative_advantages(rewards, mask[:, :3], ["a", "a"])
    with pytest.raises(ValueError, match="must"):
        group_relative_advantages(rewards[:, :3], mask, ["a", "a"])
    with pytest.raises(ValueError, match="hashable"):
        group_relative_advantages(rewards, mask, [["a"], ["a"]])


def test_labels_in_a_tensor_form_groups():
    advantages = group_relative_advantages(*rewards_at_the_end([1.0, 3.0, 2.0, 2.0]), torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(advantages[:, 0], by_hand([1.0, 3.0, 2.0, 2.0], [0, 0, 1, 1]))


@pytest.mark.parametrize("mask_type", [torch.float32, torch.int64, torch.bool])
def test_a_reward_that_is_not_a_number_stays_visible_but_inside_the_mask(mask_type):
    rewards, mask = rewards_at_the_end([float("nan"), 3.0, 1.0, 2.0])
    mask[0, 2:] = 0
    advantages = group_relative_advantages(rewards, mask.to(mask_type), ["a", "a", "b", "b"])
    assert torch.isnan(advantages[0, :2]).all() and (advantages[0, 2:] == 0).all()
    assert torch.isfinite(advantages[2:]).all()


def test_batches_larger_than_a_block():
    scores = torch.rand(600, generator=torch.Generator().manual_seed(0)).tolist()
    labels = [i // 4 for i in range(600)]
    rewards, mask = rewards_at_the_end(scores, length=3)
    mask[:, 0] = 0
    expected = by_hand(scores, labels)[:, None] * mask
    for mask_type in (torch.float32, torch.int64):
        advantages = group_relative_advantages(rewards, mask.to(mask_type), labels)
        torch.testing.assert_close(advantages, expected, rtol=1e-4, atol=1e-5)
