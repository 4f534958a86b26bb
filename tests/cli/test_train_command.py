"""The figures that a training ends with."""

import math

from verl_trgrpo.cli.runs import figures, weight_lines
from verl_trgrpo.runs.metrics import REWARD, UNWEIGHTED_SHARE, WEIGHT, WEIGHT_STD, WEIGHTED_SHARE, Step

ACCURACY = "val-core/a/acc/mean@1"


def test_figures_are_those_of_the_last_step_and_of_all_validations():
    steps = [Step(0, {ACCURACY: 0.1}), Step(2, {ACCURACY: 0.8, REWARD: 0.5}), Step(3, {ACCURACY: 0.7, REWARD: 0.6})]
    lines = figures(steps)
    assert lines[0].split()[-1] == "3" and "0.100 -> 0.700 (best 0.800)" in lines[1]
    assert "0.550 -> 0.550" in lines[2] and len(lines) == 3


def test_a_run_that_logged_nothing_has_no_figures():
    assert len(figures([])) == 1


def weighted(step: int, *values: float) -> Step:
    return Step(step, dict(zip((WEIGHT, WEIGHT_STD, UNWEIGHTED_SHARE, WEIGHTED_SHARE), values, strict=True)))


def test_a_line_says_what_the_weights_did_on_average():
    steps = [weighted(1, 1.2, 0.1, 0.6, 0.5), Step(2, {REWARD: 1.0}), weighted(3, 1.3, 0.2, 0.4, 0.3)]
    (line,) = weight_lines([*steps, weighted(4, math.nan, 0.1, 0.9, 0.9)])
    assert "1.25 +- 0.15" in line and "50%" in line and "40%" in line


def test_weights_that_are_nearly_equal_are_called_so():
    (line,) = weight_lines([weighted(1, 1.4, 0.001, 0.01, 0.01)])
    assert "constant factor" in line and "%" not in line
    assert not weight_lines([Step(1, {REWARD: 1.0})]), "a run without weights has no line"
