"""Chains of tokens: many seeds in one batch are each what one alone would be, and accuracy is exact."""

import pytest
import torch

from studies.chains import chains, run
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping

CHAIN = chains.Chain(fillers=4, right=0.3)
TRAINING = chains.Training("adam", passes=1, steps=2)
SEEDS = 3


@pytest.fixture(scope="module")
def start():
    return chains.start_policies(CHAIN, SEEDS, seed=1, steps=100)


@pytest.fixture(scope="module")
def batch(start):
    train, _ = chains.split_prompts(SEEDS, 2)
    generator = torch.Generator().manual_seed(3)
    return chains.sample_batch(start, train, TRAINING, chains.context_inputs(), generator)


@pytest.mark.parametrize(
    ("arm", "normalize"), [("grpo", "none"), ("power", "none"), ("tr_grpo_token_mean", "token_mean")]
)
def test_every_seed_has_the_gradient_of_the_core_s_loss_of_its_own(start, batch, arm, normalize):
    """Off-policy, so that some tokens are clipped."""
    moved = [p + 0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(4)) for p in start]
    moved = [p.requires_grad_() for p in moved]
    together = torch.autograd.grad(chains.seeds_loss(moved, batch, chains.arm_weighting(arm)), moved)
    shaping, parameters, _ = chains.ARMS[arm]
    weighting = TokenWeighting(shaping=make_shaping(shaping, **parameters), normalize=normalize)
    for seed in range(SEEDS):
        log_probs = chains.token_log_probs(moved, batch)[seed].flatten(0, 1)
        given = {"old_log_prob": batch.log_probs, "advantages": batch.advantages}
        given = {name: tensor[seed].flatten(0, 1) for name, tensor in given.items()}
        mask = torch.ones_like(log_probs)
        found = compute_policy_loss(log_probs, response_mask=mask, weighting=weighting, clip=ClipRange(), **given)
        assert found.metrics["pg_clipfrac"] > 0.01
        for ours, own in zip(together, torch.autograd.grad(found.loss, moved), strict=True):
            torch.testing.assert_close(ours[seed], own[seed], rtol=1e-4, atol=1e-7)


def test_shuffled_weights_are_the_same_in_another_order_and_those_of_other_seeds_stay_apart():
    weights = torch.rand(2, 50)
    shuffled = chains.arm_weighting("tr_grpo_shuffled", seed=1).normalized(weights, torch.ones(2, 50, dtype=torch.bool))
    assert not torch.equal(shuffled, weights)
    assert torch.equal(shuffled.sort(-1).values, weights.sort(-1).values)


def test_exact_accuracy_is_the_share_of_right_chains_among_many(start):
    train, _ = chains.split_prompts(SEEDS, 2)
    many = chains.Training("adam", 1, prompts=train.shape[1], samples=200)
    found = chains.sample_batch(start, train, many, chains.context_inputs(), torch.Generator().manual_seed(5))
    r, answer = found.tokens[..., chains.FIRST], found.tokens[..., chains.LAST]
    a, b, c = (found.inputs[:, :, place, 6 * digit : 6 * digit + 6].argmax(-1)[..., None]
               for place, digit in ((0, 0), (0, 1), (chains.LAST, 2)))  # fmt: skip
    right = ((r == (a + b) % 6) & (answer == (r + c) % 6)).float()
    exact = chains.exact_accuracy(start, train)
    assert right.mean((1, 2)).tolist() == pytest.approx(exact.tolist(), abs=4 * (0.25 / right[0].numel()) ** 0.5)
    assert torch.equal(found.advantages[..., 0] > 0, (right > 0) & (right.mean(-1, keepdim=True) < 1))


def test_the_start_has_the_probabilities_that_it_was_fitted_to():
    target = chains.start_distribution(CHAIN)
    torch.testing.assert_close(target.sum(-1), torch.ones(target.shape[:-1]))
    fitted = chains.start_policies(CHAIN, 1, seed=1)
    probs = chains.policy_logits(fitted, chains.context_inputs().flatten(0, 1)).softmax(-1)
    distance = (probs.view(1, *target.shape) - target).abs().sum(-1) / 2
    assert distance[:, :, chains.FIRST].mean() < 0.1 and distance.mean() < 0.1


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_steps_are_those_of_torch_s_optimizer_with_each_seed_s_rate(start, optimizer):
    train, _ = chains.split_prompts(SEEDS, 2)
    training, rates = chains.Training(optimizer, passes=2, steps=2), torch.tensor([0.01, 0.02, 0.1])
    found = chains.train_policies(start, train, training, "tr_grpo", rates, seed=6)
    parameters = [p.clone().requires_grad_() for p in start]
    each = [[p.detach()[seed] for p in parameters] for seed in range(SEEDS)]
    kinds = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    optimizers = [kinds[optimizer](own, lr=rate.item()) for own, rate in zip(each, rates, strict=True)]
    generator, weighting = torch.Generator().manual_seed(6), chains.arm_weighting("tr_grpo")
    for _ in range(training.steps):
        batch = chains.sample_batch(parameters, train, training, chains.context_inputs(), generator)
        for part in chains.updates(batch, training):
            gradients = torch.autograd.grad(chains.seeds_loss(parameters, part, weighting), parameters)
            for seed in range(SEEDS):
                for own, gradient in zip(each[seed], gradients, strict=True):
                    own.grad = gradient[seed]
                optimizers[seed].step()
    for ours, theirs, before in zip(found, parameters, start, strict=True):
        # Adam turns the rounding error of a gradient of nearly 0 into a step.
        assert (ours - theirs).norm() < 0.01 * (theirs - before).norm()


def test_the_best_rate_is_the_vertex_or_the_end_of_the_grid():
    rates = [0.001, 0.002, 0.004, 0.008]
    curve = [1 - (torch.tensor(rate / 0.003).log2().item()) ** 2 for rate in rates]
    assert run.best_rate(rates, curve) == pytest.approx(0.003)
    assert run.best_rate(rates, [0.1, 0.2, 0.3, 0.4]) == 0.008
