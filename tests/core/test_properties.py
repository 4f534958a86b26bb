"""What holds for every batch, every shaping and every option: padding does not count, micro-batches pool."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.strategies import CLIPS, MODES, WEIGHTINGS, batches, evaluate
from verl_trgrpo.core import TokenStatistic
from verl_trgrpo.core.tokens import quantile

PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GARBAGE = st.sampled_from([0.0, 1e30, -1e30, math.inf, -math.inf, math.nan])


def assert_same_metrics(metrics, expected):
    assert metrics.keys() == expected.keys()
    for name, value in metrics.items():
        assert float(value) == pytest.approx(float(expected[name]), rel=1e-9, abs=1e-12), name


@PROPERTY
@given(batches(), WEIGHTINGS, CLIPS, MODES, st.integers(0, 3), st.integers(0, 3), st.data())
def test_padding_does_not_count(batch, weighting, clip, mode, more_rows, more_columns, data):
    """More padding at the end of rows and whole rows of it, with any values in it, the old padding too."""
    result, gradient = evaluate(batch, weighting, clip, mode)
    rows, length = batch.mask.shape

    def padded(tensor):
        value = False if tensor.dtype == torch.bool else data.draw(GARBAGE)
        new = torch.full((rows + more_rows, length + more_columns), value, dtype=tensor.dtype)
        new[:rows, :length] = torch.where(batch.mask, tensor, torch.tensor(value, dtype=tensor.dtype))
        return new

    wide, wide_gradient = evaluate(batch.map(padded), weighting, clip, mode)
    torch.testing.assert_close(wide.loss, result.loss, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(wide_gradient[:rows, :length], gradient, rtol=1e-12, atol=1e-14)
    assert (wide_gradient[rows:] == 0).all() and (wide_gradient[:, length:] == 0).all()
    assert (gradient[~batch.mask] == 0).all()
    assert_same_metrics(wide.metrics, result.metrics)


@PROPERTY
@given(batches(max_rows=6), WEIGHTINGS, CLIPS, st.data())
def test_micro_batches_pool_to_the_metrics_of_the_whole_batch(batch, weighting, clip, data):
    whole, _ = evaluate(batch, weighting, clip)
    rows = batch.mask.shape[0]
    owner = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)))
    chosen = [owner == part for part in owner.unique()]
    parts = [evaluate(batch.map(lambda x, keep=keep: x[keep]), weighting, clip)[0].metrics for keep in chosen]
    tokens = [int(batch.mask[keep].sum()) for keep in chosen]
    # Inside the clip, weights normalised within a micro-batch silence other tokens than those of the whole batch.
    depends = {"tr_zero_grad_frac", "pg_clipfrac", "pg_clipfrac_lower"}
    skipped = depends if weighting.placement == "inside" and weighting.normalize == "token_mean" else set()
    for name, value in whole.metrics.items():
        if name in skipped:
            continue
        if isinstance(value, TokenStatistic):
            pooled = float(TokenStatistic.merge(part[name] for part in parts))
        else:
            pooled = sum(float(part[name]) * n for part, n in zip(parts, tokens, strict=True)) / sum(tokens)
        assert pooled == pytest.approx(float(value), rel=1e-6, abs=1e-7), name


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8, 0.999, 1.0])
def test_a_quantile_is_that_of_torch(share):
    """On ragged rows with ties and with values that are NaN; NaN where a row has none."""
    generator = torch.Generator().manual_seed(0)
    for length in (1, 2, 7, 60):
        values = torch.randn(50, length, generator=generator, dtype=torch.float64).round(decimals=1)
        values[torch.rand(50, length, generator=generator) < 0.05] = torch.nan
        counted = torch.rand(50, length, generator=generator) < torch.rand(50, 1, generator=generator)
        expected = values.masked_fill(~counted, torch.nan).nanquantile(share, -1, keepdim=True)
        torch.testing.assert_close(quantile(values, counted, share), expected, equal_nan=True)
