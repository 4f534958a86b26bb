"""The registered losses inside veRL: uniform is vanilla within rounding, and every option is reachable."""

from itertools import product

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.trainer.config import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from tests.core.strategies import CLIPS, MODES, batches
from tests.core.strategies import evaluate as losses_of
from verl_trgrpo.core import ClipRange, TokenStatistic, TokenWeighting, compute_policy_loss, make_shaping
from verl_trgrpo.core.losses import LOSS_AGG_MODES
from verl_trgrpo.verl_plugin.actor import token_weighting_of
from verl_trgrpo.verl_plugin.config import TRGRPOPolicyLossConfig


def actor(policy_loss, **options):
    config = {"rollout_n": 8, "ppo_micro_batch_size_per_gpu": 1, "strategy": "fsdp2", "clip_ratio_high": 0.28}
    return FSDPActorConfig(**{**config, **options}, policy_loss=policy_loss)


def uniform(**options):
    return TRGRPOPolicyLossConfig(shaping=make_shaping("uniform"), **options)


def batch(dtype, seed=0, rows=16, length=40):
    generator = torch.Generator().manual_seed(seed)
    old_log_prob = -3 * torch.rand(rows, length, generator=generator)
    log_prob = (old_log_prob + torch.randn(rows, length, generator=generator)).clamp(max=0)
    log_prob[0, 0] = old_log_prob[0, 0] + 25  # beyond the clamp of the log-ratio
    log_prob[1, 0] = old_log_prob[1, 0] - 25
    advantages = torch.randn(rows, 1, generator=generator).expand(rows, length).clone()
    mask = torch.arange(length)[None] < torch.randint(1, length + 1, (rows, 1), generator=generator)
    mask[3] = False
    return [x.to(dtype) for x in (old_log_prob, log_prob, advantages)] + [mask]


def evaluate(loss_mode, config, dtype, mode, is_weights=None):
    old_log_prob, log_prob, advantages, mask = batch(dtype)
    log_prob.requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn(loss_mode)(
        old_log_prob=old_log_prob,
        log_prob=log_prob,
        advantages=advantages,
        response_mask=mask,
        loss_agg_mode=mode,
        config=config,
        rollout_is_weights=is_weights,
    )
    loss.backward()
    return loss.detach(), log_prob.grad, metrics


# Rounding of vanilla itself, which computes in the batch's precision where this project takes float32 at least.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 2e-2}


COUNTS = {"dp_size": 2, "batch_num_tokens": 777, "global_batch_size": 32}
OTHERS = {"placement": "inside", "normalize": "token_mean", "prob_source": "old"}


@pytest.mark.parametrize(
    ("dtype", "mode", "is_weights", "counts", "options"),
    [
        *product([torch.float64], LOSS_AGG_MODES, [False], [{}, COUNTS], [{}]),
        *product(TOLERANCE, ["token-mean"], [False, True], [{}], [{}, OTHERS]),
    ],
)
def test_uniform_is_vanilla_within_rounding(dtype, mode, is_weights, counts, options):
    weights = torch.rand(16, 40, generator=torch.Generator().manual_seed(5)) + 0.5 if is_weights else None
    vanilla_config, uniform_config = actor(PolicyLossConfig()), actor(uniform(**options))
    for config in (vanilla_config, uniform_config):
        config.global_batch_info.update(counts)
    loss, gradient, metrics = evaluate("vanilla", vanilla_config, dtype, mode, weights)
    ours, our_gradient, our_metrics = evaluate("tr_grpo", uniform_config, dtype, mode, weights)
    tolerance = TOLERANCE[dtype]
    assert ours.item() == pytest.approx(loss.item(), rel=10 * tolerance)
    assert our_gradient.dtype == gradient.dtype
    close = (our_gradient - gradient).abs() <= tolerance * gradient.abs().max()
    # In bfloat16 a token next to an edge of the clip may fall on its other side.
    assert close.double().mean() > (0.98 if dtype == torch.bfloat16 else 0.9999)
    for name, value in metrics.items():
        assert our_metrics[name] == pytest.approx(value, rel=0.02 if dtype == torch.bfloat16 else 1e-5)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches(), CLIPS, MODES, st.sampled_from(["outside", "inside"]))
