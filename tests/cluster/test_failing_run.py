"""A training that fails, with a real driver, Ray and all."""

from tests.cluster.training import Attempt, overrides


def test_a_failing_run_says_why_and_leaves_nothing_running(tiny_run, tmp_path):
    run_dir, bad_reward = tmp_path / "run", tmp_path / "bad_reward.py"
    bad_reward.write_text("def compute_score(**_):\n    raise RuntimeError('the reward is broken')\n")
    with Attempt(
        run_dir, [*overrides(tiny_run, run_dir, 1), f"reward.custom_reward_function.path={bad_reward}"]
    ) as attempt:
        ended = attempt.end()
    assert ended.code == 1 and ended.left == ()
    _, error = ended.output.split("\nerror: ")
    assert "RuntimeError: the reward is broken" in error and f"is in {run_dir / 'train-1.log'}" in error
    assert "no checkpoint was saved" in error
