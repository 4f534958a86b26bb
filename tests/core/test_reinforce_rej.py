"""Reinforce-Rej against arithmetic by hand, and its normaliser against a loss over the kept responses alone."""

import statistics

import pytest
import torch

from verl_trgrpo.core import (
    LOSS_AGG_MODES,
    ClipRange,
    RejectionOptions,
    TokenWeighting,
    compute_policy_loss,
    group_relative_advantages,
    make_shaping,
    rejection_advantages,
)

# Groups: mixed, all right, all wrong, mixed, alone.
LABELS = ["a", "b", "c", "a", "b", "c", "d", "d", "a", "e"]
SCORES = [1.0, 1.0, -1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0]
KEPT = [label in "ad" for label in LABELS]
LENGTHS = [3, 6, 1, 2, 6, 4, 5, 1, 6, 2]


def batch():
    mask = torch.arange(6)[None] < torch.tensor(LENGTHS)[:, None]
    rewards = torch.zeros(len(SCORES), 6, dtype=torch.float64)
    rewards[torch.arange(len(SCORES)), torch.tensor(LENGTHS) - 1] = torch.tensor(SCORES, dtype=torch.float64)
    return rewards, mask


def test_advantages_are_the_rewards_of_mixed_groups():
    rewards, mask = batch()
    advantages = rejection_advantages(rewards, mask, LABELS, RejectionOptions())
    expected = [score if kept else 0.0 for score, kept in zip(SCORES, KEPT, strict=True)]
    assert torch.equal(advantages, torch.tensor(expected, dtype=torch.float64)[:, None] * mask)


def test_with_the_group_as_baseline_they_are_grpo_s():
    rewards, mask = batch()
    for normalize_by_std in (True, False):
        advantages = rejection_advantages(
            rewards, mask, LABELS, RejectionOptions(baseline="group"), normalize_by_std=normalize_by_std
        )
        expected = group_relative_advantages(rewards, mask, LABELS, normalize_by_std=normalize_by_std)
        assert torch.equal(advantages, expected)
    group = [score for score, label in zip(SCORES, LABELS, strict=True) if label == "a"]
    assert advantages[0, 0] == pytest.approx(SCORES[0] - statistics.fmean(group))


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("baseline", ["none", "group"])
def test_renormalised_it_is_the_loss_of_the_kept_responses(mode, baseline):
    rewards, mask = batch()
    options = RejectionOptions(baseline=baseline, renormalize=True, loss_agg_mode=mode)
    plain = RejectionOptions(baseline=baseline)
    kept = torch.tensor(KEPT)
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -torch.rand(mask.shape, generator=generator, dtype=torch.float64)
    weighting = TokenWeighting(shaping=make_shaping("uniform"))

    def gradient(rows, options):
        x = (old_log_prob - 0.1)[rows].requires_grad_()
        advantages = rejection_advantages(rewards, mask, LABELS, options)[rows]
        loss = compute_policy_loss(old_log_prob[rows], x, advantages, mask[rows], weighting, ClipRange(), mode).loss
        return torch.autograd.grad(loss, x)[0]

    everything = gradient(torch.ones(len(SCORES), dtype=torch.bool), options)
    torch.testing.assert_close(everything[kept], gradient(kept, plain), rtol=1e-8, atol=1e-12)
    assert (everything[~kept] == 0).all()


@pytest.mark.parametrize(
    ("mode", "all_over_kept"), [("token-mean", 10 / 4), ("seq-mean-token-mean", 4 / 2), ("token-sum", 1.0)]
)
def test_the_normaliser_counts_what_the_mode_averages_over(mode, all_over_kept):
    """A response of one token is a response, one of none is not: 1 + 3 tokens are kept of 1 + 3 + 0 + 4 + 2."""
    lengths, labels = [1, 3, 0, 4, 2], ["kept", "kept", "kept", "dropped", "dropped"]
    mask = torch.arange(4)[None] < torch.tensor(lengths)[:, None]
    rewards = torch.zeros(5, 4, dtype=torch.float64)
    rewards[:, 0] = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    options = RejectionOptions(renormalize=True, loss_agg_mode=mode)
    advantages = rejection_advantages(rewards, mask, labels, options)
    expected = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0], dtype=torch.float64)[:, None] * mask * all_over_kept
    torch.testing.assert_close(advantages, expected)


def test_mistakes_come_out_together():
    with pytest.raises(ValueError, match="baseline='mean'") as refusal:
        RejectionOptions(baseline="mean", loss_agg_mode="token_mean")
    assert "loss_agg_mode='token_mean'" in str(refusal.value)
