"""HA-DW against its formula in plain Python, batch after batch."""

import math
import statistics

import pytest
import torch

from verl_trgrpo.core import (
    DifficultyAnchor,
    DifficultyOptions,
    difficulty_weighted_advantages,
)
from verl_trgrpo.core.ha_dw import difficulty_weights

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


def by_hand(groups, anchor, scale):
    expected = []
    for scores in groups.values():
        rate = sum(score >= 1.0 for score in scores) / len(scores)
        for score in scores:
            advantage = (score - statistics.fmean(scores)) / (statistics.stdev(scores) + 1e-6)
            direction = -math.copysign(1, advantage) * math.copysign(1, rate - anchor)
            expected.append(advantage * scale * math.exp(direction * abs(rate - anchor)) if advantage else 0.0)
    return torch.tensor(expected, dtype=torch.float64)


def accuracy(groups):
    scores = [score for scores in groups.values() for score in scores]
    return sum(score >= 1.0 for score in scores) / len(scores)


@pytest.mark.parametrize("forgetting", [0.1, 0.5, 1.0])
def test_three_batches_with_a_history(forgetting):
    options, anchor = DifficultyOptions(forgetting=forgetting, scale=1.3), DifficultyAnchor()
    expected = accuracy(BATCHES[0])  # the first batch has nothing but itself to be compared with
    for groups in BATCHES:
        rewards, mask, labels = tensors(groups)
        advantages = difficulty_weighted_advantages(rewards, mask, labels, options, anchor)
        torch.testing.assert_close(advantages, by_hand(groups, expected, 1.3)[:, None] * mask, rtol=1e-9, atol=1e-12)
        expected = (1 - forgetting) * expected + forgetting * accuracy(groups)
        assert anchor.accuracy == pytest.approx(expected)


def test_without_history_each_batch_is_its_own_measure():
    options, anchor = DifficultyOptions(anchor="batch"), DifficultyAnchor()
    for groups in BATCHES:
        rewards, mask, labels = tensors(groups)
        advantages = difficulty_weighted_advantages(rewards, mask, labels, options, anchor)
        torch.testing.assert_close(
            advantages, by_hand(groups, accuracy(groups), 1.0)[:, None] * mask, rtol=1e-9, atol=0
        )
    assert anchor.accuracy is None


def test_rare_successes_weigh_more_and_rare_failures_too():
    weights = difficulty_weights(
        torch.tensor([2.0, -1.0, 1.0, -2.0, 0.0]), torch.tensor([0.25, 0.25, 0.75, 0.75, 1.0]), anchor=0.5, scale=1.0
    )
    e = math.exp(0.25)
    torch.testing.assert_close(weights, torch.tensor([e, 1 / e, 1 / e, e, 1.0]))


def test_empty_responses_that_fill_a_batch_up_do_not_count():
    options, groups = DifficultyOptions(), BATCHES[0]
    rewards, mask, labels = tensors(groups)
    rewards, mask = (torch.cat([x, x.new_zeros(3, 3)]) for x in (rewards, mask))
    anchor = DifficultyAnchor()
    advantages = difficulty_weighted_advantages(rewards, mask, [*labels, "pad", "pad", "pad"], options, anchor)
    assert anchor.accuracy == accuracy(groups)
    expected = by_hand(groups, accuracy(groups), 1.0)[:, None] * mask[:-3]
    torch.testing.assert_close(advantages[:-3], expected, rtol=1e-9, atol=1e-12)
    assert not advantages[-3:].any()


def test_an_empty_batch_changes_nothing():
    anchor = DifficultyAnchor(0.3)
    empty = torch.zeros(0, 4)
    advantages = difficulty_weighted_advantages(empty, empty, [], DifficultyOptions(), anchor)
    assert advantages.shape == (0, 4) and anchor.accuracy == 0.3


def test_mistakes_come_out_together():
    with pytest.raises(ValueError, match="anchor='epoch'") as refusal:
        DifficultyOptions(anchor="epoch", forgetting=0, scale=-1.0, correct_from=math.nan)
    for part in ("forgetting=0", "scale=-1.0", "correct_from=nan"):
        assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "interval"),
    [
        ("forgetting", 0.0, "(0, 1]"),
        ("forgetting", 1.001, "(0, 1]"),
        ("scale", 0.0, "(0, inf)"),
        ("scale", -0.5, "(0, inf)"),
    ],
)
def test_ends_of_ranges(name, value, interval):
    with pytest.raises(ValueError) as refusal:
        DifficultyOptions(**{name: value})
    assert f"{name}={value!r} is out of range; give a number in {interval}" in str(refusal.value)


def test_a_response_is_right_from_a_reward_of_one_on_unless_told_otherwise():
    """Rates 1/4 and 3/4 of the first group, 1/2 of the second: against the batch, the first is hard or easy."""
    groups = {"first": [1.0, 0.6, 0.6, 0.0], "second": [1.0, 0.0, 1.0, 0.0]}
    rewards, mask, labels = tensors(groups)

    def weighted(**options):
        anchor = DifficultyAnchor()
        return difficulty_weighted_advantages(
            rewards, mask, labels, DifficultyOptions(anchor="batch", **options), anchor
        )

    torch.testing.assert_close(weighted(), by_hand(groups, 3 / 8, 1.0)[:, None] * mask, rtol=1e-9, atol=1e-12)
    assert torch.equal(weighted(), weighted(correct_from=1.0))
    assert not torch.allclose(weighted(), weighted(correct_from=0.6))


def test_a_success_rate_is_over_responses_that_have_tokens():
    """One right response and an empty one: the prompt was solved whenever it was answered."""
    rewards = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1], [0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    options = DifficultyOptions(anchor="batch")
    advantages = difficulty_weighted_advantages(rewards, mask, ["a", "a", "b", "b"], options, DifficultyAnchor())
    # Two of three were right. Group a: rate 1, an easy prompt, whose successes weigh less.
    normalized = 0.5 / (statistics.stdev([1.0, 0.0]) + 1e-6)
    assert advantages[0, 0].item() == pytest.approx(normalized * math.exp(-(1 - 2 / 3)))
    assert advantages[2, 0].item() == pytest.approx(normalized * math.exp(2 / 3 - 1 / 2))


def test_rewards_get_no_gradient():
    rewards, mask, labels = tensors(BATCHES[0])
    options = DifficultyOptions()
    advantages = difficulty_weighted_advantages(rewards.requires_grad_(), mask, labels, options, DifficultyAnchor())
    assert not advantages.requires_grad
