"""The reported figures against plain arithmetic, and their pooling over micro-batches."""

import math
import pickle
import statistics

import pytest

from tests.core.reference import published_weight
from tests.core.test_policy_loss import CLIP, batch
from verl_trgrpo.core import TokenStatistic, TokenWeighting, compute_policy_loss


def by_hand(log_prob, advantages, mask):
    tokens = [
        (math.exp(x), a)
        for xs, advs, keep in zip(log_prob.tolist(), advantages.tolist(), mask.tolist(), strict=True)
        for x, a, m in zip(xs, advs, keep, strict=True)
        if m
    ]
    weights = [published_weight(p) for p, _ in tokens]

    def share(weighted):
        proxies = [abs(a) * (w if weighted else 1.0) * (1 - p) for (p, a), w in zip(tokens, weights, strict=True)]
        return sum(x for x, (p, _) in zip(proxies, tokens, strict=True) if p < 0.25) / sum(proxies)

    return {
        "tr_weight_mean": statistics.fmean(weights),
        "tr_weight_std": statistics.pstdev(weights),
        "tr_weight_at_lower": sum(w == 1.0 for w in weights) / len(weights),
        "tr_weight_at_upper": sum(w == 1.4 for w in weights) / len(weights),
        "tr_grad_share_low_prob": share(weighted=True),
        "tr_grad_share_low_prob_uniform": share(weighted=False),
    }


def metrics_of(inputs, weighting=None):
    return compute_policy_loss(*inputs, weighting or TokenWeighting(), CLIP).metrics


def test_figures_follow_their_definitions():
    inputs = batch(rows=8, length=16)
    metrics = metrics_of(inputs)
    expected = by_hand(inputs[1].detach(), inputs[2], inputs[3])
    assert 0 < expected["tr_weight_at_lower"] < 1 and 0 < expected["tr_weight_at_upper"] < 1
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-6), name
    assert metrics["tr_zero_grad_frac"] == pytest.approx(metrics["pg_clipfrac"] + metrics["pg_clipfrac_lower"])


def test_weights_are_reported_before_normalisation():
    inputs = batch()
    plain, normalized = metrics_of(inputs), metrics_of(inputs, TokenWeighting(normalize="token_mean"))
    assert normalized["tr_weight_mean"] == plain["tr_weight_mean"] > 1.0


def test_statistics_travel_between_processes():
    statistic = TokenStatistic("std", (1.0, 2.0, 4.0))
    again = pickle.loads(pickle.dumps(statistic))
    assert again == statistic == pytest.approx(math.sqrt(2 / 4 - (1 / 4) ** 2))
    assert again.sums == statistic.sums


def test_statistics_of_nothing_are_zero():
    assert TokenStatistic("ratio", (0.0, 0.0)) == 0.0
    assert TokenStatistic("std", (0.0, 0.0, 0.0)) == 0.0
