"""iGRPO through a real training."""

import io
import json

from verl_trgrpo.runs.metrics import MetricsLog
from verl_trgrpo.runs.train import run_training
from verl_trgrpo.tiny.puzzle_dataset import build_dataset
from verl_trgrpo.tiny.puzzles import CHECKPOINT

REQUEST = "An earlier attempt:"


def test_two_steps_train_on_prompts_with_drafts_and_validate_without(tmp_path):
    build_dataset(tmp_path / "data", 0, {3: 64}, {3: 16})
    run_dir = tmp_path / "run"
    files = [
        f"data.{split}_files={tmp_path}/data/{name}.parquet" for split, name in (("train", "train"), ("val", "test"))
    ]
    sizes = ["data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4", "actor_rollout_ref.rollout.n=4",
             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16", "data.max_prompt_length=260",
             "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
             "actor_rollout_ref.rollout.max_model_len=440"]  # fmt: skip
    run_training(
        [*files, *sizes, "algorithm=tr_grpo", "agent=igrpo", f"actor_rollout_ref.model.path={CHECKPOINT}",
         "trainer.total_training_steps=2", "trainer.test_freq=2", "trainer.save_freq=-1",
         f"trainer.default_local_dir={run_dir}", f"trainer.rollout_data_dir={run_dir}/rollouts"],
        "kk_quickstart", stream=io.StringIO(),
    )  # fmt: skip
    steps = MetricsLog(run_dir).read()
    assert [step.number for step in steps] == [0, 1, 2]
    # The tiny model is uncertain behind a prompt of this form: rounding moves a probability by more than elsewhere.
    assert all(step.metrics["training/rollout_probs_diff_max"] < 2e-4 for step in steps[1:])
    for folder, has_draft in (("rollouts", True), ("validation", False)):
        rows = [json.loads(line) for line in (run_dir / folder / "2.jsonl").read_text().splitlines()]
        assert rows and all((REQUEST in row["input"]) == has_draft for row in rows)
