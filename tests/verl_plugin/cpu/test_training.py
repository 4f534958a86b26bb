"""The real thing: veRL's trainer with Ray, TransferQueue, two FSDP2 ranks and vLLM, through the launcher, on the CPU."""

import io
import math
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from tests.evaluation.commands import evaluate, greedy_by_transformers, responses
from tests.runs.faults.training import Attempt, Ended, resumed_from, steps_of
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.train import Outcome, run_training
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.puzzles import CHECKPOINT, MAX_RESPONSE_TOKENS

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

STEPS = 4
REGULATION = [
    "tr_weight_mean", "tr_weight_std", "tr_weight_at_lower", "tr_weight_at_upper", "tr_grad_share_low_prob",
    "tr_grad_share_low_prob_uniform", "tr_zero_grad_frac", "tr_zero_grad_frac_uniform",
]  # fmt: skip


@dataclass(frozen=True)
class TwoRanks:
    """Both attempts of the run.

    Args:
        killed: the first, whose rank was killed after the checkpoint of step 2.
        resumed: the second, which went to the end.
        outcome: what a third only shows.
    """

    killed: Ended
    resumed: Ended
    outcome: Outcome


def overrides(puzzles: Path, run_dir: Path) -> list[str]:
    return [
        "algorithm=tr_grpo",
        f"data.train_files={puzzles / 'train.parquet'}",
        f"data.val_files={puzzles / 'test.parquet'}",
        "data.train_batch_size=8",
        "data.val_max_samples=8",
        "data.max_prompt_length=64",
        "data.max_response_length=24",
        f"actor_rollout_ref.model.path={CHECKPOINT}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        # Weighted KL against a reference model, so that this path runs on two ranks as well.
        "actor_rollout_ref.actor.use_kl_loss=true",
        "actor_rollout_ref.actor.policy_loss.kl=scaled",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
        f"reward.custom_reward_function.path={Path(__file__).with_name('length_reward.py')}",
        "trainer.n_gpus_per_node=2",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.save_freq=2",
        f"trainer.default_local_dir={run_dir}",
    ]


@pytest.fixture(scope="module")
def two_ranks(puzzles, tmp_path_factory) -> TwoRanks:
    """Train until the checkpoint of step 2, kill a rank (step 3 is not saved), and start the same command again."""
    run_dir = tmp_path_factory.mktemp("two_ranks") / "tr_grpo"
    arguments = overrides(puzzles, run_dir)
    metrics = run_dir / "metrics-1.jsonl"
    with Attempt(run_dir, arguments) as attempt:
        attempt.wait_for(lambda: metrics.exists() and 2 in steps_of(run_dir, 1), "metrics of step 2")
        attempt.kill("ray::WorkerDict")
        killed = attempt.end()
    with Attempt(run_dir, arguments) as attempt:
        resumed = attempt.end()
    assert resumed.code == 0, resumed.output[-3000:]
    return TwoRanks(killed, resumed, run_training(arguments, stream=io.StringIO()))


def actor_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint / "actor" / "model_world_size_2_rank_0.pt", weights_only=False)
    return {name: getattr(value, "_local_tensor", value) for name, value in state.items()}


def test_a_killed_rank_ends_the_run_with_its_reason(two_ranks):
    killed = two_ranks.killed
    assert killed.code == 1 and killed.tracked == 2 and killed.left == ()
    assert "error: training ended with exit code 1" in killed.output
    assert "a worker process (WorkerDict) died" in killed.output
    assert "the same command goes on from the latest checkpoint, global_step_2" in killed.output


def test_the_same_command_goes_on_to_the_end(two_ranks):
    outcome, run_dir = two_ranks.outcome, two_ranks.outcome.run_dir
    assert outcome.checkpoint == run_dir / f"global_step_{STEPS}" and outcome.log_file is None
    assert (run_dir / "curves.png").stat().st_size > 10_000
    assert resumed_from(run_dir, 2) == 2
    assert two_ranks.resumed.left == (), "Ray outlived its run"
    assert [step.number for step in MetricsLog(run_dir).read()] == [*range(STEPS + 1)]
    assert steps_of(run_dir, 2) == [2, 3, 4]  # the first is a validation of what was loaded


def test_two_ranks_train_what_vllm_samples(two_ranks):
    run_dir = two_ranks.outcome.run_dir
    steps = MetricsLog(run_dir).read()
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
    saved = [actor_weights(run_dir / f"global_step_{n}") for n in (2, STEPS)]
    assert max((saved[0][name] - saved[1][name]).abs().max().item() for name in saved[0]) > 5e-4
    # and the policy of the second mini-batch of a step is already not the one that sampled.
    assert any(abs(step.metrics["actor/ppo_kl"]) > 1e-5 for step in steps[1:])


def merged_by_hand(actor: Path) -> dict[str, torch.Tensor]:
    """The full weights: shards of both ranks put together along the first dimension."""
    shards = [torch.load(actor / f"model_world_size_2_rank_{rank}.pt", weights_only=False) for rank in (0, 1)]
    return {name: torch.cat([shard[name]._local_tensor for shard in shards]) for name in shards[0]}


def test_a_sharded_checkpoint_is_merged_once_and_answers_as_its_weights_do(puzzles, two_ranks, tmp_path):
    trained, out = two_ranks.outcome.checkpoint, tmp_path / "out"
    evaluate(
        "--model", trained, "--data", puzzles / "test.parquet", "--limit", 64, "--max-tokens", MAX_RESPONSE_TOKENS,
        "--out", out,
    )  # fmt: skip
    merged = trained / "merged_hf"
    assert {path.name for path in trained.glob("[!.]*")} == {"actor", "data.pt", "merged_hf"}

    tokenizer, model = load(CHECKPOINT)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    # The merger writes bfloat16, so that is what the weights amount to.
    weights = {name: value.bfloat16().float() for name, value in merged_by_hand(trained / "actor").items()}
    model.load_state_dict(weights, strict=False)
    moved = max((model.state_dict()[name] - start[name]).abs().max().item() for name in start)
    assert moved > 1e-4, "the step must have changed the weights, or any checkpoint would do"

    data = pq.read_table(puzzles / "test.parquet").to_pylist()
    by_vllm = {row: text for (row, _), text in responses(out / "test.jsonl").items()}
    assert [*by_vllm.values()] != greedy_by_transformers(*load(CHECKPOINT), [data[i] for i in by_vllm])
    assert [*by_vllm.values()] == greedy_by_transformers(tokenizer, model, [data[i] for i in by_vllm])

    before = (merged / "merged_from.json").stat().st_mtime_ns
    assert merged_model(find_model(str(trained)), out) == str(merged)
    assert (merged / "merged_from.json").stat().st_mtime_ns == before
