"""ASPO: closed forms of one token, and the gradient of the formula written with stop-gradients."""

import math

import pytest
import torch

from verl_trgrpo.core import ClipRange, HighEntropyClip, TokenWeighting, compute_policy_loss, make_shaping

CLIP = ClipRange(low=0.2, high=0.25, dual=3.0)
UNIFORM = TokenWeighting(shaping=make_shaping("uniform"))


def aspo(old_log_prob, log_prob, advantages, mask, weighting=UNIFORM, clip=CLIP, **options):
    return compute_policy_loss(
        log_prob, old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, weighting=weighting, clip=clip,
        surrogate="aspo", **options,
    )  # fmt: skip


def tokens(pairs):
    """One row of tokens with the given ratios and advantages; pi_old is 0.1, so that every pi_theta is below 1."""
    old_log_prob = torch.full((1, len(pairs)), math.log(0.1), dtype=torch.float64)
    log_prob = torch.tensor([[math.log(0.1 * ratio) for ratio, _ in pairs]], dtype=torch.float64).requires_grad_()
    advantages = torch.tensor([[advantage for _, advantage in pairs]], dtype=torch.float64)
    return old_log_prob, log_prob, advantages, torch.ones(1, len(pairs), dtype=torch.bool)


# ratio, advantage -> loss, its derivative by log pi_theta
CLOSED_FORMS = {
    "on-policy, good": (1.0, 2.0, -2.0, -2.0),
    "on-policy, bad": (1.0, -2.0, 2.0, 2.0),
    "good and rarer than before: 1/r": (0.5, 1.0, -2.0, -2.0),
    "good and more frequent: 1/r": (1.1, 1.0, -1 / 1.1, -1 / 1.1),
    "good, past the clip: no gradient": (1.5, 1.0, -1 / 1.25, 0.0),
    "good, 1/r above the cap: gradient at the cap": (0.1, 1.0, -3.0, -3.0),
    "bad and more frequent: r": (2.0, -1.0, 2.0, 2.0),
    "bad, past the clip: no gradient": (0.5, -1.0, 0.8, 0.0),
    "bad, r above the cap: gradient at the cap": (5.0, -1.0, 3.0, 3.0),
    "no advantage": (5.0, 0.0, 0.0, 0.0),
}


@pytest.mark.parametrize("case", CLOSED_FORMS)
def test_one_token(case):
    ratio, advantage, loss, slope = CLOSED_FORMS[case]
    inputs = tokens([(ratio, advantage)])
    result = aspo(*inputs)
    (gradient,) = torch.autograd.grad(result.loss, inputs[1])
    assert result.loss.item() == pytest.approx(loss, rel=1e-12)
    assert gradient.item() == pytest.approx(slope, rel=1e-12)


def batch(rows=8, length=40):
    generator = torch.Generator().manual_seed(0)
    old_log_prob = -1 - 3 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    log_prob = (old_log_prob + torch.randn(rows, length, generator=generator, dtype=torch.float64)).clamp(max=0)
    advantages = torch.randn(rows, 1, generator=generator, dtype=torch.float64).expand(rows, length).clone()
    mask = torch.arange(length)[None] < torch.randint(1, length + 1, (rows, 1), generator=generator)
    return old_log_prob, log_prob.requires_grad_(), advantages, mask


def with_stop_gradients(old_log_prob, log_prob, advantages):
    """The published form: r / sg(r)^2 for A > 0, clipped ratios, and A sg(cap) log pi where dual clip caps."""
    ratio = torch.exp(log_prob - old_log_prob)
    good = ratio.clamp(max=1 + CLIP.high)
    good_loss = torch.where(
        1 / good.detach() > CLIP.dual, -advantages * CLIP.dual * log_prob, -advantages * good / good.detach() ** 2
    )
    bad = ratio.clamp(min=1 - CLIP.low)
    bad_loss = torch.where(bad > CLIP.dual, -advantages * CLIP.dual * log_prob, -advantages * bad)
    return torch.where(advantages > 0, good_loss, bad_loss)


