"""veRL's own losses with token weights: every one against its formula written down once more, times weights by hand."""

import math

import pytest
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import PolicyLossConfig

from tests.verl_plugin.test_policy_loss import actor, batch
from tests.verl_plugin.test_ppo_loss import evaluate as evaluate_micro_batch
from verl_trgrpo.core import make_shaping
from verl_trgrpo.core.losses import LOSS_AGG_MODES
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig
from verl_trgrpo.verl_plugin.loss_names import WEIGHTED, WITHOUT_WEIGHTS

KINDS = [name for name in WEIGHTED if name != "vanilla"]
LOW, HIGH = 0.15, 0.3
COUNTS = {"dp_size": 2, "batch_num_tokens": 777, "global_batch_size": 32, "loss_scale_factor": 50}
# All tokens between the bounds are cut out, so that the loss draws none by chance.
OPTIONS = {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.2, "clip_cov_ub": 0.9, "kl_cov_ratio": 0.1, "dro_beta": 0.7}


def covariance(log_prob, advantages, mask):
    value = log_prob.detach()
    return (advantages - advantages[mask].mean()) * (value - value[mask].mean())


def clipped(ratio, advantages):
    return torch.max(-advantages * ratio, -advantages * ratio.clamp(1 - LOW, 1 + HIGH))


def gspo(log_prob, old, advantages, mask):
    """The ratio of a response is the geometric mean of its tokens' ratios; the gradient is that of each token."""
    rows = [
        (new[m] - was[m]).sum().item() / max(int(m.sum()), 1) for new, was, m in zip(log_prob, old, mask, strict=True)
    ]
    return clipped(
        torch.tensor(rows, dtype=torch.float64)[:, None].exp() * (log_prob - log_prob.detach()).exp(), advantages
    )


def sapo(log_prob, old, advantages, mask):
    tau = 1.0 + 0.05 * (advantages <= 0).double()
    ratio = (log_prob - old).clamp(-20, 20).exp()
    return -advantages * 4 / tau / (1 + (-tau * (ratio - 1)).exp())


def cispo(log_prob, old, advantages, mask):
    return -((log_prob - old).clamp(-20, 20).exp().clamp(1 - LOW, 1 + HIGH).detach()) * advantages * log_prob


def clip_cov(log_prob, old, advantages, mask):
    ratio = (log_prob - old).exp()
    by_ratio = ((ratio > 1 + HIGH) & (advantages > 0)) | ((ratio < 1 - LOW) & (advantages < 0))
    cov = covariance(log_prob, advantages, mask)
    cut = (cov > OPTIONS["clip_cov_lb"]) & (cov < OPTIONS["clip_cov_ub"]) & ~by_ratio
    assert 10 < int((cut & mask).sum()) < int(mask.sum()) - 10
    return clipped(ratio, advantages) * ~cut


def kl_cov(log_prob, old, advantages, mask):
    cov = covariance(log_prob, advantages, mask)
    chosen = cov >= cov[mask].sort(descending=True).values[int(OPTIONS["kl_cov_ratio"] * int(mask.sum())) - 1]
    return -advantages * (log_prob - old).exp() + 0.1 * (log_prob - old).abs() * chosen


def dro(log_prob, old, advantages, mask):
    return -advantages * log_prob + OPTIONS["dro_beta"] / 2 * (log_prob - old) ** 2


def dppo(distance):
    def formula(log_prob, old, advantages, mask):
        p, q = log_prob.detach().exp(), old.exp()
        far = torch.where(advantages > 0, (p > q) & (distance(p, q) > HIGH), (p < q) & (distance(p, q) > LOW))
        return -advantages * (p / q).clamp(math.exp(-20), 3.0) * log_prob * ~far

    return formula


FORMULAS = {
    "gspo": gspo,
    "sapo": sapo,
    "cispo": cispo,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "gpg": lambda log_prob, old, advantages, mask: -advantages * log_prob,
    "dro": dro,
    "dppo_tv": dppo(lambda p, q: (p - q).abs()),
    "dppo_kl": dppo(lambda p, q: q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()),
}


def token_shares(mask, mode, counts):
    """What each token's loss counts for in the aggregated one, (batch, response_length)."""
    lengths = mask.double().sum(-1, keepdim=True)
    tokens = counts.get("batch_num_tokens", lengths.sum())
    responses = counts.get("global_batch_size", (lengths > 0).sum())
    share = {
        "token-mean": 1 / tokens,
        "token-sum": 1.0,
        "seq-mean-token-sum": 1 / responses,
        "seq-mean-token-mean": 1 / responses / lengths.clamp(min=1),
        "seq-mean-token-sum-norm": 1 / responses / counts.get("loss_scale_factor", mask.shape[1]),
    }[mode]
    return mask * share * counts.get("dp_size", 1)


def tensors():
    old, log_prob, advantages, mask = batch(torch.float64)
    return old, log_prob.clamp(max=-1e-6), advantages, mask


def evaluate(loss_mode, config, mode="token-mean", is_weights=None):
    old, log_prob, advantages, mask = tensors()
    log_prob.requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn(loss_mode)(old, log_prob, advantages, mask, mode, config, is_weights)
    (gradient,) = torch.autograd.grad(loss, log_prob)
    return loss.detach(), gradient, metrics


