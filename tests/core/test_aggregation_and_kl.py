"""Aggregation and weighted KL against plain arithmetic."""

import math

import pytest
import torch

from tests.core.reference import aggregate
from verl_trgrpo.core import aggregate_loss, weighted_kl
from verl_trgrpo.core.losses import LOSS_AGG_MODES


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_aggregation_with_an_empty_sequence(mode):
    losses = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0], [0] * 6, [1, 1, 1, 0, 0, 0]])
    expected = aggregate(losses.tolist(), mask.bool().tolist(), mode)
    for mask_type in (torch.bool, torch.int64, torch.float32):
        found = aggregate_loss(losses * mask, response_mask=mask.to(mask_type), loss_agg_mode=mode)
        assert found.item() == pytest.approx(expected, rel=1e-7)


def test_loss_scale_factor_replaces_the_length():
    given = {"response_mask": torch.ones(2, 5), "loss_agg_mode": "seq-mean-token-sum-norm"}
    assert aggregate_loss(torch.ones(2, 5), **given).item() == 1.0
    assert aggregate_loss(torch.ones(2, 5), **given, loss_scale_factor=10).item() == 0.5


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_missing_global_counts_are_an_error(mode):
    with pytest.raises(ValueError, match="dp_size=2"):
        aggregate_loss(torch.ones(2, 3), response_mask=torch.ones(2, 3), loss_agg_mode=mode, dp_size=2)


LOG_PROB, REF_LOG_PROB = [-1.0, -0.2, -3.0, -0.7], [-1.5, -0.2, -0.1, -2.0]
WEIGHTS = [1.0, 1.4, 1.1, 0.6]


def kl_by_hand(kind):
    rho = [math.exp(r - x) for x, r in zip(LOG_PROB, REF_LOG_PROB, strict=True)]
    if kind == "scaled":
        return [w * min(p - math.log(p) - 1, 10.0) for w, p in zip(WEIGHTS, rho, strict=True)]
    return [min(w * p - math.log(w * p) - 1, 10.0) for w, p in zip(WEIGHTS, rho, strict=True)]


@pytest.mark.parametrize("kind", ["scaled", "literal"])
def test_weighted_kl_follows_the_formula(kind):
    log_prob, ref_log_prob, weights = (
        torch.tensor([x], dtype=torch.float64) for x in (LOG_PROB, REF_LOG_PROB, WEIGHTS)
    )
    found = weighted_kl(log_prob, ref_log_prob=ref_log_prob, weights=weights, response_mask=torch.ones(1, 4), kind=kind)
    torch.testing.assert_close(found, torch.tensor([kl_by_hand(kind)], dtype=torch.float64))


def test_literal_pushes_away_from_the_reference_as_documented():
    log_prob = torch.full((1, 1), -0.3, dtype=torch.float64, requires_grad=True)
    given = {"ref_log_prob": log_prob.detach().clone(), "weights": torch.full((1, 1), 1.4).double()}
    given["response_mask"] = torch.ones(1, 1)
    penalty = weighted_kl(log_prob, **given, kind="literal")
    assert penalty.item() == pytest.approx(1.4 - math.log(1.4) - 1)
    penalty.sum().backward()
    assert log_prob.grad.item() == pytest.approx(1 - 1.4)  # descent raises log pi_theta
    log_prob.grad = None
    weighted_kl(log_prob, **given, kind="scaled").sum().backward()
    assert log_prob.grad.item() == 0.0


@pytest.mark.parametrize("kind", ["scaled", "literal"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_extremes_and_nan_outside_the_mask_stay_finite(kind, dtype):
    inf, nan = float("inf"), float("nan")
    log_prob = torch.tensor([[-inf, -14.0, 0.0, -0.5, nan, -0.5]], dtype=dtype, requires_grad=True)
    ref_log_prob = torch.tensor([[-inf, -0.1, -inf, -0.5, -0.5, nan]], dtype=dtype)
    weights = torch.tensor([[1.0, 1.4, 1.2, 1.0, nan, nan]], dtype=torch.float32)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0]])
    penalty = weighted_kl(log_prob, ref_log_prob=ref_log_prob, weights=weights, response_mask=mask, kind=kind)
    penalty.sum().backward()
    assert torch.isfinite(penalty).all() and (penalty[0, 4:] == 0).all()
    assert torch.isfinite(log_prob.grad).all() and (log_prob.grad[0, 4:] == 0).all()
