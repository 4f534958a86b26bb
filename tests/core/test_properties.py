"""What holds for every batch, every shaping and every option: invariances and laws of scale."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.strategies import CLIPS, MODES, WEIGHTINGS, Batch, batches, evaluate
from verl_trgrpo.core import Tokens, TokenStatistic, TokenWeighting, token_weights

PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
GARBAGE = st.sampled_from([0.0, 1e30, -1e30, math.inf, -math.inf, math.nan])


def weights_of(batch, weighting):
    return token_weights(Tokens.of_batch(batch.old_log_prob, batch.log_prob, batch.advantages, batch.mask), weighting)


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
@given(batches(), WEIGHTINGS, CLIPS, MODES, st.data())
def test_the_order_of_rows_and_tokens_does_not_matter(batch, weighting, clip, mode, data):
    rows = data.draw(st.permutations(range(batch.mask.shape[0])))
    columns = data.draw(st.permutations(range(batch.mask.shape[1])))
    result, gradient = evaluate(batch, weighting, clip, mode)
    shuffled, shuffled_gradient = evaluate(batch.map(lambda x: x[rows][:, columns]), weighting, clip, mode)
    torch.testing.assert_close(shuffled.loss, result.loss, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(shuffled_gradient, gradient[rows][:, columns], rtol=1e-12, atol=1e-14)
    assert_same_metrics(shuffled.metrics, result.metrics)


@PROPERTY
@given(batches(), CLIPS, st.sampled_from(["current", "old"]))
def test_on_policy_the_gradient_is_the_weighted_policy_gradient(batch, clip, source):
    """At pi_theta = pi_old: loss -mean(w A), gradient -w A / N."""
    batch = Batch(batch.old_log_prob, batch.old_log_prob, batch.advantages, batch.mask)
    result, gradient = evaluate(batch, TokenWeighting(prob_source=source), clip)
    sigmoid = 1 / (1 + torch.exp(-9.0 * torch.exp(batch.old_log_prob)))
    expected = torch.where(batch.mask, -(2 * (sigmoid - 0.25)).clamp(1.0, 1.4) * batch.advantages, 0.0)
    expected /= batch.mask.sum()
    torch.testing.assert_close(result.loss, expected.sum(), rtol=1e-9, atol=1e-12)
    if clip.low > 1e-6 and clip.high > 1e-6:  # with no room at all, the ratio 1 sits on the edge of the clip
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


@PROPERTY
@given(batches(), WEIGHTINGS.filter(lambda r: r.normalize == "token_mean" and r.shaping.bounds != (1.0, 1.0)))
def test_token_mean_gives_mean_weight_one_and_keeps_the_shape(batch, weighting):
    weights = weights_of(batch, weighting)[batch.mask]
    plain = TokenWeighting(shaping=weighting.shaping, prob_source=weighting.prob_source)
    raw = weights_of(batch, plain)[batch.mask]
    assert weights.mean().item() == pytest.approx(1.0, rel=1e-9)
    torch.testing.assert_close(weights * raw.mean(), raw, rtol=1e-9, atol=1e-12)


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


SUMS = st.floats(-1e3, 1e3)
RATIOS = st.builds(lambda *sums: TokenStatistic("ratio", sums), SUMS, st.floats(0.5, 1e3))


@PROPERTY
@given(st.lists(RATIOS, min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(1, 6))
def test_pooling_does_not_depend_on_order_or_on_steps_in_between(parts, random, size):
    at_once = TokenStatistic.merge(parts)
    assert at_once == pytest.approx(
        sum(part.sums[0] for part in parts) / sum(part.sums[1] for part in parts), rel=1e-9, abs=1e-9
    )
    shuffled = random.sample(parts, len(parts))
    groups = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    assert TokenStatistic.merge(map(TokenStatistic.merge, groups)) == pytest.approx(at_once, rel=1e-9, abs=1e-9)
