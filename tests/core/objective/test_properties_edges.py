"""Edges that random batches hardly meet: ties, empty counts, weights of zero, wrong shapes, ends of ranges."""

import math

import pytest
import torch

from tests.core.objective.strategies import Batch, evaluate
from verl_trgrpo.core.objective import (
    ClipRange,
    PooledStatistic,
    TokenWeighting,
    aggregate_loss,
    compute_policy_loss,
    token_weights,
)
from verl_trgrpo.core.objective.options import RATIOS
from verl_trgrpo.core.objective.surrogate import clamped_log_ratio, log_ratio_limit
from verl_trgrpo.core.objective.weights import token_probs
from verl_trgrpo.core.shaping import make_shaping

CLIP = ClipRange(low=0.2, high=0.28, dual=2.5)
UNIFORM = TokenWeighting(shaping=make_shaping("uniform"))


def filled(old_log_prob, log_prob, advantage, mask=True, dtype=torch.float64):
    return Batch(
        *(torch.tensor([[x]], dtype=dtype) for x in (old_log_prob, log_prob, advantage)), torch.tensor([[mask]])
    )


def random_batch(dtype, rows=32, length=300):
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -3 * torch.rand(rows, length, generator=generator)
    log_prob = (old_log_prob + torch.randn(rows, length, generator=generator)).clamp(max=0)
    advantages = torch.randn(rows, length, generator=generator)
    return Batch(old_log_prob, log_prob, advantages, torch.ones(rows, length, dtype=torch.bool)).to(dtype)


def test_ties_split_the_gradient_as_autograd_does():
    """Products of few bits often tie, on both sides of the clip and at the cap; torch gives half to each branch."""
    dtype = torch.bfloat16
    clip = ClipRange(low=0.2, high=0.28, dual=torch.tensor(math.log(2.0), dtype=dtype).exp().item())
    advantages = random_batch(dtype).advantages
    near_edges = torch.tensor([math.log(1.3), math.log(0.79), math.log(2.0)]).repeat(100)
    steps = 0.02 * torch.rand(advantages.shape, generator=torch.Generator().manual_seed(1)) - 0.01
    change = (near_edges + steps).to(dtype)
    change[:, 2::3], advantages[:, 2::3] = math.log(2.0), -1.0
    batch = Batch(-change.clamp(min=0), change.clamp(max=0), advantages, torch.ones_like(change, dtype=torch.bool))
    log_prob = batch.log_prob.clone().requires_grad_()
    ratio = torch.exp(log_prob - batch.old_log_prob)
    unclipped, bounded = -batch.advantages * ratio, -batch.advantages * ratio.clamp(1 - clip.low, 1 + clip.high)
    pessimistic, cap = torch.maximum(unclipped, bounded), -batch.advantages * clip.dual
    losses = torch.where(batch.advantages < 0, torch.min(cap, pessimistic), pessimistic)
    (expected,) = torch.autograd.grad(losses.sum(), log_prob)
    past = {"above": ratio > 1 + clip.high, "below": ratio < 1 - clip.low}
    for side, beyond in past.items():
        assert ((unclipped == bounded) & beyond & (batch.advantages != 0)).any(), f"no tie {side} the clip"
    assert (pessimistic == cap)[:, 2::3].all(), "no tie at the cap"
    _, gradient = evaluate(batch, UNIFORM, clip, "token-sum")
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("normalize", ["none", "token_mean"])
def test_inside_reports_what_clipping_would_silence_without_weights(normalize):
    batch = random_batch(torch.float64)
    inside = evaluate(batch, TokenWeighting(placement="inside", normalize=normalize), CLIP)[0].metrics
    uniform = evaluate(batch, UNIFORM, CLIP)[0].metrics
    assert inside["tr_zero_grad_frac_uniform"] == uniform["tr_zero_grad_frac"] > 0
    assert inside["tr_zero_grad_frac"] != uniform["tr_zero_grad_frac"]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_global_counts_may_be_tensors_and_zero(mode, count):
    """A rank without tokens in a mini-batch without tokens: 0, where a plain division gives NaN."""
    losses, mask = torch.full((2, 3), 6.0), torch.tensor([[1, 1, 0], [0, 0, 0]])
    total = 6.0 if mode == "seq-mean-token-mean" else 12.0
    for given in (count, torch.tensor(count)):
        counts = {"batch_num_tokens": given, "global_batch_size": given, "dp_size": 2}
        assert float(aggregate_loss(losses, mask, mode, **counts)) == pytest.approx(total * 2 / max(count, 1))
        assert float(aggregate_loss(losses, torch.zeros_like(mask), mode, **counts)) == 0.0


