"""Metrics of token weights and of groups against plain arithmetic."""

import math
import pickle
import random
import statistics
from itertools import groupby

import pytest
import torch

from tests.core.reference import published_weight
from tests.core.test_policy_loss import batch, loss_of
from verl_trgrpo.core import TokenStatistic, TokenWeighting, group_metrics


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


def test_metrics_follow_their_definitions():
    inputs = batch(rows=8, length=16)
    result = loss_of(inputs)
    metrics = result.metrics
    expected = by_hand(inputs[1].detach(), inputs[2], inputs[3])
    assert 0 < expected["tr_weight_at_lower"] < 1 and 0 < expected["tr_weight_at_upper"] < 1
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-6), name
    assert metrics["tr_zero_grad_frac"] == pytest.approx(metrics["pg_clipfrac"] + metrics["pg_clipfrac_lower"])
    assert result.means == metrics and all(type(value) is float for value in result.means.values())


def test_weights_are_reported_before_normalisation():
    inputs = batch()
    plain, normalized = (loss_of(inputs, TokenWeighting(normalize=x)).metrics for x in ("none", "token_mean"))
    assert normalized["tr_weight_mean"] == plain["tr_weight_mean"] > 1.0


def test_equal_weights_have_no_spread():
    """Sums of squares in float32 gave 0.0015 here."""
    shape = (32, 1024)
    sure = torch.full(shape, math.log(0.9))
    parts = [loss_of((sure[:n], sure[:n], torch.ones(shape)[:n], torch.ones(shape)[:n] > 0)) for n in (32, 7)]
    merged = TokenStatistic.merge(part.metrics["tr_weight_std"] for part in parts)
    assert merged < 1e-6 and parts[0].metrics["tr_weight_mean"] == pytest.approx(1.4, rel=1e-6)


def test_statistics_travel_between_processes():
    statistic = TokenStatistic("std", (1.0, 2.0, 4.0))
    again = pickle.loads(pickle.dumps(statistic))
    assert again == statistic == pytest.approx(math.sqrt(2 / 4 - (1 / 4) ** 2))
    assert again.sums == statistic.sums


def test_statistics_of_nothing_are_zero():
    assert TokenStatistic("ratio", (0.0, 0.0)) == 0.0
    assert TokenStatistic("std", (0.0, 0.0, 0.0)) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_groups_are_those_of_counting(seed):
    chance = random.Random(seed)
    batch = [
        (
            chance.randrange(12),
            chance.choice([0.0, 1.0]),
            {"format_ok": chance.choice([0.0, 1.0]), "cut_off": chance.choice([0.0, 0.0, 1.0])},
        )
        for _ in range(40)
    ]
    groups, rewards, infos = zip(*batch, strict=True)
    found = group_metrics(groups, rewards, infos)
    by_group = [
        [reward for _, reward, _ in rows] for _, rows in groupby(sorted(batch, key=lambda x: x[0]), lambda x: x[0])
    ]
    equal = [all(reward == rows[0] for reward in rows) for rows in by_group]
    assert found["critic/equal_groups_frac"] == sum(equal) / len(equal)
    assert found["critic/no_answer_frac"] == sum(info["format_ok"] == 0 for info in infos) / 40
    assert found["critic/cut_off_frac"] == sum(info["cut_off"] == 1 for info in infos) / 40


def test_scores_without_a_verdict_are_counted():
    infos = [{"gold_unparseable": float(k == 0), "timed_out": float(k < 2)} for k in range(4)]
    found = group_metrics("aabb", [0, 0, 1, 0], infos)
    assert (found["critic/gold_unreadable_frac"], found["critic/timed_out_frac"]) == (0.25, 0.5)
    assert "critic/timed_out_frac" not in group_metrics("aabb", [0, 0, 1, 0], [*infos[:3], {}])


def test_a_reward_that_says_nothing_of_answers_gets_no_share_of_them():
    assert group_metrics("aabb", [1, 1, 0, 1], [{}] * 4) == {"critic/equal_groups_frac": 0.5}
    assert group_metrics("aabb", [math.nan, math.nan, 0, math.nan], []) == {"critic/equal_groups_frac": 1.0}
    assert group_metrics("aabb", [1, 1, 0, 1], []) == {"critic/equal_groups_frac": 0.5}
    assert group_metrics("", [], []) == {}
    partly = [{"cut_off": 1.0, "format_ok": 1.0}, {"format_ok": 1.0}]
    assert group_metrics("ab", [1, 1], partly) == {"critic/equal_groups_frac": 1.0, "critic/no_answer_frac": 0.0}


def test_parts_of_the_reward_that_all_responses_have_are_averaged():
    infos = [{"score": 1.5, "acc": 1.0, "pred": "5"}, {"score": -0.5, "acc": 0.0, "pred": "6", "penalty": 1.0}]
    found = group_metrics("ab", [1.5, -0.5], infos)
    means = {name: value for name, value in found.items() if name.startswith("critic/reward/")}
    assert means == {"critic/reward/score/mean": 0.5, "critic/reward/acc/mean": 0.5}
