"""iGRPO through a real training, whose reward fails in the end."""

import json

import pytest

from tests.cluster.training import REWARD, Attempt, HeldSave
from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset
from verl_trgrpo.runs.metrics import MetricsLog

REQUEST = "An earlier attempt:"


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    """Two steps, a third whose reward raises, and how that ended."""
    directory = tmp_path_factory.mktemp("igrpo")
    build_dataset(directory / "data", 0, {3: 64}, {3: 16})
    run_dir, broken = directory / "run", directory / "broken"
    arguments = [
        "--config-name=kk_quickstart", "algorithm=tr_grpo", "agent=igrpo",
        "+actor_rollout_ref.rollout.custom.igrpo.system=''",  # this vocabulary has it in 300 tokens
        f"data.train_files={directory}/data/train.parquet", f"data.val_files={directory}/data/test.parquet",
        f"actor_rollout_ref.model.path={CHECKPOINT}", "data.train_batch_size=4", "data.max_prompt_length=260",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.rollout.max_model_len=440", f"reward.custom_reward_function.path={REWARD}",
        f"+reward.custom_reward_function.reward_kwargs.broken_by={broken}", "trainer.total_training_steps=3",
        "trainer.test_freq=-1", "trainer.save_freq=2", f"trainer.default_local_dir={run_dir}",
        f"trainer.rollout_data_dir={run_dir}/rollouts",
    ]  # fmt: skip
    save = HeldSave(run_dir, 2)
    with Attempt(run_dir, arguments) as attempt:
        save.wait(attempt)
        broken.touch()
        save.release()
        return run_dir, attempt.end()


def test_two_steps_train_on_prompts_with_drafts_and_validation_has_none(failed):
    run_dir, _ = failed
    steps = MetricsLog(run_dir).read()
    assert [step.number for step in steps] == [0, 1, 2]
    # The tiny model is uncertain behind a prompt of this form: rounding moves a probability by more than elsewhere.
    assert all(step.metrics["training/rollout_probs_diff_max"] < 2e-4 for step in steps[1:])
    for file, has_draft in (("rollouts/2.jsonl", True), ("validation/0.jsonl", False)):
        rows = [json.loads(line) for line in (run_dir / file).read_text().splitlines()]
        assert rows and all((REQUEST in row["input"]) == has_draft for row in rows)


def test_a_failing_run_says_why_and_leaves_nothing_running(failed):
    run_dir, ended = failed
    assert ended.code == 1 and ended.tracked == 2 and ended.left == ()
    _, error = ended.output.split("\nerror: ")
    assert "RuntimeError: the reward is broken" in error and str(run_dir / "train-1.log") in error
