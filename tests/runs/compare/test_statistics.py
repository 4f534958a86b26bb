"""Statistics of few runs, on data with known answers."""

import itertools
import math

import numpy
import pytest

from verl_trgrpo.runs.compare.statistics import (
    area_under_curve,
    bootstrap_interval,
    holm,
    paired_p_value,
    roughness,
)


def coverage(draw, truth, n, experiments=400):
    """Share of intervals that hold the true mean."""
    rng = numpy.random.default_rng(1)
    intervals = [bootstrap_interval(draw(rng, n).tolist(), seed=i) for i in range(experiments)]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / experiments


# 400 experiments with coverage 0.95 give 0.95 +- 0.033 with a chance of 99.8 %.
@pytest.mark.parametrize("n", [5, 10, 30])
def test_intervals_of_normal_values_hold_the_mean_as_often_as_they_say(n):
    assert coverage(lambda rng, n: rng.normal(3.0, 2.0, n), 3.0, n) == pytest.approx(0.95, abs=0.035)


def test_intervals_of_accuracies_hold_the_mean():
    """Of 256 binary scores; discrete, but as runs have them."""
    assert coverage(lambda rng, n: rng.binomial(256, 0.8, n) / 256, 0.8, 10) == pytest.approx(0.95, abs=0.035)


def test_plain_percentiles_would_be_too_narrow_for_five_values():
    """The reason for the expanded percentiles: this test fails to find a difference if they are dropped."""
    from scipy import stats

    rng = numpy.random.default_rng(2)
    samples = [rng.normal(0.0, 1.0, 5) for _ in range(300)]
    plain = [
        stats.bootstrap((s,), numpy.mean, n_resamples=999, method="percentile", rng=rng).confidence_interval
        for s in samples
    ]
    held = sum(interval.low <= 0 <= interval.high for interval in plain) / len(plain)
    assert held < 0.9
    assert sum(i.low <= 0 <= i.high for i in (bootstrap_interval(s.tolist()) for s in samples)) / 300 > held + 0.04


def test_the_interval_of_many_values_is_that_of_the_normal_distribution():
    values = numpy.random.default_rng(3).normal(1.0, 2.0, 400)
    interval = bootstrap_interval(values.tolist())
    half = 1.96 * values.std(ddof=1) / math.sqrt(400)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_higher_levels_give_wider_intervals_and_shifts_move_them():
    values = [0.1, 0.4, 0.35, 0.8, 0.2, 0.6]
    narrow, wide = bootstrap_interval(values, 0.8), bootstrap_interval(values, 0.99)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high
    moved = bootstrap_interval([10 + 2 * value for value in values], 0.8)
    assert moved == pytest.approx([10 + 2 * x for x in narrow])


def test_one_value_has_no_interval_and_equal_values_an_empty_one():
    assert bootstrap_interval([0.5]) == (0.5, None, None)
    assert bootstrap_interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_values_without_a_mean_are_refused(values):
    with pytest.raises(ValueError, match="all finite"):
        bootstrap_interval(values)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_levels_are_shares(level):
    with pytest.raises(ValueError, match="level is"):
        bootstrap_interval([1.0, 2.0], level)


def sign_flip_p_value(differences):
    """All signs by hand, two-sided."""
    observed = abs(sum(differences))
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed - 1e-12 for total in sums) / len(sums)


@pytest.mark.parametrize(
    "differences", [[0.1, 0.2, -0.05, 0.3], [0.01] * 10, [0.3, -0.2, 0.1, -0.4, 0.25, 0.0], [1.0, -1.0]]
)
def test_the_p_value_is_that_of_all_signs(differences):
    assert paired_p_value(differences) == pytest.approx(sign_flip_p_value(differences))


def test_ten_equal_signs_give_the_smallest_p_value_and_its_sign_does_not_matter():
    assert paired_p_value([0.1 * (i + 1) for i in range(10)]) == pytest.approx(2 / 2**10)
    assert paired_p_value([-0.1 * (i + 1) for i in range(10)]) == pytest.approx(2 / 2**10)


def test_without_a_difference_false_alarms_are_as_rare_as_they_should_be():
    rng = numpy.random.default_rng(4)
    alarms = sum(paired_p_value(rng.normal(0, 1, 8).tolist()) < 0.05 for _ in range(400)) / 400
    assert alarms < 0.08  # 0.05 and three standard errors


def test_nothing_to_test():
    assert paired_p_value([0.2]) is None
    assert paired_p_value([0.0, 0.0, 0.0]) == 1.0


def test_holm_multiplies_the_smallest_most_and_keeps_the_order():
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5})
    assert corrected == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_area_is_the_mean_height():
    assert area_under_curve([(0, 0.2), (10, 0.8)]) == pytest.approx(0.5)
    # A triangle of height 1 over [0, 2] and a level of 1 over [2, 8]: (1 + 6) / 8, whatever the spacing.
    assert area_under_curve([(0, 0.0), (2, 1.0), (3, 1.0), (8, 1.0)]) == pytest.approx(7 / 8)
    assert area_under_curve([(5, 0.3)]) == 0.3


def test_roughness_ignores_scale_and_measures_relative_steps():
    values = [1.0, 1.1, 1.0, 1.1, 1.0]
    assert roughness(values) == pytest.approx(math.log(1.1))
    assert roughness([7 * value for value in values]) == pytest.approx(math.log(1.1))
    assert roughness([2.0, 2.0, 2.0]) == 0.0
    assert roughness([2.0]) is None
    assert roughness([0.0, 1.0, math.e]) == pytest.approx(1.0)
