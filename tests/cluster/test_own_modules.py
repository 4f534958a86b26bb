"""Commands that start vLLM or Ray find a module of the working directory, with nothing else set; see tests/cli."""

import pytest

from tests.own_modules import SHAPING, data_files, program
from verl_trgrpo.demos.puzzles import CHECKPOINT

RUN = (
    "data.train_files=train.parquet", f"actor_rollout_ref.model.path={CHECKPOINT}", "data.max_prompt_length=256",
    "data.max_response_length=8", "actor_rollout_ref.rollout.max_model_len=512", *SHAPING,
)  # fmt: skip
ONE_STEP = (
    "data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8", "trainer.total_training_steps=1",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            (
                "preview",
                "kk_quickstart",
                "data.val_files=test.parquet",
                *RUN,
                "--prompts",
                2,
                "--samples",
                2,
                "--rare-tokens",
                2,
            ),
            "my_words",
        ),
        (("eval", "--model", CHECKPOINT, "--data", "test.parquet", "--max-tokens", 4), "my_words"),
        (("train", "kk_quickstart", "data.val_files=test.parquet", *RUN, *ONE_STEP), "global_step_1"),
        (("quickstart", *SHAPING, "trainer.total_training_steps=1"), "tr_grpo"),
    ],
    ids=["preview", "eval", "train", "quickstart"],
)
def test_a_command_finds_a_module_of_the_working_directory(tmp_path, words, shown):
    done = program(data_files(tmp_path), *words)
    assert done.returncode == 0 and shown in done.stdout, done
