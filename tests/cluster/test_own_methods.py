"""The methods of docs/write_your_own.md through a real training: a shaping, an estimator and a loss of the user's own."""

import re

import pytest

from tests.cluster.training import ROOT, Attempt, overrides
from verl_trgrpo.runs.metrics import MetricsLog


@pytest.fixture(scope="module")
def trained(tiny_run, tmp_path_factory):
    """Two steps with the module of that page, which the workers find by a variable and the import path."""
    directory = tmp_path_factory.mktemp("own")
    page = (ROOT / "docs/write_your_own.md").read_text()
    (directory / "my_methods.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    run_dir = directory / "run"
    arguments = [
        *[override for override in overrides(tiny_run, run_dir, 2) if not override.startswith("algorithm=")],
        "algorithm=grpo", "algorithm.adv_estimator=median", "actor_rollout_ref.actor.policy_loss.loss_mode=quadratic",
        "trainer.save_freq=-1",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VERL_USE_EXTERNAL_MODULES", "my_methods")
        patch.setenv("PYTHONPATH", str(directory))
        with Attempt(run_dir, arguments) as attempt:
            return run_dir, attempt.end()


def test_it_trains_and_its_metrics_are_logged(trained):
    run_dir, ended = trained
    assert ended.code == 0, ended.output
    steps = {step.number: step.metrics for step in MetricsLog(run_dir).read()}
    for number in (1, 2):
        # A random model: the weights of p near 0 are near the floor.
        assert 0.3 <= steps[number]["actor/weight_mean"] < 0.35
        # Of two responses the median is the mean.
        assert steps[number]["critic/advantages/max"] == pytest.approx(-steps[number]["critic/advantages/min"])
        assert steps[number]["actor/grad_norm"] > 0
