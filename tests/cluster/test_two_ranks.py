"""veRL's trainer with Ray, TransferQueue, two FSDP2 ranks and vLLM on a CPU, through the launcher.

One training in two attempts. A rank is killed in the first one's save; ``make test`` ends there. The same command resumes, and
its launcher is killed.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import torch

from tests.cluster.eval_commands import evaluate, greedy_by_transformers, responses
from tests.cluster.training import REWARD, Attempt, Ended, HeldSave, doors, resumed_from, steps_of
from tests.demos.models import load
from verl_trgrpo.common.files import BusyError, lock
from verl_trgrpo.demos.puzzles import CHECKPOINT, MAX_RESPONSE_TOKENS
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.launch.train import LOCK_FILE
from verl_trgrpo.runs.checkpoints import damage
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.verl_plugin.estimator_state import ESTIMATOR_STATE

STEPS, KILLED = 3, 2
REGULATION = [
    "tr_weight_mean", "tr_weight_std", "tr_weight_at_lower", "tr_weight_at_upper", "tr_grad_share_low_prob",
    "tr_grad_share_low_prob_uniform", "tr_zero_grad_frac", "tr_zero_grad_frac_uniform",
]  # fmt: skip


@dataclass(frozen=True)
class Killed:
    """A training of which a rank was killed in a save.

    Args:
        arguments: of its command.
        ended: the attempt.
        half_written: the checkpoint of the save.
        judged: what is wrong with it.
        doors: its sockets that other machines or users could reach while it trained.
    """

    run_dir: Path
    arguments: list[str]
    ended: Ended
    half_written: Path
    judged: list[str]
    doors: list[str]


@dataclass(frozen=True)
class Resumed:
    """The same training after the same command, whose launcher was killed.

    Args:
        ended: the attempt.
        holder: process that held the directory while the training had no launcher.
        training: the training's process.
    """

    run_dir: Path
    ended: Ended
    holder: int
    training: int


def overrides(puzzles: Path, run_dir: Path) -> list[str]:
    return [
        # An estimator that remembers, of rewards that a few letters earn.
        "algorithm=ha_dw",
        "shaping=sigmoid",
        "algorithm.ha_dw.correct_from=0.1",
        # Dynamic sampling: without it, about one of eight groups of a step has equal rewards.
        "algorithm.filter_groups.enable=true",
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
        f"reward.custom_reward_function.path={REWARD}",
        "trainer.n_gpus_per_node=2",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        f"trainer.default_local_dir={run_dir}",
    ]


@pytest.fixture(scope="module")
def killed(puzzles, tmp_path_factory) -> Killed:
    """The first attempt."""
    run_dir = tmp_path_factory.mktemp("two_ranks") / "tr_grpo"
    arguments = overrides(puzzles, run_dir)
    save = HeldSave(run_dir, KILLED, ranks=2)
    with Attempt(run_dir, arguments) as attempt:
        save.wait(attempt)
        open_doors = doors([psutil.Process(attempt.process.pid), *attempt.descendants()])
        attempt.kill("ray::WorkerDict")
        ended = attempt.end()
    save.cut_short()
    return Killed(run_dir, arguments, ended, save.checkpoint, damage(save.checkpoint), open_doors)


@pytest.fixture(scope="module")
def resumed(killed) -> Resumed:
    """The second attempt, to the end of the training."""
    run_dir = killed.run_dir
    save = HeldSave(run_dir, STEPS, ranks=2)
    with Attempt(run_dir, killed.arguments) as attempt:
        save.wait(attempt)
        training = attempt.kill_launcher()
        with pytest.raises(BusyError) as busy, lock(run_dir / LOCK_FILE, "{holder}"):
            pass
        assert training.is_running()
        save.release()
        attempt.follow(training)
        ended = attempt.end()
    return Resumed(run_dir, ended, int(str(busy.value)), training.pid)


def actor_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint / "actor" / "model_world_size_2_rank_0.pt", weights_only=False)
    return {name: getattr(value, "_local_tensor", value) for name, value in state.items()}


def test_a_rank_killed_in_a_save_is_named_and_the_checkpoint_before_counts(killed):
    ended, run_dir = killed.ended, killed.run_dir
    assert ended.code == 1 and ended.tracked == 1 and ended.left == ()
    assert "a worker process (WorkerDict) died" in ended.output
    assert "the same command goes on from the latest checkpoint, global_step_1" in ended.output
    assert "actor/optim_world_size_2_rank_0.pt is cut short" in killed.judged
    assert damage(run_dir / "global_step_1") == []
    # The validation before the first step, and the step whose save was whole.
    assert [step.number for step in MetricsLog(run_dir).read().line] == [0, 1]
    [step] = [step for step in MetricsLog(run_dir).read().line if step.number == 1]
    assert 0 < step.metrics["actor/grad_norm"] < math.inf
    assert step.metrics["training/rollout_probs_diff_max"] < 2e-5


def test_no_other_machine_reaches_a_training_of_one_machine(killed):
    """Ray, TransferQueue, vLLM's server and engine, the stores and pairs of torch.distributed: whatever listens."""
    assert killed.doors == []


