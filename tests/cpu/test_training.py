"""The real thing: veRL's trainer with Ray, TransferQueue, two FSDP2 ranks and vLLM, through the launcher, on the CPU."""

import io
import math
from pathlib import Path

import psutil
import pytest
import torch

from tests.faults.training import Attempt, resumed_from, steps_of
from verl_trgrpo.launch.run import run_training
from verl_trgrpo.report import MetricsLog

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

REGULATION = [
    "tr_weight_mean", "tr_weight_std", "tr_weight_at_lower", "tr_weight_at_upper", "tr_grad_share_low_prob",
    "tr_grad_share_low_prob_uniform", "tr_silenced", "tr_silenced_uniform",
]  # fmt: skip


def overrides(directory: Path, run_dir: Path, steps: int) -> list[str]:
    return [
        "algorithm=tr_grpo",
        f"data.train_files={directory / 'train.parquet'}",
        f"data.val_files={directory / 'test.parquet'}",
        "data.train_batch_size=8",
        "data.max_prompt_length=200",
        "data.max_response_length=24",
        f"actor_rollout_ref.model.path={directory / 'model'}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=3e-3",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        # Weighted KL against a reference model, so that this path runs on two ranks as well.
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.policy_loss.kl=scaled",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
        f"reward.custom_reward_function.path={Path(__file__).with_name('length_reward.py')}",
        "trainer.n_gpus_per_node=2",
        f"trainer.total_training_steps={steps}",
        "trainer.test_freq=1",
        "trainer.save_freq=2",
        f"trainer.default_local_dir={run_dir}",
    ]


def ray_processes() -> set[int]:
    return {p.pid for p in psutil.process_iter(["name"]) if p.info["name"] in ("raylet", "gcs_server")}


def actor_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint / "actor" / "model_world_size_2_rank_0.pt", weights_only=False)
    return {name: getattr(value, "_local_tensor", value) for name, value in state.items()}


def test_two_ranks_train_sync_save_and_resume_after_one_is_killed(tiny_run, tmp_path):
    before = ray_processes()
    run_dir = tmp_path / "run"
    arguments = overrides(tiny_run, run_dir, steps=3)
    attempt = Attempt(run_dir, arguments)
    metrics = run_dir / "metrics-1.jsonl"
    attempt.wait_for(lambda: metrics.exists() and 2 in steps_of(run_dir, 1), "metrics of step 2")
    attempt.kill("ray::WorkerDict")
    ended = attempt.end()
    assert ended.code == 1 and ended.tracked == 2 and ended.left == ()
    assert "error: training ended with exit code 1" in ended.output
    assert "WorkerDict" in ended.output and "died" in ended.output

    resumed = run_training(arguments, stream=io.StringIO())  # the same command
    assert resumed.checkpoint == run_dir / "global_step_3"
    assert resumed.curves is not None and resumed.curves.stat().st_size > 10_000
    assert resumed_from(run_dir, 2) == 2
    assert ray_processes() <= before, "Ray outlived its run"

    steps = MetricsLog(run_dir).read()
    assert [step.number for step in steps] == [0, 1, 2, 3]
    assert steps_of(run_dir, 2) == [2, 3]  # the first is a validation of what was loaded
    for step in steps[1:]:
        metrics = step.metrics
        assert math.isfinite(metrics["actor/loss"]) and math.isfinite(metrics["actor/pg_loss"])
        assert 0 < metrics["actor/grad_norm"] < math.inf
        assert metrics["actor/kl_loss"] >= 0
        assert all(math.isfinite(metrics[f"actor/{name}"]) for name in REGULATION)
        assert 1.0 <= metrics["actor/tr_weight_mean"] <= 1.4
        # vLLM samples with the weights the ranks have: the probabilities of both agree at every step, ...
        assert metrics["training/rollout_probs_diff_max"] < 2e-5
    # ... although the learning rate moves the weights far enough that a missed update would show,
    saved = [actor_weights(run_dir / f"global_step_{n}") for n in (2, 3)]
    assert max((saved[0][name] - saved[1][name]).abs().max().item() for name in saved[0]) > 1e-3
    # and the policy of the second mini-batch of a step is already not the one that sampled.
    assert any(abs(step.metrics["actor/ppo_kl"]) > 1e-5 for step in steps[1:])


def test_a_failing_run_says_why_and_leaves_nothing_running(tiny_run, tmp_path):
    before = ray_processes()
    bad_reward = tmp_path / "bad_reward.py"
    bad_reward.write_text("raise RuntimeError('the reward file is broken')\n")
    arguments = [*overrides(tiny_run, tmp_path / "run", 1), f"reward.custom_reward_function.path={bad_reward}"]
    with pytest.raises(RuntimeError, match=r"(?s)the reward file is broken.*train-1.log"):
        run_training(arguments, stream=io.StringIO())
    assert ray_processes() <= before
