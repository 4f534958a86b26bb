"""HA-DW against its formula in plain Python, batch after batch."""

import math
import statistics

import pytest
import torch

from verl_trgrpo.core import DifficultyOptions, difficulty_weighted_advantages

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


def by_hand(groups, anchor, scale, correct_from=1.0):
    expected = []
    for scores in groups.values():
        rate = sum(score >= correct_from for score in scores) / len(scores)
        for score in scores:
            advantage = (score - statistics.fmean(scores)) / (statistics.stdev(scores) + 1e-6)
            direction = -math.copysign(1, advantage) * math.copysign(1, rate - anchor)
            expected.append(advantage * scale * math.exp(direction * abs(rate - anchor)) if advantage else 0.0)
    return torch.tensor(expected, dtype=torch.float64)


def accuracy(groups, correct_from=1.0):
    scores = [score for scores in groups.values() for score in scores]
    return sum(score >= correct_from for score in scores) / len(scores)


@pytest.mark.parametrize(("forgetting", "correct_from"), [(0.1, 1.0), (0.5, -0.5), (1.0, 3.5)])
def test_three_batches_with_a_history(forgetting, correct_from):
    options = DifficultyOptions(forgetting=forgetting, scale=1.3, correct_from=correct_from)
    history = None
    expected = accuracy(BATCHES[0], correct_from)  # the first batch has nothing but itself to be compared with
    for groups in BATCHES:
        rewards, mask, labels = tensors(groups)
        advantages, history = difficulty_weighted_advantages(rewards, mask, labels, options, history)
        by_formula = by_hand(groups, expected, 1.3, correct_from)[:, None] * mask
        torch.testing.assert_close(advantages, by_formula, rtol=1e-9, atol=1e-12)
        expected = (1 - forgetting) * expected + forgetting * accuracy(groups, correct_from)
        assert history == pytest.approx(expected)


def test_mistakes_come_out_together():
    with pytest.raises(ValueError, match=r"(?s)forgetting=0.*scale=-1.0.*correct_from=nan"):
        DifficultyOptions(forgetting=0, scale=-1.0, correct_from=math.nan)


def test_a_success_rate_is_over_responses_that_have_tokens():
    """One right response and an empty one: the prompt was solved whenever it was answered."""
    rewards = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1], [0, 0], [1, 0], [1, 1]], dtype=torch.bool)
    advantages, _ = difficulty_weighted_advantages(rewards, mask, ["a", "a", "b", "b"], DifficultyOptions(), None)
    # Two of three were right. Group a: rate 1, an easy prompt, whose successes weigh less.
    normalized = 0.5 / (statistics.stdev([1.0, 0.0]) + 1e-6)
    assert advantages[0, 0].item() == pytest.approx(normalized * math.exp(-(1 - 2 / 3)))
    assert advantages[2, 0].item() == pytest.approx(normalized * math.exp(2 / 3 - 1 / 2))