def test_weights_that_are_all_zero_stay_zero_when_normalised():
    gate = TokenWeighting(shaping=make_shaping("threshold", lower=0.0, upper=1.0), normalize="token_mean")
    batch = filled(-2.0, -2.0, 1.0)
    assert token_weights(batch.log_prob, batch.old_log_prob, batch.mask, gate).item() == 0.0
    result, gradient = evaluate(batch, gate, CLIP)
    assert result.loss.item() == 0.0 and gradient.item() == 0.0


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_second_derivative_is_refused_instead_of_wrong(ratio):
    batch, regulation = filled(-1.0, -1.1, 1.0), TokenWeighting(shaping=UNIFORM.shaping, ratio=ratio)
    log_prob = batch.log_prob.clone().requires_grad_()
    loss = compute_policy_loss(batch.old_log_prob, log_prob, batch.advantages, batch.mask, regulation, CLIP).loss
    (gradient,) = torch.autograd.grad(loss**2, log_prob, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_only_matrices_are_taken():
    for shape in [(4,), (2, 2, 2)]:
        tensors = [torch.zeros(shape), torch.zeros(shape), torch.ones(shape), torch.ones(shape)]
        with pytest.raises(ValueError, match=r"one shape \(batch, response_length\)"):
            compute_policy_loss(*tensors, UNIFORM, CLIP)


def flat(probs):
    """Right for a vector, as which it is checked, and wrong for a matrix."""
    return probs.flatten() + 1


def summed(probs):
    return probs if probs.dim() == 1 else probs.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("function", ["flat", "summed"])
def test_a_shaping_that_loses_the_shape_is_named(function):
    regulation = TokenWeighting(shaping=make_shaping(f"{__name__}.{function}"))
    batch = random_batch(torch.float64, rows=2, length=3)
    with pytest.raises(ValueError, match=r"one weight for each token"):
        evaluate(batch, regulation, CLIP)


@pytest.mark.parametrize(
    "bounds", [{"low": 0.0}, {"low": 1.0}, {"high": 0.0}, {"high": 5.0}, {"dual": 1.01}, {"low": 1}]
)
def test_clip_ranges_include_their_ends(bounds):
    name, value = next(iter(bounds.items()))
    assert getattr(ClipRange(**bounds), name) == value


@pytest.mark.parametrize(
    ("name", "value", "called"),
    [
        (name, value, called)
        for name, called, values in (
            ("low", "clip_ratio_low", (-0.01, 1.01, math.nan, "0.2", True, None)),
            ("high", "clip_ratio_high", (-0.01, math.nan, "0.2", True, None)),
            ("dual", "clip_ratio_c", (1, 0.99, math.nan, "3", True, None)),
        )
        for value in values
    ],
)
def test_clip_ranges_name_what_is_out_of_range(name, value, called):
    with pytest.raises(ValueError, match=f"{called}={value!r}"):
        ClipRange(**{name: value})


@pytest.mark.parametrize("kind", ["", "mean", "rate", "ratios", "sum", "var", "stdev"])
def test_statistics_of_an_unknown_kind_are_refused(kind):
    with pytest.raises(ValueError, match="choose ratio or std"):
        PooledStatistic(kind, (1.0, 2.0, 3.0))


@pytest.mark.parametrize("lower", [0.5, 1.0])
def test_literal_kl_takes_every_weight_above_zero(lower):
    assert TokenWeighting(kl="literal", shaping=make_shaping("sigmoid", lower=lower)).kl == "literal"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_log_ratios_are_clamped_where_the_host_clamps_them(dtype):
    log_prob, old = torch.tensor([[0.0, -90.0, -1.0]], dtype=dtype), torch.tensor([[-90.0, 0.0, -1.5]], dtype=dtype)
    log_ratio, silent = clamped_log_ratio(log_prob, old, torch.ones(1, 3, dtype=torch.bool))
    assert log_ratio.tolist() == [[20.0, -20.0, 0.5]]
    assert silent.tolist() == [[True, True, False]]


def test_in_float16_the_largest_ratio_is_a_number_and_the_next_whole_log_ratio_none():
    limit = torch.tensor(log_ratio_limit(torch.float16), dtype=torch.float16)
    assert limit == limit.round()
    assert limit.exp().isfinite() and (limit + 1).exp().isinf()


def test_token_weights_take_the_probability_that_they_are_asked_to_take():
    current, old = torch.tensor([[0.2]]).log(), torch.tensor([[0.8]]).log()
    mask, half = torch.ones(1, 1), make_shaping("linear", alpha=0.5)
    for source, expected in (("current", 0.6), ("old", 0.9)):
        weights = token_weights(current, old, mask, TokenWeighting(shaping=half, prob_source=source))
        assert weights.item() == pytest.approx(expected)


def test_probabilities_have_no_gradient_and_rounding_leaves_none_above_one():
    probs = token_probs(torch.tensor([0.01, 0.0, -math.inf], requires_grad=True))
    assert probs.tolist() == [1.0, 1.0, 0.0] and not probs.requires_grad


def test_a_response_of_one_token_is_a_response_and_one_of_none_is_not():
    losses = torch.tensor([[2.0, 9.0, 9.0], [9.0, 9.0, 9.0], [3.0, 4.0, 5.0]])
    mask = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]])
    assert aggregate_loss(losses, mask, "seq-mean-token-sum").item() == pytest.approx((2 + 12) / 2)
    assert aggregate_loss(losses, mask, "seq-mean-token-mean").item() == pytest.approx((2 + 4) / 2)


def test_the_share_of_one_token_is_all_or_nothing():
    for log_ratio, advantage, name in ((1.0, 1.0, "pg_clipfrac"), (2.0, -1.0, "pg_clipfrac_lower")):
        result, _ = evaluate(filled(0.0, log_ratio, advantage), UNIFORM, CLIP)
        assert result.metrics[name] == 1.0


def test_the_clip_range_is_the_host_s_unless_told_otherwise():
    assert ClipRange() == ClipRange(low=0.2, high=0.2, dual=3.0)
