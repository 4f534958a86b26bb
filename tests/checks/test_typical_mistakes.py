"""Ten typical kinds of mistakes in a GRPO command: each is named before a GPU is used. README quotes how many."""

import re
from pathlib import Path

import pytest

from verl_trgrpo.cli.main import main

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# The words that make the mistake, and what the output has in one line.
MISTAKES = {
    "an unknown key": ([f"{ACTOR}.learning_rate=1e-6"], rf"{ACTOR}\.learning_rate: unknown key; did you mean {ACTOR}\.optim\.lr"),
    "a missing file": (["data.train_files=/no/train.parquet"], r"data\.train_files=/no/train\.parquet does not exist"),
    "a wrong type": ([f"{ROLLOUT}.n=five"], rf"{ROLLOUT}\.n='five': should be a valid integer"),
    "a missing column": (["data.prompt_key=question"], r"question"),
    "a mini-batch above the batch": (["data.train_batch_size=4"], r"ppo_mini_batch_size=8: more than data\.train_batch_size=4"),
    "an unknown algorithm": (["algorithm=tr_gpro"], r"algorithm=tr_gpro: does not exist; did you mean tr_grpo"),
    "tensor parallelism that does not divide the GPUs": (
        ["trainer.n_gpus_per_node=8", f"{ROLLOUT}.tensor_model_parallel_size=3"], r"parallel_size=3: .* divisor of 8"),
    "a missing model": (["actor_rollout_ref.model.path=/no/model"], r"model\.path=/no/model: is not a directory"),
    "a relative path that leads nowhere": (
        ["actor_rollout_ref.model.path=models/Qwen3-4B"], r"model\.path=models/Qwen3-4B: .*no such directory here"),
    "a key of an older veRL": ([f"{ROLLOUT}.n_agent=8"], rf"{ROLLOUT}\.n_agent: .*did you mean {ROLLOUT}\.n\?"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_typical_mistake_is_named(name, sound_run, capsys):
    words, line = MISTAKES[name]
    code = main(["validate", "trgrpo_trainer", *sound_run, *words])
    told = capsys.readouterr().out
    assert any(re.search(line, each) for each in told.splitlines()), told
    assert code == (0 if "relative" in name else 1)  # a hub may have a model of that name


def test_the_first_page_has_their_number():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"{len(MISTAKES)} of {len(MISTAKES)} typical kinds of mistakes" in readme
