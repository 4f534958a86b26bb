"""Overrides of a sound run, of which tests break one thing at a time."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_trgrpo.demos.puzzles import CHECKPOINT


@pytest.fixture
def sound_run(tmp_path) -> list[str]:
    """A tiny model and 50 rows each for training and validation; the run directory is ``tmp_path / "run"``."""
    train, test = tmp_path / "train.parquet", tmp_path / "test.parquet"
    rows = {
        "prompt": [{"role": "user", "content": "x"}],
        "data_source": "kk_3ppl",
        "reward_model": {"ground_truth": "x"},
    }
    for path in (train, test):
        pq.write_table(pa.table({name: [value] * 50 for name, value in rows.items()}), path)
    return [
        f"data.train_files={train}", f"data.val_files={test}", "data.train_batch_size=8", "data.max_prompt_length=64",
        "data.max_response_length=24", "data.filter_overlong_prompts=true", f"actor_rollout_ref.model.path={CHECKPOINT}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1", f"trainer.default_local_dir={tmp_path / 'run'}",
        # Of a machine that has them, wherever the tests run.
        "++ray_kwargs.ray_init.num_gpus=${trainer.n_gpus_per_node}",
    ]  # fmt: skip
