"""Shapings for data of another policy against plain Python, and the losses that they make against the methods' own forms."""

import math

import pytest
import torch

from verl_trgrpo.core import Tokens, make_shaping


@pytest.fixture(params=range(20))
def batch(request):
    """Ragged responses, some with a hole, some far from the old policy, and an A of 0."""
    generator = torch.Generator().manual_seed(request.param)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    spread = [0.02, 0.3, 2.0][request.param % 3]
    log_prob = -3 * uniform(6, 9)
    old = log_prob + spread * (uniform(6, 9) - 0.5)
    advantages = (torch.tensor([1.0, -1.0, 0.5, -0.2, 0.0, -2.0], dtype=torch.float64)[:, None]).expand(6, 9)
    mask = torch.arange(9) < torch.randint(1, 10, (6, 1), generator=generator)
    mask &= uniform(6, 9) < 0.9
    return Tokens.of_batch(log_prob, old_log_prob=old, advantages=advantages, response_mask=mask)


def rows(batch):
    """For each response the positions of its tokens, log r of each, and A."""
    for i in range(len(batch.valid)):
        places = [j for j in range(batch.valid.shape[1]) if batch.valid[i, j]]
        log_ratios = [float(batch.log_prob[i, j] - batch.old_log_prob[i, j]) for j in places]
        yield i, places, log_ratios, float(batch.advantages[i, places[0]]) if places else 0.0


def by_response(batch, weights_of):
    """Weights of a function of (log ratios, A) that returns one number a token, 1 outside the mask."""
    weights = [[1.0] * batch.valid.shape[1] for _ in batch.valid]
    for i, places, log_ratios, advantage in rows(batch):
        for j, weight in zip(places, weights_of(log_ratios, advantage), strict=True):
            weights[i][j] = weight
    return torch.tensor(weights, dtype=torch.float64)


def test_topr_tapers_wrong_responses(batch):
    def topr(log_ratios, advantage):
        return [1.0 if advantage > 0 else min(math.exp(sum(log_ratios)), 1.0)] * len(log_ratios)

    torch.testing.assert_close(make_shaping("topr").weigh(batch), by_response(batch, topr))


def test_vespo_weighs_by_the_ratio_of_the_response(batch):
    def vespo(log_ratios, advantage):
        k, strength = (2.0, 3.0) if advantage >= 0 else (3.0, 2.0)
        w = math.exp(min(max(sum(log_ratios), math.log(1e-8)), 20))
        return [w**k * math.exp(strength * (1 - w))] * len(log_ratios)

    torch.testing.assert_close(make_shaping("vespo").weigh(batch), by_response(batch, vespo), rtol=1e-10, atol=1e-12)


def test_up_grpo_has_the_gradient_of_reinforce_and_of_the_clipped_loss(batch):
    """The published loss: -exp(log p - sg(log p)) A where A > 0, else GRPO's clipped loss with dual clip."""
    log_prob = batch.log_prob.clone().requires_grad_()
    a, old = batch.advantages, batch.old_log_prob
    ratio = (log_prob - old).exp()
    surrogate = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))
    surrogate = torch.where(a < 0, torch.minimum(surrogate, -a * 3.0), surrogate)
    anchored = -(log_prob - log_prob.detach()).exp() * a
    torch.where(a > 0, anchored, surrogate).mul(batch.valid).sum().backward()
    weights = make_shaping("up_grpo").weigh(batch)
    torch.testing.assert_close(-weights * a * batch.valid, log_prob.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("threshold", [1e-6, 0.004, 0.04, 100.0])
def test_m2po_leaves_out_outliers_until_the_mean_is_below_the_threshold(batch, threshold):
    """One after the other, the largest first, as the paper's text has it."""
    tokens = [(i, j, x) for i, places, xs, a in rows(batch) for j, x in zip(places, xs, strict=True) if a * x > 0]
    tokens.sort(key=lambda token: token[2] ** 2)
    while tokens and sum(x * x for *_, x in tokens) / len(tokens) > threshold:
        tokens.pop()
    kept = {(i, j) for i, j, _ in tokens}
    expected = torch.ones_like(batch.log_prob)
    for i, places, log_ratios, advantage in rows(batch):
        for j, x in zip(places, log_ratios, strict=True):
            expected[i, j] = math.exp(x) if advantage * x <= 0 or (i, j) in kept else 0.0
    torch.testing.assert_close(make_shaping("m2po", threshold=threshold).weigh(batch), expected)


@pytest.mark.parametrize("name", ["topr", "up_grpo", "vespo", "m2po"])
def test_a_coefficient_is_1_where_the_policies_are_equal(name):
    """On policy each of these methods is REINFORCE."""
    log_prob = torch.linspace(-4, -0.1, 12, dtype=torch.float64).view(3, 4)
    advantages = torch.tensor([[1.0], [-1.0], [0.3]], dtype=torch.float64).expand(3, 4)
    same = Tokens.of_batch(log_prob, old_log_prob=log_prob, advantages=advantages, response_mask=torch.ones(3, 4))
    assert make_shaping(name).weigh(same).allclose(torch.ones(3, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("topr", {"upper": 0}),
        ("up_grpo", {"low": 1}),
        ("vespo", {"k_pos": 0}),
        ("m2po", {"threshold": 0}),
    ],
)
def test_bounds_of_the_constants(name, bad):
    (key,) = bad
    with pytest.raises(ValueError, match=f"{key}="):
        make_shaping(name, **bad)
