"""A training that fails, from the launcher's side, with a real driver, Ray and all."""

import io

import pytest

from tests.faults.training import overrides, ray_processes
from verl_trgrpo.launch.run import TrainingFailedError, run_training


@pytest.mark.slow
@pytest.mark.cluster
def test_a_failing_run_says_why_and_leaves_nothing_running(tiny_run, tmp_path):
    run_dir, bad_reward = tmp_path / "run", tmp_path / "bad_reward.py"
    bad_reward.write_text("def compute_score(**_):\n    raise RuntimeError('the reward is broken')\n")
    arguments = [*overrides(tiny_run, run_dir, 1), f"reward.custom_reward_function.path={bad_reward}"]
    with pytest.raises(TrainingFailedError, match=r"(?s)the reward is broken.*train-1.log"):
        run_training(arguments, stream=io.StringIO())
    assert ray_processes(run_dir) == []
