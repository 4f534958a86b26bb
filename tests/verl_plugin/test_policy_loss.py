"""The registered loss inside veRL: the same bits as vanilla when uniform, and every option reachable."""

import pytest
import torch
from verl.trainer.config import RolloutCorrectionConfig
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from verl_trgrpo.core.objective import LOSS_AGG_MODES, PooledStatistic, TokenWeighting
from verl_trgrpo.core.shaping import make_shaping
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@pytest.mark.parametrize("is_weights", [False, True])
@pytest.mark.parametrize("counts", [{}, {"dp_size": 2, "batch_num_tokens": 777, "global_batch_size": 32}])
@pytest.mark.parametrize("options", [{}, {"placement": "inside", "normalize": "token_mean", "prob_source": "old"}])
def test_uniform_is_vanilla_bit_for_bit(dtype, mode, is_weights, counts, options):
    weights = torch.rand(16, 40, generator=torch.Generator().manual_seed(5)) + 0.5 if is_weights else None
    vanilla_config, uniform_config = actor(PolicyLossConfig()), actor(uniform(**options))
    for config in (vanilla_config, uniform_config):
        config.global_batch_info.update(counts)
    vanilla = evaluate("vanilla", vanilla_config, dtype, mode, weights)
    ours = evaluate("tr_grpo", uniform_config, dtype, mode, weights)
    assert ours[0].dtype == vanilla[0].dtype
    assert torch.equal(ours[0], vanilla[0])
    assert torch.equal(ours[1], vanilla[1])
    for name, value in vanilla[2].items():
        # The host sums its metrics in the batch's precision, this project in float64.
        assert ours[2][name] == pytest.approx(value, rel=1e-6 if dtype != torch.bfloat16 else 0.02)


def test_uniform_is_vanilla_in_float16_where_vanilla_is_finite():
    old_log_prob, log_prob, advantages, mask = batch(torch.float16)
    mask[:2, 0] = False  # the two tokens beyond float16's range
    results = []
    for name, config in (("vanilla", actor(PolicyLossConfig())), ("tr_grpo", actor(uniform()))):
        x = log_prob.clone().requires_grad_()
        loss, _ = core_algos.get_policy_loss_fn(name)(old_log_prob, x, advantages, mask, "token-mean", config)
        loss.backward()
        results.append((loss.detach(), torch.where(mask, x.grad, 0.0)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_stock_policy_loss_options_give_the_published_method():
    stock = evaluate("tr_grpo", actor(PolicyLossConfig(loss_mode="tr_grpo")), torch.float32, "token-mean")
    ours = evaluate("tr_grpo", actor(TRGRPOPolicyLossConfig()), torch.float32, "token-mean")
    vanilla = evaluate("vanilla", actor(PolicyLossConfig()), torch.float32, "token-mean")
    assert torch.equal(stock[0], ours[0])
    assert not torch.equal(stock[0], vanilla[0])
    assert 1.0 < stock[2]["actor/tr_weight_mean"] < 1.4


def test_metrics_are_floats_under_the_hosts_names():
    _, _, metrics = evaluate("tr_grpo", actor(TRGRPOPolicyLossConfig()), torch.float32, "token-mean")
    assert all(isinstance(value, float) for value in metrics.values())
    assert {"actor/pg_clipfrac", "actor/ppo_kl", "actor/pg_clipfrac_lower", "actor/tr_weight_mean"} <= set(metrics)
    assert isinstance(metrics["actor/tr_weight_std"], PooledStatistic)
    # veRL chooses how to reduce a metric by substrings of its name.
    for name in metrics:
        assert not any(word in name for word in ("max", "min", "sum", "total", "_lr")), name


def test_clip_range_falls_back_as_the_host_does():
    wide = actor(TRGRPOPolicyLossConfig(), clip_ratio=0.5, clip_ratio_low=None, clip_ratio_high=None)
    explicit = actor(TRGRPOPolicyLossConfig(), clip_ratio_low=0.5, clip_ratio_high=0.5)
    results = [evaluate("tr_grpo", config, torch.float32, "token-mean")[0] for config in (wide, explicit)]
    assert torch.equal(*results)


def test_the_options_keep_the_hosts_own_fields():
    config = TRGRPOPolicyLossConfig(placement="inside", clip_cov_ratio=0.5)
    assert isinstance(config, PolicyLossConfig) and isinstance(config, TokenWeighting)
    assert config.get("loss_mode") == "tr_grpo" and config.clip_cov_ratio == 0.5
    assert isinstance(config.rollout_correction, RolloutCorrectionConfig)
    with pytest.raises(ValueError, match=r"placement='middle'"):
        TRGRPOPolicyLossConfig(placement="middle")


def test_a_missing_configuration_is_named():
    old_log_prob, log_prob, advantages, mask = batch(torch.float32)
    with pytest.raises(ValueError, match="needs config"):
        core_algos.get_policy_loss_fn("tr_grpo")(old_log_prob, log_prob, advantages, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_uniform_splits_ties_as_vanilla_does(dtype):
    """Rounded products often tie, and torch gives half of the gradient to each side of a tie."""
    generator = torch.Generator().manual_seed(0)
    shape = (64, 400)
    old_log_prob = (-3 * torch.rand(shape, generator=generator)).to(dtype)
    log_prob = (old_log_prob.float() + 0.5 * torch.randn(shape, generator=generator)).clamp(max=0).to(dtype)
    advantages = torch.randn(shape, generator=generator).to(dtype)
    # Ratio exactly at the dual clip, for A < 0: 2 * 2 = 4.
    old_log_prob[0], log_prob[0], advantages[0] = 0.0, torch.log(torch.tensor(4.0)).to(dtype), -1.0
    gradients = []
    for name, policy_loss in (("vanilla", PolicyLossConfig()), ("tr_grpo", uniform())):
        x = log_prob.clone().requires_grad_()
        # Sums: a mean over this many tokens has gradients below float16's normal range, where halving rounds.
        config = actor(policy_loss, clip_ratio_c=float(torch.exp(log_prob[0, 0])))
        loss, _ = core_algos.get_policy_loss_fn(name)(
            old_log_prob, x, advantages, torch.ones(shape), "token-sum", config
        )
        loss.backward()
        gradients.append((loss.detach(), x.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])
    ratio = torch.exp(log_prob[0, 0] - old_log_prob[0, 0]).item()
    assert gradients[1][1][0, 0].item() == pytest.approx(ratio / 2, rel=1e-2)  # half, or the case is not a tie


def test_options_that_would_be_ignored_are_refused():
    from omegaconf import OmegaConf

    from verl_trgrpo.verl_plugin.config import regulation_of

    with pytest.raises(ValueError, match=r"DictConfig.*_target_"):
        regulation_of(OmegaConf.create({"loss_mode": "tr_grpo", "placement": "inside"}))
