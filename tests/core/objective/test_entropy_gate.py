"""Tokens chosen by entropy: which ones, by which figure, and what the loss is averaged over."""

import math

import pytest
import torch

from verl_trgrpo.core.objective import ClipRange, TokenWeighting, compute_policy_loss, token_weights
from verl_trgrpo.core.objective.weights import entropy_gate
from verl_trgrpo.core.shaping import make_shaping

UNIFORM = make_shaping("uniform")


def gated(share=0.2, **options):
    return TokenWeighting(**({"shaping": UNIFORM, "top_entropy": share} | options))


def ten_tokens():
    """Two rows with ten valid tokens of ten different probabilities; the rarest are those at (0, 1) and (1, 0)."""
    probs = torch.tensor([[0.9, 0.1, 0.8, 0.7, 0.95, 1.0], [0.2, 0.6, 0.5, 0.99, 0.97, 0.01]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]], dtype=torch.bool)
    log_prob = probs.log()
    log_prob[~mask] = math.nan
    advantages = torch.tensor([[1.0], [-0.5]], dtype=torch.float64).expand(2, 6).clone()
    return log_prob.clone(), log_prob.requires_grad_(), advantages, mask


def gradient_of(regulation, entropy=None, **options):
    old_log_prob, log_prob, advantages, mask = ten_tokens()
    result = compute_policy_loss(
        old_log_prob, log_prob, advantages, mask, regulation, ClipRange(), entropy=entropy, **options
    )
    return torch.autograd.grad(result.loss, log_prob)[0], result.metrics


def test_a_fifth_of_ten_tokens_are_the_two_rarest_without_an_entropy():
    gradient, metrics = gradient_of(gated(0.2))
    everything, _ = gradient_of(TokenWeighting(shaping=UNIFORM))
    assert gradient.nonzero().tolist() == [[0, 1], [1, 0]]
    # The kept tokens count as before: the mean is over all ten.
    assert gradient[0, 1] == everything[0, 1] == -1.0 / 10
    assert gradient[1, 0] == everything[1, 0] == 0.5 / 10
    assert metrics["tr_weight_mean"] == pytest.approx(0.2)
    assert metrics["tr_weight_at_lower"] == pytest.approx(0.8)


def test_a_known_entropy_decides_instead():
    entropy = torch.zeros(2, 6, dtype=torch.float64)
    entropy[0, 3], entropy[1, 4] = 2.0, 1.0
    entropy[:, 5] = math.nan  # outside the mask
    gradient, _ = gradient_of(gated(0.2), entropy)
    assert gradient.nonzero().tolist() == [[0, 3], [1, 4]]


def test_token_mean_averages_over_the_kept_tokens():
    gradient, _ = gradient_of(gated(0.2, normalize="token_mean"))
    assert gradient[0, 1] == pytest.approx(-1.0 / 2)
    assert gradient[1, 0] == pytest.approx(0.5 / 2)


def test_old_probabilities_choose_when_asked():
    old_log_prob, log_prob, _, mask = ten_tokens()
    old_log_prob[0, 4] = math.log(0.001)
    by_source = {
        source: gate_of(log_prob, old_log_prob, mask, source).nonzero().tolist() for source in ("current", "old")
    }
    assert by_source == {"current": [[0, 1]], "old": [[0, 4]]}


def gate_of(log_prob, old_log_prob, mask, source):
    advantages = torch.ones_like(log_prob)
    x = log_prob.detach().clone().requires_grad_()
    loss = compute_policy_loss(
        old_log_prob, x, advantages, mask, gated(0.1, prob_source=source), ClipRange(low=1.0, high=1e9)
    ).loss
    return torch.autograd.grad(loss, x)[0]


@pytest.mark.parametrize(("n", "share", "kept"), [(10, 0.2, 2), (11, 0.2, 3), (1, 0.2, 1), (7, 0.99, 7), (30, 0.1, 3)])
def test_the_count_is_rounded_up(n, share, kept):
    scores = torch.randperm(n, generator=torch.Generator().manual_seed(0)).float()[None]
    gate = entropy_gate(scores, torch.ones(1, n, dtype=torch.bool), share)
    assert gate.sum() == kept
    assert scores[gate > 0].min() == n - kept


def test_ties_are_kept_and_an_empty_mask_keeps_nothing():
    valid = torch.ones(1, 5, dtype=torch.bool)
    assert entropy_gate(torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]]), valid, 0.2).tolist() == [[0, 1, 1, 1, 0]]
    assert not entropy_gate(torch.tensor([[1.0, math.nan]]), torch.zeros(1, 2, dtype=torch.bool), 0.5).any()


def test_shaped_weights_of_the_kept_tokens_are_unchanged():
    regulation, gate = TokenWeighting(), gated(0.2, shaping=make_shaping())
    weighted, _ = gradient_of(regulation)
    both, _ = gradient_of(gate)
    assert torch.equal(both[both != 0], weighted[both != 0]) and (both != 0).sum() == 2


def test_no_gate_leaves_the_weights_none():
    old_log_prob, log_prob, _, mask = ten_tokens()
    assert token_weights(log_prob, old_log_prob, mask, TokenWeighting(shaping=UNIFORM)) is None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"share": 0}, "top_entropy=0"),
        ({"share": 1.0}, "null to keep all"),
        ({"share": "0.2"}, "not a share"),
        ({"placement": "inside"}, "placement='outside'"),
        ({"kl": "scaled"}, "kl='plain'"),
    ],
)
def test_what_makes_no_sense_is_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        gated(**options)
