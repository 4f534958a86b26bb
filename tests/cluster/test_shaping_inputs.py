"""Inputs of shapings that a run computes only if asked to, through a real training."""

import json
from collections import defaultdict

import pytest

from tests.cluster.training import Attempt
from verl_trgrpo.demos.puzzles import CHECKPOINT, build_dataset
from verl_trgrpo.runs.metrics import MetricsLog

ACTOR = "actor_rollout_ref.actor"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """Two steps of one update each, with a shaping of the reference policy and the success rate."""
    directory = tmp_path_factory.mktemp("inputs")
    build_dataset(directory / "data", 0, {3: 64}, {3: 16})
    run_dir = directory / "run"
    arguments = [
        "--config-name=kk_quickstart", "algorithm=tr_grpo", "shaping=custom",
        f"{ACTOR}.policy_loss.shaping.name=tests.verl_plugin.input_shapings.both",
        f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=0",
        f"data.train_files={directory}/data/train.parquet", f"data.val_files={directory}/data/test.parquet",
        f"actor_rollout_ref.model.path={CHECKPOINT}", "data.train_batch_size=4", f"{ACTOR}.ppo_mini_batch_size=4",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=8", "actor_rollout_ref.rollout.n=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16", "trainer.total_training_steps=2",
        "trainer.val_before_train=false", "trainer.test_freq=-1", f"trainer.default_local_dir={run_dir}",
        f"trainer.rollout_data_dir={run_dir}/rollouts",
    ]  # fmt: skip
    with Attempt(run_dir, arguments) as attempt:
        ended = attempt.end()
    assert ended.code == 0, ended.output
    return run_dir


def test_weights_are_those_of_the_reference_policy_and_of_each_group(run_dir):
    """In the first update the policy is the reference, and a weight is 3 + the success rate of the group."""
    metrics = {step.number: step.metrics for step in MetricsLog(run_dir).read()}
    rewards = defaultdict(list)
    for line in (run_dir / "rollouts/1.jsonl").read_text().splitlines():
        row = json.loads(line)
        rewards[row["input"]].append(row["score"])
    rates = [sum(score >= 1 for score in group) / len(group) for group in rewards.values()]
    first, second = metrics[1], metrics[2]
    assert len(rates) == 4 and 0 < sum(rates) < 4
    assert (first["actor/tr_weight_std"] > 0) == (len(set(rates)) > 1)
    # A mean over tokens, where longer responses count for more.
    assert first["actor/tr_weight_mean"] == pytest.approx(3 + sum(rates) / 4, abs=0.1)
    assert second["actor/tr_weight_mean"] < 4 and second["actor/tr_weight_std"] > 0 and second["actor/kl_loss"] > 0
