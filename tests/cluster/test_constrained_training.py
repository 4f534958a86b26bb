"""Constrained GRPO through a real training that stops and resumes."""

import pytest

from tests.cluster.training import Attempt, overrides, resumed_from
from verl_trgrpo.core import dual_ascent
from verl_trgrpo.runs.metrics import MetricsLog

LIMIT, LR = 0.25, 0.5


@pytest.fixture(scope="module")
def resumed(tiny_run, tmp_path_factory):
    """The metrics of two steps and, after a resume, of a third."""
    run_dir = tmp_path_factory.mktemp("constrained") / "run"
    constraint = [
        "algorithm=constrained_grpo",
        f"algorithm.constrained_grpo.costs=[{{name: response_length, above: 4, limit: {LIMIT}}}]",
        f"algorithm.constrained_grpo.lr={LR}",
    ]
    for steps in (2, 3):
        with Attempt(run_dir, [*overrides(tiny_run, run_dir, steps), *constraint]) as attempt:
            ended = attempt.end()
        assert ended.code == 0 and ended.tracked == steps, ended.output[-3000:]
    assert resumed_from(run_dir, 2) == 2
    return [step.metrics for step in MetricsLog(run_dir).read() if step.number]


def test_multipliers_follow_the_costs_across_a_resume(resumed):
    name, multiplier = "critic/cost/response_length", 0.0
    assert len(resumed) == 3
    for metrics in resumed:
        assert metrics[f"{name}/multiplier"] == pytest.approx(multiplier)
        assert 0.0 <= metrics[f"{name}/mean"] <= 1.0
        multiplier = dual_ascent(multiplier, metrics[f"{name}/mean"], LIMIT, LR)
    assert multiplier > 0.0, "a random model of eight tokens at most breaks this limit"
    assert resumed[0]["critic/advantages/max"] > 0.0, "the parts reached the rows that they belong to"
