"""Estimates, intervals and tests against closed forms, scipy and enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from verl_trgrpo.compare.statistics import (
    Estimate,
    equivalence_p_value,
    holm,
    mean_interval,
    paired_p_value,
    pass_at_k,
    prompts_interval,
)


@pytest.mark.parametrize(("n", "quantile"), [(3, 4.302653), (6, 2.570582), (30, 2.045230)])
def test_units_have_the_t_interval(n, quantile):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    half = quantile * math.sqrt(((values - values.mean()) ** 2).sum() / (n - 1)) / math.sqrt(n)
    assert mean_interval(values.tolist()) == Estimate(
        pytest.approx(values.mean()), pytest.approx(values.mean() - half), pytest.approx(values.mean() + half)
    )


@pytest.mark.parametrize("n", [5, 30])
def test_prompts_have_the_bootstrap_interval_with_expanded_percentiles(n):
    values = np.random.default_rng(n).normal(3.0, 2.0, n)
    tail = stats.norm.cdf(-math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1))
    means = values[np.random.default_rng(7).integers(0, n, (100_000, n))].mean(axis=1)
    found = prompts_interval(values.tolist())
    width = found.high - found.low
    assert found.mean == pytest.approx(values.mean())
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [tail, 1 - tail]), abs=0.05 * width)


def test_groups_count_equally_and_values_are_drawn_within_them():
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 2, size).astype(float).tolist() for size in (40, 400)]
    found = prompts_interval(*groups, seed=5)
    assert found.mean == pytest.approx(np.mean([np.mean(values) for values in groups]))
    deviation = math.sqrt(sum(np.var(values) / len(values) for values in groups)) / 2
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


@pytest.mark.parametrize(
    "groups", [[[0.5]], [[0.5, 0.5, 0.5]], [[0.25] * 30], [[0.1 + 0.2, 0.3]], [[1.0, 1.0], [0.0]], [[0.0, 1.0], [1.0]]]
)
def test_no_interval_where_nothing_tells_how_far_off_the_mean_is(groups):
    expected = Estimate(pytest.approx(np.mean([np.mean(group) for group in groups])))
    assert prompts_interval(*groups) == expected
    assert len(groups) > 1 or mean_interval(*groups) == expected


@pytest.mark.parametrize("groups", [[], [[]], [[0.1, math.nan]], [[math.inf]], [[1.0], []]])
def test_values_without_a_mean_are_refused(groups):
    with pytest.raises(ValueError, match="all finite"):
        prompts_interval(*groups)
    if len(groups) == 1:
        with pytest.raises(ValueError, match="all finite"):
            mean_interval(*groups)


def sign_flip_p_value(differences):
    """All signs by hand, two-sided."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed - 1e-12 for total in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [[0.1, 0.2, -0.05, 0.3], [0.01] * 10, [0.3, -0.2, 0.1, -0.4, 0.25, 0.0], [1.0, -1.0], [0.0] * 3, [-0.1, -0.4, -2]],
)
def test_the_p_value_is_that_of_all_signs(differences):
    assert paired_p_value(differences) == pytest.approx(sign_flip_p_value(differences))


def test_equivalence_is_the_worse_of_two_one_sided_t_tests():
    differences = [0.01, -0.004, 0.012, 0.002, 0.006]
    expected = max(
        stats.ttest_1samp(differences, -0.02, alternative="greater").pvalue,
        stats.ttest_1samp(differences, 0.02, alternative="less").pvalue,
    )
    assert equivalence_p_value(differences, 0.02) == pytest.approx(expected)
    assert equivalence_p_value([0.01], 0.02) is None and paired_p_value([0.01]) is None


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5})
    assert corrected == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(case):
    samples, correct, k = case
    verdicts = [1] * correct + [0] * (samples - correct)
    subsets = list(itertools.combinations(verdicts, k))
    assert pass_at_k(samples, correct, k) == pytest.approx(float(Fraction(sum(map(any, subsets)), len(subsets))))
