"""Text that the model read but did not write: no weight, no normaliser, no metric and no gradient may see it."""

import math

import pytest
import torch

from tests.core.reference import aggregate, published_weight, token_loss
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, group_relative_advantages

CLIP = ClipRange(low=0.2, high=0.28, dual=2.5)
ROWS, TURN, OBSERVATION = 6, 4, 5
# turn, observation, turn, observation, turn
MASK = torch.tensor([[1] * TURN + [0] * OBSERVATION + [1] * TURN + [0] * OBSERVATION + [1] * TURN] * ROWS).bool()


def batch():
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(MASK.shape, generator=generator, dtype=torch.float64)
    noise = torch.randn(MASK.shape, generator=generator, dtype=torch.float64)
    log_prob = (old_log_prob + noise).clamp(max=0)
    advantages = torch.randn(ROWS, 1, generator=generator, dtype=torch.float64).expand(MASK.shape).clone()
    return old_log_prob, log_prob, advantages


def run(old_log_prob, log_prob, advantages, mask, weighting):
    log_prob = log_prob.clone().requires_grad_()
    result = compute_policy_loss(old_log_prob, log_prob, advantages, mask, weighting, CLIP)
    (gradient,) = torch.autograd.grad(result.loss, log_prob)
    return result, gradient


def without_observations(*tensors):
    return [tensor[MASK].reshape(ROWS, 3 * TURN) for tensor in tensors]


@pytest.mark.parametrize("normalize", ["none", "token_mean"])
@pytest.mark.parametrize("placement", ["outside", "inside"])
@pytest.mark.parametrize("observed", [0.0, -1e-9, -1000.0, -math.inf, math.nan])
def test_observations_change_nothing(observed, placement, normalize):
    weighting = TokenWeighting(placement=placement, normalize=normalize)
    old_log_prob, log_prob, advantages = batch()
    short, short_gradient = run(
        *without_observations(old_log_prob, log_prob, advantages), torch.ones(ROWS, 3 * TURN), weighting
    )
    for tensor in (old_log_prob, log_prob):
        tensor[~MASK] = observed
    result, gradient = run(old_log_prob, log_prob, advantages, MASK, weighting)
    torch.testing.assert_close(result.loss, short.loss, rtol=1e-12, atol=0)
    assert torch.equal(gradient[~MASK], torch.zeros((~MASK).sum(), dtype=torch.float64))
    torch.testing.assert_close(without_observations(gradient)[0], short_gradient, rtol=1e-12, atol=0)
    assert result.metrics.keys() == short.metrics.keys()
    for name, value in result.metrics.items():
        assert float(value) == pytest.approx(float(short.metrics[name]), rel=1e-12), name


@pytest.mark.parametrize("normalize", ["none", "token_mean"])
def test_the_loss_is_the_formula_over_the_models_own_tokens(normalize):
    old_log_prob, log_prob, advantages = batch()
    for tensor in (old_log_prob, log_prob):
        tensor[~MASK] = 0.0  # what an agent loop reports for tokens that the model did not write
    result, _ = run(old_log_prob, log_prob, advantages, MASK, TokenWeighting(normalize=normalize))
    weights = [[published_weight(math.exp(x)) for x in row] for row in log_prob.tolist()]
    own = [w for row, keep in zip(weights, MASK.tolist(), strict=True) for w, m in zip(row, keep, strict=True) if m]
    mean = sum(own) / len(own)
    assert float(result.metrics["tr_weight_mean"]) == pytest.approx(mean, rel=1e-9)
    scale = mean if normalize == "token_mean" else 1.0
    columns = zip(log_prob.tolist(), old_log_prob.tolist(), advantages.tolist(), weights, strict=True)
    losses = [
        [token_loss(lp, old, a, w / scale, CLIP.low, CLIP.high, CLIP.dual) for lp, old, a, w in zip(*row, strict=True)]
        for row in columns
    ]
    assert result.loss.item() == pytest.approx(aggregate(losses, MASK.tolist(), "token-mean"), rel=1e-9)


def test_advantages_are_zero_on_observations_and_equal_on_every_turn():
    rewards = torch.zeros(ROWS, MASK.shape[1])
    rewards[:, -1] = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    advantages = group_relative_advantages(rewards, MASK.float(), ["a", "a", "a", "b", "b", "b"])
    assert torch.all(advantages[~MASK] == 0)
    own = without_observations(advantages)[0]
    assert torch.equal(own, own[:, :1].expand(own.shape))
