"""Estimates and intervals against closed forms, enumeration and simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_trgrpo.evaluation.statistics import bootstrap_means, estimate, estimate_macro, pass_at_k


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case):
    samples, correct, k = case
    verdicts = [1] * correct + [0] * (samples - correct)
    subsets = list(itertools.combinations(verdicts, k))
    assert pass_at_k(samples, correct, k) == pytest.approx(float(Fraction(sum(map(any, subsets)), len(subsets))))


def test_pass_at_k_is_unbiased():
    # Over all numbers of right samples, weighted binomially, the estimate averages to 1 - (1 - p)^k.
    samples, k, p = 16, 4, 0.3
    weights = [math.comb(samples, c) * p**c * (1 - p) ** (samples - c) for c in range(samples + 1)]
    mean = sum(weight * pass_at_k(samples, c, k) for c, weight in enumerate(weights))
    assert mean == pytest.approx(1 - (1 - p) ** k)


def test_pass_at_1_is_the_average():
    assert [pass_at_k(16, c, 1) for c in range(17)] == pytest.approx([c / 16 for c in range(17)])


@pytest.mark.parametrize("case", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_what_is_not_defined(case):
    with pytest.raises(ValueError, match="is not defined"):
        pass_at_k(*case)


def test_bootstrap_has_the_spread_of_the_closed_form():
    # The mean of n draws with replacement has the variance of the values over n.
    values = np.random.default_rng(0).integers(0, 17, 200) / 16
    means = bootstrap_means(values, seed=1, resamples=200_000)
    assert means.mean() == pytest.approx(values.mean(), abs=1e-3)
    assert means.std() == pytest.approx(values.std() / math.sqrt(len(values)), rel=0.01)


def test_interval_equals_that_of_drawing_prompts_one_by_one():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, 40) / 4
    drawn = rng.choice(values, size=(100_000, len(values))).mean(axis=1)
    found = estimate(list(values), seed=3)
    assert found.value == pytest.approx(values.mean())
    # Means of 40 quarters lie 1/160 apart.
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1.01 / 160)


def test_intervals_over_prompts_cover_the_truth_where_intervals_over_samples_do_not():
    rng = np.random.default_rng(0)
    prompts, k, trials, truth = 100, 16, 400, 0.5
    covered = covered_naively = 0
    for trial in range(trials):
        # Prompts differ: most are nearly always or nearly never solved, as with real models.
        chances = rng.beta(0.3, 0.3, prompts)
        averages = rng.binomial(k, chances) / k
        found = estimate(list(averages), seed=trial)
        covered += found.low <= truth <= found.high
        mean = averages.mean()
        naive = 1.96 * math.sqrt(mean * (1 - mean) / (prompts * k))
        covered_naively += abs(mean - truth) <= naive
    assert 0.92 <= covered / trials <= 0.98
    assert covered_naively / trials < 0.6


def test_same_seed_same_interval_and_another_seed_another():
    values = list(np.random.default_rng(0).random(50))
    assert estimate(values, 1) == estimate(values, 1)
    assert estimate(values, 1) != estimate(values, 2)
    assert estimate(values[::-1], 1) == estimate(values, 1), "the order of prompts must not matter"


def test_no_interval_where_all_prompts_agree():
    for values in ([0.0] * 30, [1.0], [0.25, 0.25]):
        found = estimate(values, 0)
        assert (found.value, found.low, found.high) == (values[0], None, None)
    assert estimate([], 0).value is None


def test_macro_mean_weights_groups_equally_and_draws_within_them():
    rng = np.random.default_rng(0)
    groups = [list(rng.integers(0, 2, size).astype(float)) for size in (40, 400)]
    found = estimate_macro(groups, seed=5)
    means = [np.mean(values) for values in groups]
    assert found.value == pytest.approx(np.mean(means))
    deviation = math.sqrt(sum(np.var(values) / len(values) for values in groups)) / 2
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.05)
    # Equal groups vary independently: half the variance of one group alone.
    twice, once = estimate_macro([groups[1], groups[1]], 5), estimate(groups[1], 5)
    assert (twice.high - twice.low) / (once.high - once.low) == pytest.approx(math.sqrt(0.5), rel=0.07)
