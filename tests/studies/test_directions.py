"""Efficiencies from inner products, against policies whose mean gradient and noise are known."""

import pytest
import torch

from studies.gradients.directions import directions, inner_products
from verl_trgrpo.core import make_shaping


def measured(gradients, scale=1.0):
    """The directions of (M, K, coordinates)."""
    return directions(inner_products([gradients]), gradients.double().square().sum(-1), scale)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian(batches, seed):
    """Gradients of a known mean with known noise; the second shaping damps the noisy half of the coordinates."""
    mean, noise = torch.full((20,), 0.4, dtype=torch.float64), torch.tensor([0.5, 2.0]).double().repeat_interleave(10)
    weights = torch.stack([torch.ones(20), torch.tensor([1.0, 0.5]).repeat_interleave(10)]).double()
    gradients = (mean + noise * normal(batches, 20, seed=seed))[:, None] * weights
    signal, power = (weights * mean) @ mean, (weights**2) @ (mean**2 + noise**2)
    gains = signal / power.sqrt()
    own = (weights * mean).square().sum(-1)
    return gradients, (gains / gains[0])[1].item(), (signal / (own * own[0]).sqrt())[1].item(), own


def test_efficiency_cosine_signal_and_noise_are_those_of_the_closed_form():
    gradients, efficiency, cosine, signal = gaussian(1000, seed=1)
    found = measured(gradients)[1]
    assert efficiency > 1.2 and found.efficiency.mean == pytest.approx(efficiency, rel=0.05)
    assert found.cosine.mean == pytest.approx(cosine, abs=0.02)
    assert found.signal.mean == pytest.approx(signal[1].item(), rel=0.1)
    assert found.noise == pytest.approx(10 * (0.25 + 0.25 * 4), rel=0.05)


def test_signal_is_unbiased_and_intervals_cover_it_with_few_noisy_mini_batches():
    truth = gaussian(4, seed=0)
    found = [measured(gaussian(30, seed=seed)[0])[1] for seed in range(300)]
    signals = torch.tensor([one.signal.mean for one in found])
    # With the noise of the mean left in, signals would be larger by 12.5 / 30.
    assert signals.mean().item() == pytest.approx(truth[3][1].item(), abs=4 * signals.std().item() / 300**0.5)
    assert 4 * signals.std().item() / 300**0.5 < 12.5 / 30 / 2
    covered = [one.efficiency.low < truth[1] < one.efficiency.high for one in found]
    assert 0.9 <= sum(covered) / len(covered) <= 0.99


def bandit(batches, seed):
    """Gradients at the logits of a softmax over five words, the rarest two right, of one draw each: w A (e_a - p)."""
    probs = torch.tensor([0.5, 0.3, 0.1, 0.06, 0.04]).double()
    advantages = torch.tensor([-0.2, -0.2, -0.2, 2.0, 2.0]).double()
    weights = torch.stack([make_shaping("uniform")(probs.clone()), make_shaping("power")(probs.clone())])
    by_word = weights.T[..., None] * advantages[:, None, None] * (torch.eye(5) - probs).double()[:, None]
    mean, power = (probs[:, None, None] * by_word).sum(0), (probs[:, None] * by_word.square().sum(-1)).sum(0)
    gains = mean @ mean[0] / power.sqrt()
    drawn = probs.multinomial(batches, replacement=True, generator=torch.Generator().manual_seed(seed))
    return by_word[drawn], (gains / gains[0])[1].item()


def test_of_a_softmax_policy_it_is_what_enumeration_says():
    gradients, efficiency = bandit(1500, seed=3)
    found = measured(gradients)[1].efficiency
    assert efficiency > 1.1
    assert found.low < efficiency < found.high and found.high - found.low < 0.1


def test_adam_s_steps_of_equal_size_have_the_efficiency_of_their_signs():
    """Where |g| is constant, Adam's step is the sign, whatever the factor of a coordinate; what counts is how sure signs are."""
    sizes = torch.tensor([0.1, 3.0, 10.0]).double().repeat(100)
    draws = torch.rand(2, 300, 300, generator=torch.Generator().manual_seed(0)).double()
    signs, own = (draws[0] < 0.8) * 2.0 - 1, (draws[1] < 0.7) * 2.0 - 1
    factors = torch.tensor([50.0, 0.1, 1.0]).double().repeat(100)
    found = measured(torch.stack([signs * sizes, signs * sizes * factors, own * sizes], 1))
    assert found[1].adam_efficiency.mean == pytest.approx(1.0, abs=1e-6)
    assert found[2].adam_efficiency.mean == pytest.approx(0.4 / 0.6, rel=0.03)
    # The mean step is 0.6 in each coordinate, the mean gradient 0.6 times its size.
    assert found[0].adam_signal.mean == pytest.approx(0.36 * sizes.sum().item(), rel=0.03)


def test_coordinates_may_come_in_parts_and_a_factor_of_the_weights_does_not_matter():
    gradients = gaussian(12, seed=5)[0]
    gradients = torch.cat([gradients, 3 * gradients[:, :1]], 1)
    whole, parts = measured(gradients), inner_products(gradients.split(7, dim=-1))
    again = directions(parts, gradients.square().sum(-1))
    assert again[1].efficiency.mean == pytest.approx(whole[1].efficiency.mean)
    assert again[1].adam_efficiency.mean == pytest.approx(whole[1].adam_efficiency.mean)
    assert whole[2].efficiency.mean == pytest.approx(1.0) and whole[2].angle == pytest.approx(0.0, abs=0.01)
    assert whole[2].adam_efficiency.mean == pytest.approx(1.0)


def test_a_sample_of_the_coordinates_with_all_norms_gives_the_same():
    gradients = normal(40, 1, 20000, seed=7) + normal(20000, seed=8)
    gradients = torch.cat([gradients, gradients * torch.rand(20000, generator=torch.Generator().manual_seed(9))], 1)
    squares = gradients.square().sum(-1)
    some = torch.randperm(20000, generator=torch.Generator().manual_seed(2))[:5000]
    sampled = directions(inner_products([gradients[..., some]]), squares, scale=4.0)[1]
    whole = measured(gradients)[1]
    assert sampled.efficiency.mean == pytest.approx(whole.efficiency.mean, rel=0.02)
    assert sampled.signal.mean == pytest.approx(whole.signal.mean, rel=0.05)
    assert sampled.noise == pytest.approx(whole.noise, rel=0.05)


def test_few_mini_batches_are_refused():
    with pytest.raises(ValueError, match="3 mini-batches"):
        inner_products([torch.zeros(3, 2, 5)])
