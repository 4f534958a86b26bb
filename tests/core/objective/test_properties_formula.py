"""Value and gradient against the formula: in plain Python for one token, in autograd for a batch, and in low precision."""

import math

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.core.objective.reference import token_loss
from tests.core.objective.strategies import CLIPS, REGULATIONS, Batch, batches, evaluate
from verl_trgrpo.core.objective import ClipRange, TokenWeighting, weighted_kl
from verl_trgrpo.core.shaping import make_shaping

PROPERTY = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PLACEMENTS = st.sampled_from(["outside", "inside"])


@PROPERTY
@given(
    st.floats(-8.0, 0.0), st.floats(-8.0, 0.0), st.floats(-5.0, 5.0), st.floats(0.125, 8.0), PLACEMENTS,
    st.floats(0.0, 1.0), st.floats(0.0, 3.0), st.floats(1.001, 20.0),
)  # fmt: skip
@example(0.0, -3.0, -1.0, 1.0, "outside", 0.2, 0.2, 3.0)  # capped by dual clip
@example(0.0, -3.0, 1.0, 1.0, "outside", 0.2, 0.2, 3.0)  # clipped above
@example(-3.0, 0.0, -1.0, 1.0, "outside", 0.2, 0.2, 3.0)  # clipped below
def test_one_token_for_any_clip_range(log_prob, old_log_prob, advantage, weight, placement, low, high, dual):
    """The weight is one constant below p = 1 and another above, so that every token here has `weight`."""
    gate = make_shaping("threshold", eta=1.0, lower=weight, upper=weight + 1.0)
    assume(math.exp(log_prob) < 1.0)
    one = Batch(
        *(torch.tensor([[x]], dtype=torch.float64) for x in (old_log_prob, log_prob, advantage)),
        torch.ones(1, 1).bool(),
    )
    result, _ = evaluate(one, TokenWeighting(shaping=gate, placement=placement), ClipRange(low, high, dual))
    expected = token_loss(log_prob, old_log_prob, advantage, weight, low, high, dual, placement == "inside")
    assert result.loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


# The shapings written down once more; p may be reversed by the caller.
FORMULAS = {
    "Sigmoid": lambda p: (2.0 * (sigmoid(9.0 * p) - 0.25)).clamp(1.0, 1.4),
    "SigmoidCentered": lambda p: (2.0 * sigmoid(9.0 * (p - 0.25))).clamp(1.0, 1.4),
    "Linear": lambda p: 0.2 * p + 0.8,
    "Power": lambda p: p.sqrt().clamp(min=0.1),
    "Threshold": lambda p: 1.0 + 0.4 * (p >= 0.5).to(p.dtype),
    "Uniform": torch.ones_like,
}


def by_autograd(batch, regulation, clip):
    """Loss and gradient of the objective as autograd derives it from the formula, weights held constant."""
    log_prob = batch.log_prob.clone().requires_grad_()
    p = torch.exp(log_prob if regulation.prob_source == "current" else batch.old_log_prob).detach()
    weights = FORMULAS[type(regulation.shaping).__name__](1 - p if regulation.shaping.reverse else p)
    if regulation.normalize == "token_mean":
        weights = weights / weights[batch.mask].mean()
    inner, outer = (weights, 1.0) if regulation.placement == "inside" else (1.0, weights)
    ratio = inner * torch.exp((log_prob - batch.old_log_prob).clamp(-20.0, 20.0))
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    surrogate = torch.minimum(ratio * batch.advantages, bounded * batch.advantages)
    surrogate = torch.where(batch.advantages < 0, torch.maximum(surrogate, clip.dual * batch.advantages), surrogate)
    loss = -(outer * surrogate)[batch.mask].mean()
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return loss.detach(), gradient, ratio.detach()


@PROPERTY
@given(batches(), REGULATIONS, CLIPS)
def test_the_gradient_is_that_of_the_formula_with_constant_weights(batch, regulation, clip):
    result, gradient = evaluate(batch, regulation, clip)
    loss, expected, ratio = by_autograd(batch, regulation, clip)
    torch.testing.assert_close(result.loss.detach(), loss, rtol=1e-9, atol=1e-12)
    # At an edge of the clip, rounding decides which of two slopes a token gets.
    edges = torch.tensor([1 - clip.low, 1 + clip.high, clip.dual], dtype=torch.float64)
    away = ((ratio.unsqueeze(-1) - edges).abs() > 1e-9).all(dim=-1)
    torch.testing.assert_close(gradient[away], expected[away], rtol=1e-8, atol=1e-12)


def scale_of(batch):
    """Size of each token's terms, to which rounding errors are proportional: |A| (1 + r) (1 + |log r|)."""
    log_ratio = (batch.log_prob - batch.old_log_prob).clamp(-20.0, 20.0).double()
    return batch.advantages.double().abs() * (4 + torch.exp(log_ratio)) * (1 + log_ratio.abs())


@PROPERTY
@given(
    batches(), REGULATIONS.filter(lambda r: type(r.shaping).__name__ != "Threshold"), CLIPS,
    st.sampled_from([torch.float32, torch.bfloat16]),
)  # fmt: skip
def test_low_precision_differs_by_rounding_only(batch, regulation, clip, dtype):
    """The same numbers, computed in `dtype` and in float64; the loss is continuous, so no token can jump."""
    low = batch.to(dtype)
    result, gradient = evaluate(low, regulation, clip, "token-sum")
    exact, _ = evaluate(low.to(torch.float64), regulation, clip, "token-sum")
    assert gradient.dtype == dtype
    allowed = 20 * torch.finfo(dtype).eps * scale_of(low)[batch.mask].sum().item()
    assert result.loss.item() == pytest.approx(exact.loss.item(), rel=torch.finfo(dtype).eps, abs=allowed + 1e-12)


KL_KINDS = st.sampled_from(["scaled", "literal"])
WEIGHTS = st.floats(0.25, 3.0)


@PROPERTY
@given(st.floats(-4.0, 0.0), st.floats(-4.0, 0.0), WEIGHTS, KL_KINDS)
def test_kl_penalties_and_their_slopes_follow_the_formula(log_prob, ref_log_prob, weight, kind):
    """Slopes by log pi: scaled -w (rho - 1), literal -(w rho - 1); both where nothing is clamped."""
    rho = math.exp(ref_log_prob - log_prob)
    inner = weight * rho if kind == "literal" else rho
    assume(inner - math.log(inner) - 1 < 9.9 and rho - math.log(rho) - 1 < 9.9)
    x = torch.tensor([[log_prob]], dtype=torch.float64, requires_grad=True)
    reference, weights = (torch.tensor([[v]], dtype=torch.float64) for v in (ref_log_prob, weight))
    penalty = weighted_kl(x, reference, weights, torch.ones(1, 1), kind)
    outer = 1.0 if kind == "literal" else weight
    assert penalty.item() == pytest.approx(outer * (inner - math.log(inner) - 1), rel=1e-9, abs=1e-12)
    penalty.sum().backward()
    assert x.grad.item() == pytest.approx(-outer * (inner - 1), rel=1e-9, abs=1e-12)
    assert penalty.item() >= -1e-12
