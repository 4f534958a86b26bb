"""The real thing: veRL's trainer with Ray, TransferQueue, two FSDP2 ranks and vLLM, through the launcher, on the CPU.

The one training is broken three times; each attempt has the remains of the one before to live with.
"""

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from tests.evaluation.commands import evaluate, greedy_by_transformers, responses
from tests.runs.faults.training import Attempt, Ended, resumed_from, steps_of, tracked_step
from verl_trgrpo.evaluation.checkpoint import find_model, merged_model
from verl_trgrpo.runs.checkpoints import damage
from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.tiny.model import load
from verl_trgrpo.tiny.puzzles import CHECKPOINT, MAX_RESPONSE_TOKENS

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

STEPS = 4
OPTIMIZER = Path("actor") / "optim_world_size_2_rank_0.pt"
REGULATION = [
    "tr_weight_mean", "tr_weight_std", "tr_weight_at_lower", "tr_weight_at_upper", "tr_grad_share_low_prob",
    "tr_grad_share_low_prob_uniform", "tr_zero_grad_frac", "tr_zero_grad_frac_uniform",
]  # fmt: skip


@dataclass(frozen=True)
class Story:
    """What became of each attempt of the run; see :func:`story`.

    Args:
        engine: ended after vLLM's engine had died between two steps.
        rank: ended after a rank had been killed in the middle of a save, of which ``half_written`` says what was wrong.
        second: a second command in the directory while the third attempt trained.
        orphan: the third attempt, whose launcher was killed.
        last: the same command, once more.
    """

    run_dir: Path
    engine: Ended
    rank: Ended
    half_written: list[str]
    second: Ended
    orphan: Ended
    last: Ended

    @property
    def checkpoint(self) -> Path:
        """The last one."""
        return self.run_dir / f"global_step_{STEPS}"


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
        "trainer.save_freq=1",
        f"trainer.default_local_dir={run_dir}",
    ]


class HeldSave:
    """A pipe in the place of a file of a checkpoint: the save waits until somebody reads it."""

    def __init__(self, run_dir: Path, step: int) -> None:
        self.checkpoint = run_dir / f"global_step_{step}"
        self.file = self.checkpoint / OPTIMIZER
        self.file.parent.mkdir(parents=True)
        os.mkfifo(self.file)

    def wait(self, attempt: Attempt) -> None:
        """Until the weights, which are saved before, are there."""
        weights = self.file.with_name(self.file.name.replace("optim", "model"))
        attempt.wait_for(lambda: weights.exists() and weights.stat().st_size, f"weights of {self.checkpoint.name}")

    def release(self) -> None:
        """Let the save go on, and put the file where the pipe was."""
        content = self.file.read_bytes()
        self.file.unlink()
        self.file.write_bytes(content)

    def cut_short(self) -> None:
        """Leave what a killed save leaves: half of a file, here of that of the checkpoint before."""
        whole = self.checkpoint.with_name(f"global_step_{tracked_step(self.checkpoint.parent)}") / OPTIMIZER
        self.file.unlink()
        self.file.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])


@pytest.fixture(scope="module")
def story(puzzles, tmp_path_factory) -> Story:
    """One training that breaks three times; each time the same command goes on."""
    run_dir = tmp_path_factory.mktemp("two_ranks") / "tr_grpo"
    arguments = overrides(puzzles, run_dir)
    with contextlib.ExitStack() as attempts:

        def start() -> Attempt:
            return attempts.enter_context(Attempt(run_dir, arguments))

        save = HeldSave(run_dir, 2)
        attempt = start()
        save.wait(attempt)
        attempt.kill("VLLM::EngineCore")
        save.release()
        engine = attempt.end()

        save = HeldSave(run_dir, 3)
        attempt = start()
        save.wait(attempt)
        attempt.kill("ray::WorkerDict")
        rank = attempt.end()
        save.cut_short()
        half_written = damage(save.checkpoint)

        attempt = start()
        driver = attempt.wait_for(lambda: attempt.oldest("verl.trainer.main_ppo"), "training process")
        attempt.process.kill()
        attempt.process.wait()
        second = start().end()
        assert driver.is_running()
        attempt.follow(driver)
        orphan = attempt.end()
        last = start().end()
    return Story(run_dir, engine, rank, half_written, second, orphan, last)


