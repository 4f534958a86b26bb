"""The policy loss against token-by-token arithmetic, and the invariances it promises."""

import math

import pytest
import torch

from tests.core.reference import aggregate, published_weight, token_loss, token_slope
from verl_trgrpo.core import ClipRange, TokenWeighting, compute_policy_loss, make_shaping
from verl_trgrpo.core.losses import LOSS_AGG_MODES

CLIP = ClipRange(low=0.2, high=0.28, dual=2.5)


def batch(seed=0, rows=8, length=12, dtype=torch.float64):
    """Random log-probabilities with ratios on both sides of every clip, advantages of both signs, ragged masks."""
    generator = torch.Generator().manual_seed(seed)
    old_log_prob = -3 * torch.rand(rows, length, generator=generator, dtype=torch.float64)
    log_prob = (old_log_prob + 1.2 * torch.randn(rows, length, generator=generator, dtype=torch.float64)).clamp(max=0)
    advantages = torch.randn(rows, 1, generator=generator, dtype=torch.float64).expand(rows, length).clone()
    lengths = torch.randint(1, length + 1, (rows, 1), generator=generator)
    mask = torch.arange(length)[None] < lengths
    return old_log_prob.to(dtype), log_prob.to(dtype).requires_grad_(), advantages.to(dtype), mask


def loss_of(inputs, weighting=None, clip=CLIP, mode="token-mean", **options):
    old_log_prob, log_prob, advantages, mask = inputs
    return compute_policy_loss(
        log_prob, old_log_prob=old_log_prob, advantages=advantages, response_mask=mask,
        weighting=weighting or TokenWeighting(), clip=clip, loss_agg_mode=mode, **options,
    )  # fmt: skip


def run(inputs, *args, **options):
    result = loss_of(inputs, *args, **options)
    (gradient,) = torch.autograd.grad(result.loss, inputs[1])
    return result, gradient


def weights_of(weighting, log_prob, old_log_prob, mask):
    source = log_prob if weighting.prob_source == "current" else old_log_prob
    weights = [[published_weight(math.exp(x)) for x in row] for row in source.tolist()]
    if weighting.normalize == "token_mean":
        kept = [
            w for row, keep in zip(weights, mask.tolist(), strict=True) for w, m in zip(row, keep, strict=True) if m
        ]
        weights = [[w * len(kept) / sum(kept) for w in row] for row in weights]
    return weights


@pytest.mark.parametrize("placement", ["outside", "inside"])
@pytest.mark.parametrize("prob_source", ["current", "old"])
@pytest.mark.parametrize("normalize", ["none", "token_mean"])
@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_loss_and_gradient_follow_the_formula(placement, prob_source, normalize, mode):
    inputs = batch()
    old_log_prob, log_prob, advantages, mask = inputs
    weighting = TokenWeighting(placement=placement, prob_source=prob_source, normalize=normalize)
    is_weights = torch.rand(mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.5
    result, gradient = run(inputs, weighting, mode=mode, rollout_is_weights=is_weights)

    weights = weights_of(weighting, log_prob.detach(), old_log_prob, mask)
    columns = zip(
        log_prob.tolist(), old_log_prob.tolist(), advantages.tolist(), weights, is_weights.tolist(), strict=True
    )
    losses, slopes = [], []
    for row in columns:
        tokens = list(zip(*row, strict=True))
        args = (CLIP.low, CLIP.high, CLIP.dual, placement == "inside")
        losses.append([token_loss(x, o, a, w, *args) * c for x, o, a, w, c in tokens])
        slopes.append([token_slope(x, o, a, w, *args) * c for x, o, a, w, c in tokens])
    keep = mask.tolist()
    assert 0 < result.metrics["pg_clipfrac"] < 1 and 0 < result.metrics["pg_clipfrac_lower"] < 1  # every branch
    assert result.loss.item() == pytest.approx(aggregate(losses, keep, mode), rel=1e-6)
    expected = torch.zeros_like(gradient)
    for i, row in enumerate(slopes):
        for t, slope in enumerate(row):
            if keep[i][t]:
                only = [[slope if (i, t) == (j, s) else 0.0 for s in range(len(row))] for j in range(len(slopes))]
                expected[i, t] = aggregate(only, keep, mode)
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-8)
    assert (gradient[~mask] == 0).all()