@pytest.mark.parametrize("shaping", ["uniform", "sigmoid"])
def test_the_gradient_is_the_formula_s(shaping):
    old_log_prob, log_prob, advantages, mask = batch()
    weighting = TokenWeighting(shaping=make_shaping(shaping))
    is_weights = torch.rand(mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.5
    options = {"loss_agg_mode": "seq-mean-token-mean", "rollout_is_weights": is_weights}
    result = aspo(old_log_prob, log_prob, advantages, mask, weighting, **options)
    (gradient,) = torch.autograd.grad(result.loss, log_prob)

    x = log_prob.detach().clone().requires_grad_()
    factor = weighting.shaping(x.detach().exp()) * is_weights * mask
    share = 1 / (len(mask) * mask.sum(-1, keepdim=True))
    (expected,) = torch.autograd.grad((with_stop_gradients(old_log_prob, x, advantages) * factor * share).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-12)
    assert (gradient[~mask] == 0).all()
    ratio = torch.exp(x.detach() - old_log_prob)
    for branch in (
        (advantages > 0) & (ratio > 1.25), (advantages > 0) & (ratio < 1 / 3),
        (advantages < 0) & (ratio < 0.8), (advantages < 0) & (ratio > 3),
    ):  # fmt: skip
        assert (branch & mask).any()


def test_tokens_of_high_entropy_have_a_clip_range_of_their_own():
    """Quantiles of each response: the token of entropy 0.1 is high in its row, that of 0.9 is not in its."""
    old_log_prob, log_prob, _, _ = (
        x.repeat(2, 1) for x in tokens([(1.35, 1.0), (1.35, 1.0), (0.7, -1.0), (0.7, -1.0), (9.0, 1.0)])
    )
    log_prob = log_prob.detach().requires_grad_()
    advantages = torch.tensor([[1.0, 1.0, -1.0, -1.0, 1.0]] * 2, dtype=torch.float64)
    entropy = torch.tensor([[0.0, 0.1, 0.0, 0.1, math.nan], [0.9, 1.0, 0.9, 1.0, math.nan]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 0]] * 2)
    clip = ClipRange(low=0.2, high=0.2, high_entropy=HighEntropyClip(quantile=0.5, low=0.4, high=0.4))
    options = {"loss_agg_mode": "token-sum", "entropy": entropy}
    (gradient,) = torch.autograd.grad(
        aspo(old_log_prob, log_prob, advantages, mask, clip=clip, **options).loss, log_prob
    )
    expected = torch.tensor([[0.0, -1 / 1.35, 0.0, 0.7, 0.0]] * 2, dtype=torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)
    wide = ClipRange(low=0.4, high=0.4)
    same = ClipRange(low=0.4, high=0.4, high_entropy=HighEntropyClip())
    one, other = (aspo(old_log_prob, log_prob, advantages, mask, clip=clip, **options).loss for clip in (wide, same))
    assert torch.equal(one, other)
    with pytest.raises(ValueError, match=r"high_entropy_clip.*calculate_entropy=true"):
        aspo(old_log_prob, log_prob, advantages, mask, clip=clip)
    with pytest.raises(ValueError, match="not 'ppo'"):
        compute_policy_loss(
            log_prob, old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, weighting=UNIFORM, clip=clip
        )
    with pytest.raises(ValueError, match=r"(?s)quantile=1.*low=2"):
        HighEntropyClip(quantile=1, low=2)


def test_capped_tokens_are_not_counted_as_without_gradient():
    inputs = tokens([(1.0, 1.0), (1.5, 1.0), (0.1, 1.0), (5.0, -1.0)])
    metrics = aspo(*inputs).metrics
    assert metrics["pg_clipfrac"] == 0.25
    assert metrics["pg_clipfrac_lower"] == 0.5
    assert metrics["tr_zero_grad_frac"] == 0.25


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_outside_the_mask_and_nothing_infinite_reaches_the_gradient(dtype):
    old_log_prob = torch.tensor([[-math.inf, -math.inf, -1.0, math.nan]], dtype=torch.float64)
    log_prob = torch.tensor([[-1.0, -1.0, -math.inf, math.nan]], dtype=torch.float64, requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0, 1.0, math.nan]], dtype=torch.float64)
    loss = aspo(old_log_prob, log_prob, advantages, torch.tensor([[1, 1, 1, 0]])).loss
    (gradient,) = torch.autograd.grad(loss, log_prob)
    assert loss.isfinite() and gradient.isfinite().all() and gradient[0, 3] == 0