def actor_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    state = torch.load(checkpoint / "actor" / "model_world_size_2_rank_0.pt", weights_only=False)
    return {name: getattr(value, "_local_tensor", value) for name, value in state.items()}


def test_an_engine_that_died_between_two_steps_ends_the_run_instead_of_hanging_it(story):
    engine = story.engine
    assert engine.code == 1 and engine.tracked == 2 and engine.left == ()
    assert "waiting for a process that had died" in engine.output and "vLLM's engine process died" in engine.output
    assert "the same command goes on from the latest checkpoint, global_step_2" in engine.output


def test_a_rank_killed_in_a_save_is_named_and_leaves_the_checkpoint_before_in_charge(story):
    rank = story.rank
    assert resumed_from(story.run_dir, 2) == 2
    assert rank.code == 1 and rank.tracked == 2 and rank.left == ()
    assert "a worker process (WorkerDict) died" in rank.output
    assert "the same command goes on from the latest checkpoint, global_step_2" in rank.output
    assert f"{OPTIMIZER} is cut short" in story.half_written


def test_a_training_without_its_launcher_keeps_the_directory_and_finishes(story):
    run_dir = story.run_dir
    assert story.second.code == 2 and "is being trained in by process" in story.second.output
    assert story.orphan.tracked == STEPS and story.orphan.left == (), "Ray outlived its run"
    assert not (run_dir / "train-4.log").exists(), "a second training ran in the directory"
    assert resumed_from(run_dir, 3) == 2
    assert damage(run_dir / "global_step_3") == [], "the half-written checkpoint was not written over"
    assert story.last.code == 0 and "this run had already finished" in story.last.output
    assert (run_dir / "curves.png").stat().st_size > 10_000


def test_no_step_is_missing(story):
    # veRL writes a step's metrics after its checkpoint: the engine's death in between leaves step 2 out of the curves, but
    # the attempt that resumes validates what it loaded.
    assert [step.number for step in MetricsLog(story.run_dir).read()] == [*range(STEPS + 1)]
    assert steps_of(story.run_dir, 3) == [2, 3, 4]


def test_two_ranks_train_what_vllm_samples(story):
    run_dir = story.run_dir
    trained = [step for step in MetricsLog(run_dir).read() if "actor/loss" in step.metrics]
    assert {step.number for step in trained} >= {1, 3, STEPS}
    for step in trained:
        metrics = step.metrics
        assert math.isfinite(metrics["actor/loss"]) and math.isfinite(metrics["actor/pg_loss"])
        assert 0 < metrics["actor/grad_norm"] < math.inf
        assert metrics["actor/kl_loss"] >= 0
        assert all(math.isfinite(metrics[f"actor/{name}"]) for name in REGULATION)
        assert 1.0 <= metrics["actor/tr_weight_mean"] <= 1.4
        assert 0 <= metrics["critic/equal_groups_frac"] < 1 and 0 <= metrics["critic/no_answer_frac"] < 1
        # vLLM samples with the weights the ranks have: the probabilities of both agree at every step, ...
        assert metrics["training/rollout_probs_diff_max"] < 2e-5
    assert any(step.metrics["critic/no_answer_frac"] > 0 for step in trained)
    # ... although the learning rate moves the weights far enough that a missed update would show,
    saved = [actor_weights(run_dir / f"global_step_{n}") for n in (2, STEPS)]
    assert max((saved[0][name] - saved[1][name]).abs().max().item() for name in saved[0]) > 5e-4
    # and the policy of the second mini-batch of a step is already not the one that sampled.
    assert any(abs(step.metrics["actor/ppo_kl"]) > 1e-5 for step in trained)


def merged_by_hand(actor: Path) -> dict[str, torch.Tensor]:
    """The full weights: shards of both ranks put together along the first dimension."""
    shards = [torch.load(actor / f"model_world_size_2_rank_{rank}.pt", weights_only=False) for rank in (0, 1)]
    return {name: torch.cat([shard[name]._local_tensor for shard in shards]) for name in shards[0]}


def test_a_sharded_checkpoint_is_merged_once_and_answers_as_its_weights_do(puzzles, story, tmp_path):
    trained, out = story.checkpoint, tmp_path / "out"
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
