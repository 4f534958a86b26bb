"""A task of another package, with an agent loop: one step of training with LoRA, and an evaluation of what was trained."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.cluster.eval_commands import evaluate
from tests.cluster.training import Attempt, overrides
from tests.tasks.own_task import write_task
from tests.tasks.test_own_task import run


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Data files of the task, in a directory whose package every process finds."""
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "capitals")
    monkeypatch.syspath_prepend(str(write_task(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    built = run(tmp_path, "data", "build", "capitals", "--out", tmp_path / "data", "--times", 1)
    assert built.returncode == 0, built.stderr
    return tmp_path / "data"


def weights(directory):
    return load_file(directory / "model.safetensors")


def test_a_task_of_another_package_is_trained_with_lora_and_evaluated(tmp_path, tiny_run, data):
    run_dir, section = tmp_path / "run", "actor_rollout_ref.rollout"
    words = [
        *(word for word in overrides(tiny_run, run_dir, 1) if not word.startswith(("data.t", "data.v", "reward."))),
        "data.train_batch_size=4", f"data.train_files={data / 'train.parquet'}", f"data.val_files={data / 'test.parquet'}",
        f"{section}.agent.agent_loop_config_path={tmp_path / 'capitals' / 'agent_loops.yaml'}",
        f"+{section}.custom.hint.text=Think.", f"trainer.rollout_data_dir={run_dir / 'rollouts'}",
        "actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.model.lora_alpha=8", "actor_rollout_ref.actor.optim.lr=0.01",
    ]  # fmt: skip
    with Attempt(run_dir, words) as attempt:
        ended = attempt.end()
    assert ended.code == 0 and ended.tracked == 1, ended.output
    responses = [json.loads(line) for line in (run_dir / "rollouts" / "1.jsonl").read_text().splitlines()]
    assert len(responses) == 8 and all("score" in line for line in responses)
    table = evaluate(
        "--model", run_dir, "--data", data / "test.parquet", "--out", tmp_path / "out", "--agent", "text=Think."
    )
    assert "capitals" in table
    lines = [json.loads(line) for line in (tmp_path / "out" / "test.jsonl").read_text().splitlines()]
    assert len(lines) == 4 and all(line["tokens"] <= 6 for line in lines), "two turns of three tokens, without the hint"
    # What was evaluated is the base with the adapter added, under the base's names.
    merged, base = weights(run_dir / "global_step_1" / "merged_hf"), weights(tiny_run / "model")
    assert merged.keys() == base.keys()
    changed = {name for name in base if not torch.allclose(merged[name].float(), base[name].float(), atol=1e-3)}
    assert changed and all(name.endswith("proj.weight") for name in changed)
