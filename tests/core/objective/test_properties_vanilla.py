"""Uniform weights against veRL's vanilla loss, to the last bit, for any batch."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verl.trainer.ppo import core_algos
from verl.workers.config import FSDPActorConfig

from tests.core.objective.strategies import CLIPS, MODES, batches, evaluate
from verl_trgrpo.core.objective import TokenWeighting
from verl_trgrpo.core.shaping import make_shaping

REGULATIONS = st.builds(
    TokenWeighting,
    shaping=st.sampled_from([make_shaping("uniform"), make_shaping("uniform", reverse=True)]),
    placement=st.sampled_from(["outside", "inside"]),
    prob_source=st.sampled_from(["current", "old"]),
    normalize=st.sampled_from(["none", "token_mean"]),
)
# Not subnormal: vanilla adds its gradient in two halves, which loses a bit there.
IS_WEIGHTS = st.none() | st.just(0.0) | st.floats(2.0**-20, 4.0)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batches(), REGULATIONS, CLIPS, MODES, IS_WEIGHTS, st.sampled_from([torch.float64, torch.float32, torch.bfloat16])
)
def test_uniform_is_vanilla_bit_for_bit(batch, regulation, clip, mode, correction, dtype):
    batch = batch.to(dtype)
    rows, length = batch.mask.shape
    correction = None if correction is None else torch.full((rows, length), correction, dtype=dtype)
    config = FSDPActorConfig(
        rollout_n=1, ppo_micro_batch_size_per_gpu=1, strategy="fsdp2",
        clip_ratio_low=clip.low, clip_ratio_high=clip.high, clip_ratio_c=clip.dual,
    )  # fmt: skip
    # The divisors an engine gives; without them the host divides by 0 where a row has no tokens.
    counts = {"dp_size": 2, "batch_num_tokens": 7 * rows * length, "global_batch_size": 3 * rows}
    config.global_batch_info.update(counts)
    log_prob = batch.log_prob.clone().requires_grad_()
    loss, metrics = core_algos.get_policy_loss_fn("vanilla")(
        batch.old_log_prob, log_prob, batch.advantages, batch.mask, mode, config, correction
    )
    loss.backward()
    ours, gradient = evaluate(
        batch, regulation, clip, mode, rollout_is_weights=correction, loss_scale_factor=None, **counts
    )
    assert ours.loss.dtype == loss.dtype and torch.equal(ours.loss, loss)
    assert torch.equal(gradient, log_prob.grad)
    for name in ("pg_clipfrac", "pg_clipfrac_lower"):
        assert ours.metrics[name] == pytest.approx(metrics[f"actor/{name}"], rel=1e-2), name