def weighted_actor(kind, counts=None, **options):
    loss = TRGRPOPolicyLossConfig(loss_mode=kind, **OPTIONS, **options)
    config = actor(loss, clip_ratio_low=LOW, clip_ratio_high=HIGH)
    config.global_batch_info.update(counts or {})
    return config


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("counts", [{}, COUNTS], ids=["one micro-batch", "part of a global batch"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_weight_multiplies_the_loss_of_its_token(kind, counts, mode):
    """Beside the weights of a rollout correction; sapo takes the mean over responses whatever the mode says."""
    old, log_prob, advantages, mask = tensors()
    weights = log_prob.exp()  # the linear shaping with alpha 1: w = p
    is_weights = torch.rand(mask.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    log_prob.requires_grad_()
    formula = FORMULAS[kind](log_prob, old, advantages, mask)
    shares = token_shares(mask, "seq-mean-token-mean" if kind == "sapo" else mode, counts)
    expected = (formula * weights * is_weights * shares)[mask].sum()
    (expected_gradient,) = torch.autograd.grad(expected, log_prob)
    config = weighted_actor(kind, counts, shaping=make_shaping("linear", alpha=1.0))
    loss, gradient, _ = evaluate(config.policy_loss.loss_mode, config, mode, is_weights)
    # Some of veRL's counts are float32.
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_uniform_weights_are_verl_s_loss_to_the_bit_and_its_metrics_stay(kind):
    stock = actor(PolicyLossConfig(loss_mode=kind, **OPTIONS), clip_ratio_low=LOW, clip_ratio_high=HIGH)
    loss, gradient, metrics = evaluate(kind, stock)
    same_loss, same, own = evaluate(f"tr_{kind}", weighted_actor(kind, shaping=make_shaping("uniform")))
    assert torch.equal(same_loss, loss) and torch.equal(same, gradient)
    assert metrics.items() <= own.items() and float(own["actor/tr_weight_mean"]) == 1.0
    weighted = weighted_actor(kind, shaping=make_shaping("linear", alpha=1.0))
    _, weighted_gradient, own = evaluate(f"tr_{kind}", weighted)
    _, log_prob, _, mask = tensors()
    assert metrics.items() <= own.items()
    assert float(own["actor/tr_weight_mean"]) == pytest.approx(log_prob.exp()[mask].mean().item())
    assert not torch.equal(weighted_gradient, gradient)


@pytest.mark.parametrize("kind", KINDS)
def test_normalised_and_old_weights_reach_the_loss(kind):
    old, _, _, mask = tensors()
    shaping = make_shaping("linear", alpha=1.0)
    _, gradient, _ = evaluate(f"tr_{kind}", weighted_actor(kind, shaping=make_shaping("uniform")))
    config = weighted_actor(kind, shaping=shaping, prob_source="old", normalize="token_mean")
    _, found, _ = evaluate(f"tr_{kind}", config)
    expected = gradient * old.exp() / old.exp()[mask].mean()
    torch.testing.assert_close(found[mask], expected[mask])


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_a_loss_without_a_place_for_weights_is_refused_with_the_reason(name):
    assert name in core_algos.POLICY_LOSS_REGISTRY
    with pytest.raises(ValueError, match=f"loss_mode={name}: .*shaping") as refused:
        TRGRPOPolicyLossConfig(loss_mode=name)
    assert "gspo" in str(refused.value), "the remedy names losses that take weights"
    # Where veRL's worker calls the loss, too.
    options = TRGRPOPolicyLossConfig()
    object.__setattr__(options, "loss_mode", name)
    with pytest.raises(ValueError, match=f"loss_mode={name}: "):
        evaluate_micro_batch(actor(options))


def test_why_the_geometric_mean_has_no_place_for_weights():
    """Weights of one response enter as one number: tokens of different weights get the same factor."""
    _, log_prob, _, mask = tensors()
    stock = actor(PolicyLossConfig(loss_mode="geo_mean"), clip_ratio_low=30.0, clip_ratio_high=30.0)
    _, gradient, _ = evaluate("geo_mean", stock)
    _, weighted, _ = evaluate("geo_mean", stock, is_weights=log_prob.exp())
    factors = (weighted / gradient)[5][mask[5]]
    assert factors.std() < 1e-9 < log_prob.exp()[5][mask[5]].std()


def test_every_loss_of_verl_is_weighted_or_refused_for_a_reason():
    verls = {name for name, loss in core_algos.POLICY_LOSS_REGISTRY.items() if loss.__module__.startswith("verl.")}
    assert verls == {*WEIGHTED, *WITHOUT_WEIGHTS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_clip_of_w_r_is_not_theirs(kind):
    with pytest.raises(ValueError, match=f"placement='inside'.*loss_mode=tr_{kind}"):
        TRGRPOPolicyLossConfig(loss_mode=kind, placement="inside")


def test_weights_on_vanilla_are_tr_grpo():
    assert TRGRPOPolicyLossConfig(loss_mode="vanilla", placement="inside").loss_mode == "tr_grpo"


@pytest.mark.parametrize("place", ["log_prob", "old_log_prob", "advantages", "rollout_is_weights"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_outside_the_mask_reach_neither_loss_nor_gradient(kind, place):
    """veRL multiplies by the mask, and 0 times NaN is NaN."""
    config = weighted_actor(kind, shaping=make_shaping("linear", alpha=1.0))
    old, log_prob, advantages, mask = tensors()
    given = {
        "old_log_prob": old,
        "log_prob": log_prob,
        "advantages": advantages,
        "rollout_is_weights": torch.ones_like(old),
    }
    found = []
    for value in (0.0, math.nan, math.inf, -math.inf):
        spoilt = given | {place: given[place].masked_fill(~mask, value)}
        leaf = spoilt["log_prob"].clone().requires_grad_()
        loss_fn = core_algos.get_policy_loss_fn(f"tr_{kind}")
        loss, _ = loss_fn(**spoilt | {"log_prob": leaf}, response_mask=mask, loss_agg_mode="token-mean", config=config)
        found.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    for loss, gradient in found:
        assert torch.equal(loss, found[0][0]) and torch.equal(gradient, found[0][1]) and gradient.isfinite().all()