def test_log_ratios_are_clamped_as_verl_clamps_them():
    """r = exp(20), not exp(30), where nothing else bounds it; beyond the clamp there is no gradient."""
    log_prob = torch.tensor([[0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    inputs = (torch.tensor([[-30.0, -1.5]]).double(), log_prob, torch.tensor([[1.0, 1.0]]).double(), torch.ones(1, 2))
    uniform = TokenWeighting(shaping=make_shaping("uniform"))
    result, gradient = run(inputs, uniform, clip=ClipRange(high=math.inf), mode="token-sum")
    assert result.loss.item() == pytest.approx(-math.exp(20) - math.exp(0.5))
    assert gradient.tolist() == [[0.0, pytest.approx(-math.exp(0.5))]]


def test_inside_silences_confident_correct_tokens_and_says_so():
    log_prob = torch.log(torch.tensor([[0.05, 0.9]], dtype=torch.float64)).requires_grad_()
    inputs = (log_prob.detach().clone(), log_prob, torch.ones(1, 2).double(), torch.ones(1, 2))
    result, gradient = run(inputs, TokenWeighting(placement="inside"), clip=ClipRange())
    assert gradient.tolist() == [[pytest.approx(-0.5), 0.0]]  # w r = 1.4 > 1.2 for the second token
    assert result.metrics["tr_zero_grad_frac"] == 0.5
    assert result.metrics["tr_zero_grad_frac_uniform"] == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extreme_log_probs_stay_finite(dtype):
    inf = float("inf")
    log_prob = torch.tensor([[-inf, 0.0, -inf, 0.0, -50.0, 0.0]], dtype=dtype, requires_grad=True)
    old_log_prob = torch.tensor([[-inf, 0.0, 0.0, -inf, 0.0, -50.0]], dtype=dtype)
    for sign in (1.0, -1.0):
        for options in ({}, {"placement": "inside"}, {"normalize": "token_mean"}):
            inputs = (old_log_prob, log_prob, torch.full_like(old_log_prob, sign), torch.ones(1, 6))
            result, gradient = run(inputs, TokenWeighting(**options))
            assert torch.isfinite(result.loss)
            assert torch.isfinite(gradient).all()
            assert all(math.isfinite(value) for value in result.metrics.values())


def test_rollout_weights_of_nan_outside_the_mask_do_not_leak():
    inputs = batch()
    expected, expected_gradient = run(inputs)
    result, gradient = run(inputs, rollout_is_weights=torch.where(inputs[3], 1.0, math.nan))
    assert result.loss == expected.loss and torch.equal(gradient, expected_gradient)


def test_nan_inside_the_mask_is_not_hidden():
    old_log_prob, log_prob, advantages, mask = batch()
    spoiled = log_prob.detach().clone()
    spoiled[0, 0] = float("nan")
    assert torch.isnan(loss_of((old_log_prob, spoiled, advantages, mask)).loss)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("shaping", ["sigmoid", "uniform"])
def test_an_empty_mask_costs_nothing_and_still_backpropagates(mode, shaping):
    old_log_prob, log_prob, advantages, mask = batch()
    weighting = TokenWeighting(shaping=make_shaping(shaping), normalize="token_mean")
    result, gradient = run((old_log_prob, log_prob, advantages, torch.zeros_like(mask)), weighting, mode=mode)
    assert result.loss.item() == 0.0
    assert result.loss.requires_grad
    assert torch.equal(gradient, torch.zeros_like(log_prob))
    assert all(math.isfinite(value) for value in result.metrics.values())


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("split", [1, 2, 4])
def test_micro_batches_and_ranks_add_up(mode, split):
    """Summed over micro-batches and averaged over two ranks, loss and gradient are those of the whole batch."""
    old_log_prob, log_prob, advantages, mask = batch(rows=8)
    whole, whole_gradient = run((old_log_prob, log_prob, advantages, mask), mode=mode)
    counts = {"batch_num_tokens": int(mask.sum()), "global_batch_size": int(mask.any(dim=-1).sum()), "dp_size": 2}
    total, gradient = 0.0, torch.zeros_like(whole_gradient)
    for rank in torch.arange(8).chunk(2):
        for rows in rank.chunk(split):
            part = log_prob[rows].detach().requires_grad_()
            result, part_gradient = run((old_log_prob[rows], part, advantages[rows], mask[rows]), mode=mode, **counts)
            total += result.loss.item() / 2
            gradient[rows] += part_gradient / 2
    assert total == pytest.approx(whole.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradient, whole_gradient)


@pytest.mark.parametrize("which", range(6))
def test_wrong_shapes_are_named(which):
    old_log_prob, log_prob, advantages, mask = batch()
    tensors = [old_log_prob, log_prob.detach(), advantages, mask, *[torch.ones_like(advantages)] * 2]
    tensors[which] = tensors[which][:, :-1]
    with pytest.raises(ValueError, match=r"one shape \(batch, response_length\).*\(8, 11\)"):
        loss_of(tensors[:4], rollout_is_weights=tensors[4], entropy=tensors[5])


def test_tensors_of_equal_shape_cannot_be_swapped_silently():
    old_log_prob, log_prob, advantages, mask = batch()
    with pytest.raises(TypeError):
        compute_policy_loss(old_log_prob, log_prob, advantages, mask, weighting=TokenWeighting(), clip=CLIP)


def test_an_unknown_surrogate_is_named():
    with pytest.raises(ValueError, match=r"surrogate='gspo'.*ppo.*aspo"):
        loss_of(batch(), surrogate="gspo")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"placement": "middle", "prob_source": "new", "normalize": "max", "kl": "k4"},
            r"(?s)placement.*prob_source.*normalize.*kl",
        ),
        ({"shaping": "sigmoid"}, "not a Shaping"),
        ({"kl": "literal", "shaping": make_shaping("power", lower=0.0)}, "literal.*weight 0"),
        ({"prob_source": "old", "shaping": make_shaping("taco"), "kl": "k4"}, r"(?s)kl='k4'.*prob_source='old'.*taco"),
        ({"prob_source": "old", "shaping": make_shaping("ipo_mask")}, "prob_source='old'.*ipo_mask.*old_probs"),
    ],
)
def test_impossible_options_are_refused_together(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        TokenWeighting(**options)


def test_impossible_clip_ranges_are_refused_together():
    with pytest.raises(ValueError, match=r"(?s)clip_ratio_low=1.5.*clip_ratio_high=-0.1.*clip_ratio_c=1.0"):
        ClipRange(low=1.5, high=-0.1, dual=1.0)


def test_weights_that_are_all_zero_stay_zero_when_normalised():
    gate = TokenWeighting(shaping=make_shaping("threshold", lower=0.0, upper=1.0), normalize="token_mean")
    log_prob = torch.full((1, 1), -2.0, requires_grad=True)
    result, gradient = run((log_prob.detach().clone(), log_prob, torch.ones(1, 1), torch.ones(1, 1)), gate)
    assert result.loss.item() == 0.0 and gradient.item() == 0.0


@pytest.mark.parametrize(("normalize", "divided_by"), [("token_mean", "kept"), ("none", "all")])
def test_top_entropy_divides_as_the_authors_code_or_as_the_paper(normalize, divided_by):
    """Their code sums the losses of the ceil(0.2 n) most uncertain tokens and divides by their number, the paper by n."""
    old, log_prob, advantages, mask = batch()
    entropy = torch.rand(mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weighting = TokenWeighting(make_shaping("top_entropy"), normalize=normalize)
    _, gradient = run((old, log_prob, advantages, mask), weighting, entropy=entropy)
    n = int(mask.sum())
    kept = mask & (entropy >= entropy[mask].sort(descending=True).values[math.ceil(0.2 * n) - 1])
    _, every = run((old, log_prob, advantages, mask), TokenWeighting(make_shaping("uniform")))
    divisor = int(kept.sum()) if divided_by == "kept" else n
    assert int(kept.sum()) == math.ceil(0.2 * n) < n
    torch.testing.assert_close(gradient, every * kept * n / divisor)
