"""Estimates, intervals and tests against closed forms, enumeration and simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from verl_trgrpo.runs.statistics import (
    Estimate,
    crossed_interval,
    equivalence_p_value,
    holm,
    mean_interval,
    paired_p_value,
    pass_at_k,
)


def coverage(draw, truth, interval=mean_interval, experiments=400):
    """Share of intervals that hold the true mean."""
    rng = np.random.default_rng(1)
    found = [interval(draw(rng), seed=i) for i in range(experiments)]
    return sum(one.low <= truth <= one.high for one in found) / experiments


# 400 experiments with coverage 0.95 give 0.95 +- 0.033 with a chance of 99.8 %.
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 30])
def test_intervals_of_normal_values_hold_the_mean_as_often_as_they_say(n):
    assert coverage(lambda rng: rng.normal(3.0, 2.0, n).tolist(), 3.0) == pytest.approx(0.95, abs=0.035)


def test_few_values_have_the_t_interval():
    half = 4.302652729749464 * math.sqrt(7 / 3) / math.sqrt(3)  # tabulated quantile, standard deviation of 1, 2, 4
    assert mean_interval([1.0, 2.0, 4.0]) == Estimate(
        pytest.approx(7 / 3), pytest.approx(7 / 3 - half), pytest.approx(7 / 3 + half)
    )


def test_intervals_over_prompts_cover_the_truth_where_intervals_over_samples_do_not():
    rng = np.random.default_rng(0)
    prompts, k, trials, truth = 100, 16, 200, 0.5
    covered = covered_naively = 0
    for trial in range(trials):
        # Prompts differ: most are nearly always or nearly never solved, as with real models.
        averages = rng.binomial(k, rng.beta(0.3, 0.3, prompts)) / k
        found = mean_interval(averages.tolist(), seed=trial)
        covered += found.low <= truth <= found.high
        mean = averages.mean()
        covered_naively += abs(mean - truth) <= 1.96 * math.sqrt(mean * (1 - mean) / (prompts * k))
    assert 0.91 <= covered / trials <= 0.99
    assert covered_naively / trials < 0.6


def test_groups_count_equally_and_values_are_drawn_within_them():
    rng = np.random.default_rng(0)
    groups = [rng.integers(0, 2, size).astype(float).tolist() for size in (40, 400)]
    found = mean_interval(*groups, seed=5)
    assert found.mean == pytest.approx(np.mean([np.mean(values) for values in groups]))
    deviation = math.sqrt(sum(np.var(values) / len(values) for values in groups)) / 2
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


@pytest.mark.parametrize(
    "groups", [[[0.5]], [[0.5, 0.5, 0.5]], [[0.25] * 30], [[0.1 + 0.2, 0.3]], [[1.0, 1.0], [0.0]], [[0.0, 1.0], [1.0]]]
)
def test_no_interval_where_nothing_tells_how_far_off_the_mean_is(groups):
    assert mean_interval(*groups) == Estimate(pytest.approx(np.mean([np.mean(group) for group in groups])))


@pytest.mark.parametrize("groups", [[], [[]], [[0.1, math.nan]], [[math.inf]], [[1.0], []]])
def test_values_without_a_mean_are_refused(groups):
    with pytest.raises(ValueError, match="all finite"):
        mean_interval(*groups)


# Seeds and test prompts: noise alone, rows that differ, columns that differ, both. An interval that is too wide fails, too.
@pytest.mark.parametrize("rows", [3, 6])
@pytest.mark.parametrize(("row_spread", "column_spread"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.3), (0.1, 0.3)])
def test_crossed_intervals_hold_the_mean_in_nineteen_of_twenty_cases(rows, row_spread, column_spread):
    def draw(rng):
        noise = rng.normal(0.5, 0.45, (rows, 64))
        return noise + rng.normal(0, row_spread, (rows, 1)) + rng.normal(0, column_spread, (1, 64))

    assert 0.92 <= coverage(draw, 0.5, lambda values, seed: crossed_interval(values), 1000) <= 0.98


def test_a_crossed_interval_is_that_of_the_analysis_of_variance():
    # Rows have the means 2 and 4, columns 1, 3 and 5; residuals are -1, 0, 1 and 1, 0, -1. So R = 3 * 2, C = 2 * 4, E = 4 / 2.
    found = crossed_interval([[-1, 2, 5], [3, 4, 5]])
    assert found.mean == 3.0
    freedom = 12**2 / (6**2 / 1 + 8**2 / 2 + 2**2 / 2)
    half = stats.t.ppf(0.975, freedom) * math.sqrt((6 + 8 - 2) / 6)
    assert [found.low, found.high] == pytest.approx([3.0 - half, 3.0 + half])


def test_columns_that_differ_less_than_noise_leave_the_t_interval_of_the_rows():
    found = crossed_interval([[0, 3], [4, 1], [5, 5]])  # columns have equal means
    low, high = stats.t.interval(0.95, 2, loc=3.0, scale=stats.sem([1.5, 2.5, 5.0]))
    assert [found.mean, found.low, found.high] == pytest.approx([3.0, low, high])


def test_a_single_row_or_column_has_the_t_interval_of_its_values():
    values = np.random.default_rng(0).random((1, 40))
    low, high = stats.t.interval(0.95, 39, loc=values.mean(), scale=stats.sem(values[0]))
    for found in (crossed_interval(values), crossed_interval(values.T)):
        assert [found.mean, found.low, found.high] == pytest.approx([values.mean(), low, high])
    assert crossed_interval([[0.5]]) == crossed_interval([[0.5, 0.5]]) == Estimate(0.5)
    assert crossed_interval([[0.0, 1.0], [1.0, 0.0]]) == Estimate(0.5)


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


def test_without_a_difference_false_alarms_are_as_rare_as_they_should_be():
    rng = np.random.default_rng(4)
    alarms = sum(paired_p_value(rng.normal(0, 1, 8).tolist()) < 0.05 for _ in range(400)) / 400
    assert alarms < 0.08  # 0.05 and three standard errors


def test_equivalence_is_tested_against_both_margins():
    """At the margin the test is wrong in one of 20 cases, inside it finds equivalence, outside it does not."""
    rng = np.random.default_rng(5)

    def found(mean):
        return sum(equivalence_p_value((mean + rng.normal(0, 0.01, 8)).tolist(), 0.02) < 0.05 for _ in range(400)) / 400

    assert found(0.02) == pytest.approx(0.05, abs=0.035)
    assert found(-0.02) == pytest.approx(0.05, abs=0.035)
    assert found(0.0) > 0.9
    assert found(0.04) == 0.0


def test_equivalence_of_two_pairs_by_hand():
    # Mean 0, standard error 1, one degree of freedom: 1 - the Cauchy distribution at 1 is 1/4.
    assert equivalence_p_value([-1.0, 1.0], 1.0) == pytest.approx(0.25)
    assert equivalence_p_value([0.0, 0.0], 0.1) == 0.0
    assert equivalence_p_value([0.2, 0.2], 0.1) == 1.0


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
