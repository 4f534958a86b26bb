"""The lines about a run that has ended."""

import math

import pytest

from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.metrics import MEAN_REWARD, UNWEIGHTED_SHARE, WEIGHT, WEIGHT_STD, WEIGHTED_SHARE, Step
from verl_trgrpo.runs.run_directory import write_config
from verl_trgrpo.runs.summary import summary_lines, weight_lines, weight_range

ACCURACY = "val-core/a/acc/mean@1"


def test_figures_are_those_of_the_last_step_and_of_all_validations():
    steps = [
        Step(0, {ACCURACY: 0.1}),
        Step(2, {ACCURACY: 0.8, MEAN_REWARD: 0.5}),
        Step(3, {ACCURACY: 0.7, MEAN_REWARD: 0.6}),
    ]
    lines = summary_lines(steps)
    assert lines[0].split()[-1] == "3" and "0.100 -> 0.700 (best 0.800)" in lines[1]
    assert "0.500 -> 0.600 (single steps)" in lines[2] and len(lines) == 3


def test_a_run_that_logged_nothing_has_no_figures():
    assert len(summary_lines([])) == 1


def weighted(step: int, *values: float) -> Step:
    return Step(step, dict(zip((WEIGHT, WEIGHT_STD, UNWEIGHTED_SHARE, WEIGHTED_SHARE), values, strict=True)))


def test_a_line_says_what_the_weights_did_on_average():
    steps = [weighted(1, 1.2, 0.1, 0.6, 0.5), Step(2, {MEAN_REWARD: 1.0}), weighted(3, 1.3, 0.2, 0.4, 0.3)]
    (line,) = weight_lines([*steps, weighted(4, math.nan, 0.1, 0.9, 0.9)])
    assert "1.25 +- 0.15" in line and "50%" in line and "40%" in line


def test_weights_that_are_nearly_equal_are_called_so():
    (line,) = weight_lines([weighted(1, 1.4, 0.001, 0.01, 0.01)])
    assert "constant factor" in line and "%" not in line
    assert not weight_lines([Step(1, {MEAN_REWARD: 1.0})]), "a run without weights has no line"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["algorithm=tr_grpo"], (1.0, 1.4)),
        (["algorithm=tr_grpo", "shaping=power"], (0.1, 1.0)),
        (["algorithm=tr_grpo", "shaping=rsi"], None),  # of entropy, too
        (["algorithm=tr_grpo", "shaping=uniform"], None),
        (["algorithm=tr_grpo", "actor_rollout_ref.actor.policy_loss.shaping.name=mine"], None),  # of the user's own
        (["algorithm=grpo"], None),
    ],
)
def test_the_axis_of_weights_is_the_range_of_the_shaping(overrides, expected, tmp_path):
    write_config(compose(overrides=overrides).config, tmp_path)
    found = weight_range(tmp_path)
    assert found == (pytest.approx(expected) if expected else None)