def test_uniform_is_vanilla_for_any_batch_and_clip_range(batch, clip, mode, placement):
    weighting = TokenWeighting(shaping=make_shaping("uniform"), placement=placement)
    rows, length = batch.mask.shape
    config = actor(PolicyLossConfig(), clip_ratio_low=clip.low, clip_ratio_high=clip.high, clip_ratio_c=clip.dual)
    # The divisors an engine gives; without them veRL divides by 0 where a row has no tokens.
    counts = {"dp_size": 2, "batch_num_tokens": 7 * rows * length, "global_batch_size": 3 * rows}
    config.global_batch_info.update(counts)
    log_prob = batch.log_prob.clone().requires_grad_()
    loss, _ = core_algos.get_policy_loss_fn("vanilla")(
        batch.old_log_prob, log_prob, batch.advantages, batch.mask, mode, config
    )
    (expected,) = torch.autograd.grad(loss, log_prob)
    ours, gradient = losses_of(batch, weighting, clip, mode, loss_scale_factor=None, **counts)
    torch.testing.assert_close(ours.loss, loss, rtol=1e-12, atol=1e-15)
    # At an edge of the clip or of dual clip either side is right, and vanilla takes half of each.
    ratio = (batch.log_prob - batch.old_log_prob).exp()[..., None]
    edges = torch.tensor([1 - clip.low, 1 + clip.high, clip.dual], dtype=torch.float64)
    away = ((ratio - edges).abs() > 1e-9).all(dim=-1)
    torch.testing.assert_close(gradient[away], expected[away], rtol=1e-9, atol=1e-15)


def test_stock_options_give_the_published_method_and_metrics_are_floats_under_verls_names():
    stock, _, metrics = evaluate("tr_grpo", actor(PolicyLossConfig(loss_mode="tr_grpo")), torch.float32, "token-mean")
    ours, _, _ = evaluate("tr_grpo", actor(TRGRPOPolicyLossConfig()), torch.float32, "token-mean")
    assert stock == ours and 1.0 < metrics["actor/tr_weight_mean"] < 1.4
    assert all(isinstance(value, float) for value in metrics.values())
    assert isinstance(metrics["actor/tr_weight_std"], TokenStatistic)
    # A spread of 0 that was asked for is not logged, so that whoever reads 0 has a fault.
    _, _, metrics = evaluate("tr_grpo", actor(uniform()), torch.float32, "token-mean")
    assert "actor/tr_weight_std" not in metrics and metrics["actor/tr_weight_mean"] == 1
    # veRL chooses how to reduce a metric by substrings of its name.
    for name in metrics:
        assert not any(word in name for word in ("max", "min", "sum", "total", "_lr")), name


def test_clip_range_falls_back_as_verl_does():
    wide = actor(TRGRPOPolicyLossConfig(), clip_ratio=0.5, clip_ratio_low=None, clip_ratio_high=None)
    explicit = actor(TRGRPOPolicyLossConfig(), clip_ratio_low=0.5, clip_ratio_high=0.5)
    results = [evaluate("tr_grpo", config, torch.float32, "token-mean")[0] for config in (wide, explicit)]
    assert torch.equal(*results)


def test_the_options_keep_verls_own_fields():
    config = TRGRPOPolicyLossConfig(placement="inside", clip_cov_ratio=0.5)
    assert config.get("loss_mode") == "tr_grpo" and config.clip_cov_ratio == 0.5
    assert isinstance(config.rollout_correction, RolloutCorrectionConfig)


def test_options_that_would_be_ignored_are_refused():
    with pytest.raises(ValueError, match=r"DictConfig.*_target_"):
        token_weighting_of(OmegaConf.create({"loss_mode": "tr_grpo", "placement": "inside"}))
    with pytest.raises(ValueError, match=r"placement='inside'.*loss_mode=aspo"):
        TRGRPOPolicyLossConfig(loss_mode="aspo", placement="inside")


def test_aspo_is_a_loss_of_its_own():
    ours = evaluate("aspo", actor(uniform(loss_mode="aspo")), torch.float64, "token-mean")
    old_log_prob, log_prob, advantages, mask = batch(torch.float64)
    expected = compute_policy_loss(
        log_prob, old_log_prob=old_log_prob, advantages=advantages, response_mask=mask, surrogate="aspo",
        weighting=TokenWeighting(shaping=make_shaping("uniform")), clip=ClipRange(high=0.28),
    )  # fmt: skip
    assert ours[0] == expected.loss
    assert ours[0] != evaluate("tr_grpo", actor(uniform()), torch.float64, "token-mean")[0]


def test_weights_through_rollout_correction_on_stock_vanilla_agree():
    """The other way to carry token weights, without a loss of one's own: they multiply the clipped loss there, too."""
    _, log_prob, _, mask = batch(torch.float64)
    ours = actor(TRGRPOPolicyLossConfig())
    loss, gradient, _ = evaluate("tr_grpo", ours, torch.float64, "token-mean")
    weights = make_shaping("sigmoid")(log_prob.exp().clamp(max=1))
    stock = evaluate("vanilla", actor(PolicyLossConfig()), torch.float64, "token-mean", weights)
    torch.testing.assert_close(gradient[mask], stock[1][mask])
    torch.testing.assert_close(loss, stock[0])