def test_the_same_command_resumes_and_finishes_without_its_launcher(killed, resumed):
    run_dir = resumed.run_dir
    assert resumed_from(run_dir, 2) == 1 and steps_of(run_dir, 2) == [1, 2, 3]
    assert damage(killed.half_written) == [], "the half-written checkpoint was not written over"
    assert resumed.holder == resumed.training, "a second training could have started in the directory"
    assert resumed.ended.tracked == STEPS and resumed.ended.left == (), "Ray outlived its run"
    assert damage(run_dir / f"global_step_{STEPS}") == []
    assert [step.number for step in MetricsLog(run_dir).read().line] == [*range(STEPS + 1)]


def test_what_the_estimator_remembers_survives_the_kill(resumed):
    histories = [
        json.loads((resumed.run_dir / f"global_step_{step}" / ESTIMATOR_STATE).read_text())["state"]["history"]
        for step in (1, STEPS)
    ]
    assert [len(history) for history in histories] == [1, STEPS]
    assert histories[1][:1] == histories[0] and all(0 <= accuracy <= 1 for accuracy in histories[1])


def test_two_ranks_train_what_vllm_samples(resumed):
    run_dir = resumed.run_dir
    trained = [step for step in MetricsLog(run_dir).read().line if "actor/loss" in step.metrics]
    assert {step.number for step in trained} == {*range(1, STEPS + 1)}
    for step in trained:
        metrics = step.metrics
        assert math.isfinite(metrics["actor/loss"]) and math.isfinite(metrics["actor/pg_loss"])
        assert 0 < metrics["actor/grad_norm"] < math.inf
        assert metrics["actor/kl_loss"] >= 0
        assert all(math.isfinite(metrics[f"actor/{name}"]) for name in REGULATION)
        assert 1.0 <= metrics["actor/tr_weight_mean"] <= 1.4
        assert metrics["critic/equal_groups_frac"] == 0 <= metrics["critic/no_answer_frac"] < 1
        assert metrics["critic/reward/score/mean"] == pytest.approx(metrics["critic/score/mean"])
        # vLLM samples with the weights the ranks have: the probabilities of both agree at every step, ...
        assert metrics["training/rollout_probs_diff_max"] < 2e-5
    assert any(step.metrics["critic/no_answer_frac"] > 0 for step in trained)
    # ... although the learning rate moves the weights far enough that a missed update would show,
    saved = [actor_weights(run_dir / f"global_step_{n}") for n in (1, STEPS)]
    assert max((saved[0][name] - saved[1][name]).abs().max().item() for name in saved[0]) > 5e-4
    # and the policy of the second mini-batch of a step is already not the one that sampled.
    assert any(abs(step.metrics["actor/ppo_kl"]) > 1e-5 for step in trained)


def merged_by_hand(actor: Path) -> dict[str, torch.Tensor]:
    """The full weights: shards of both ranks put together along the first dimension."""
    shards = [torch.load(actor / f"model_world_size_2_rank_{rank}.pt", weights_only=False) for rank in (0, 1)]
    return {name: torch.cat([shard[name]._local_tensor for shard in shards]) for name in shards[0]}


def test_a_sharded_checkpoint_is_merged_once_and_answers_as_its_weights_do(puzzles, resumed, tmp_path):
    trained, out = resumed.run_dir / f"global_step_{STEPS}", tmp_path / "out"
    table = evaluate(
        "--model", trained, "--data", puzzles / "test.parquet", "--limit", 64, "--preset", "kk",
        "--max-tokens", MAX_RESPONSE_TOKENS, "--out", out,
    )  # fmt: skip
    assert (out / "report.txt").read_text() in table
    assert json.loads((out / "report.json").read_text())["sources"]["kk_3ppl"]["prompts"] == 64
    merged = trained / "merged_hf"
    assert {path.name for path in trained.glob("[!.]*")} == {"actor", "data.pt", "merged_hf", ESTIMATOR_STATE}

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
