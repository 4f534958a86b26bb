"""The figures that a training ends with."""

from verl_trgrpo.cli.train import figures
from verl_trgrpo.runs.metrics import REWARD, Step

ACCURACY = "val-core/a/acc/mean@1"


def test_figures_are_those_of_the_last_step_and_of_all_validations():
    steps = [Step(0, {ACCURACY: 0.1}), Step(2, {ACCURACY: 0.8, REWARD: 0.5}), Step(3, {ACCURACY: 0.7, REWARD: 0.6})]
    lines = figures(steps)
    assert [line.split()[-1] for line in lines[:1]] == ["3"]
    assert "0.100 -> 0.700 (best 0.800)" in lines[1]
    assert "0.550 -> 0.550" in lines[2] and len(lines) == 3


def test_a_run_that_logged_nothing_has_no_figures():
    assert len(figures([])) == 1
