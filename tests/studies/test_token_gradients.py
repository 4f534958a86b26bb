"""Closed forms against autograd, and the theoretical bounds."""

import math

import pytest
import torch

from studies.gradients.token_gradients import logit_gradients, token_gradient_norms, weighted_gradients


def some_logits(rows=50, vocabulary=30, scale=4.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, vocabulary, generator=generator)
    return logits, torch.randint(vocabulary, (rows,), generator=generator)


def autograd_norms(logits, tokens):
    """One backward pass for each token."""
    norms = []
    for row, token in zip(logits.double(), tokens, strict=True):
        row = row.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.log_softmax(row, -1)[token], row)
        norms.append(gradient.norm())
    return torch.stack(norms)


@pytest.mark.parametrize("scale", [0.1, 4.0, 15.0])
def test_the_closed_form_at_the_logits_is_what_autograd_gives(scale):
    logits, tokens = some_logits(scale=scale)
    found = logit_gradients(logits, tokens)
    torch.testing.assert_close(found.norms, autograd_norms(logits, tokens), rtol=1e-9, atol=1e-14)
    expected = torch.softmax(logits.double(), -1).gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(found.log_probs.exp(), expected)
    torch.testing.assert_close(found.one_minus_prob, 1 - expected)


def test_the_envelope_holds_and_both_bounds_are_reached():
    logits, tokens = some_logits(rows=2000, scale=6.0)
    found = logit_gradients(logits, tokens)
    assert (found.norms >= found.one_minus_prob * (1 - 1e-12)).all()
    assert (found.norms <= math.sqrt(2) * found.one_minus_prob * (1 + 1e-12)).all()
    # Two tokens only: all of 1 - p is on one other, the upper bound. Very many equal ones: the lower bound.
    pair = logit_gradients(torch.tensor([[0.3, 1.1]]), torch.tensor([0]))
    assert pair.norms.item() == pytest.approx(math.sqrt(2) * pair.one_minus_prob.item(), rel=1e-12)
    many = logit_gradients(torch.zeros(1, 100_000), torch.tensor([0]))
    assert many.norms.item() == pytest.approx(many.one_minus_prob.item(), rel=1e-4)


def test_one_minus_prob_are_exact_where_the_probability_rounds_to_one():
    found = logit_gradients(torch.tensor([[50.0, 0.0, 0.0]]), torch.tensor([0]))
    assert found.log_probs.exp().item() == 1.0
    assert found.one_minus_prob.item() == pytest.approx(2 * math.exp(-50), rel=1e-12)
    assert found.norms.item() == pytest.approx(math.sqrt(6) * math.exp(-50), rel=1e-12)


def small_network():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 6)).double()
    inputs, tokens = torch.randn(11, 5, dtype=torch.float64), torch.randint(6, (11,))
    return network, torch.log_softmax(network(inputs), -1)[torch.arange(11), tokens]


def gradient_of(value, parameters):
    grads = torch.autograd.grad(value, parameters, retain_graph=True)
    return torch.cat([grad.flatten() for grad in grads])


def test_batched_gradient_norms_are_those_of_one_backward_pass_per_token():
    network, log_probs = small_network()
    parameters = list(network.parameters())
    expected = torch.stack([gradient_of(value, parameters).norm() for value in log_probs])
    for memory in (1, 2000, 10**9):  # one token at a time, a few, all
        torch.testing.assert_close(token_gradient_norms(log_probs, parameters, memory), expected)


def test_weighted_gradients_are_those_of_the_weighted_sums_and_zero_for_foreign_parameters():
    network, log_probs = small_network()
    foreign = torch.ones(3, dtype=torch.float64, requires_grad=True)
    parameters = [*network.parameters(), foreign]
    coefficients = torch.randn(4, 11, dtype=torch.float64)
    found = torch.cat(weighted_gradients(log_probs, parameters, coefficients), dim=-1)
    expected = torch.stack([gradient_of((row * log_probs).sum(), parameters[:-1]) for row in coefficients])
    torch.testing.assert_close(found[:, :-3], expected)
    assert (found[:, -3:] == 0).all()
