"""Which models are accepted, and how others are refused; merging is tested with real training."""

import json
import os

import pytest

from verl_trgrpo.evaluation.checkpoint import config_of_run, find_model, fingerprint, merged_model, model_label


@pytest.fixture
def checkpoint(tmp_path):
    """The layout of a sharded veRL checkpoint, without weights."""
    actor = tmp_path / "run" / "global_step_5" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text("{}")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    (actor / "model_world_size_1_rank_0.pt").write_bytes(b"broken")
    return actor.parent


def test_a_checkpoint_is_found_by_its_step_or_its_actor(checkpoint):
    assert find_model(str(checkpoint)) == find_model(str(checkpoint / "actor")) == str(checkpoint / "actor")


def test_of_a_run_directory_the_latest_checkpoint_is_taken_with_its_configuration(checkpoint):
    run = checkpoint.parent
    (run / "latest_checkpointed_iteration.txt").write_text("5")
    (run / "config.yaml").write_text("data: {apply_chat_template_kwargs: {enable_thinking: false}}\n")
    assert find_model(str(run)) == str(checkpoint / "actor")
    assert model_label(str(run)) == model_label(str(checkpoint)) == "run-global_step_5"
    for name in (run, checkpoint, checkpoint / "actor"):
        assert config_of_run(str(name)).data.apply_chat_template_kwargs.enable_thinking is False


def test_weights_that_the_checkpoint_holds_in_hugging_face_form_are_used(checkpoint):
    (checkpoint / "actor" / "huggingface" / "model.safetensors").write_bytes(b"")
    assert find_model(str(checkpoint)) == str(checkpoint / "actor" / "huggingface")


def test_anything_else_is_refused_with_a_hint(checkpoint, tmp_path):
    with pytest.raises(ValueError, match="neither a run directory"):
        find_model(str(tmp_path))
    with pytest.raises(ValueError, match=r"model=.*nowhere"):
        find_model(str(tmp_path / "nowhere"))
    (checkpoint / "actor" / "lora_train_meta.json").write_text("{}")
    with pytest.raises(ValueError, match="LoRA"):
        find_model(str(checkpoint))


def test_the_fingerprint_changes_with_the_weights_and_not_with_other_files(checkpoint):
    place = find_model(str(checkpoint))
    before = fingerprint(place)
    (checkpoint / "actor" / "optim_world_size_1_rank_0.pt").write_bytes(b"optimizer")
    assert fingerprint(place) == before
    os.utime(checkpoint / "actor" / "model_world_size_1_rank_0.pt", ns=(0, 10**18))
    assert fingerprint(place) != before
    assert fingerprint("hub/name") == {"name": "hub/name"}


def test_checkpoints_of_different_runs_and_steps_have_different_labels():
    steps = [f"runs/{run}/global_step_{step}" for run in ("grpo", "tr_grpo") for step in (10, 20)]
    assert len({model_label(name) for path in steps for name in (path, f"{path}/actor")}) == 4
    assert model_label("Qwen/Qwen2.5-3B") == "Qwen-Qwen2.5-3B"


def test_a_merge_that_fails_says_why_and_leaves_nothing(checkpoint, tmp_path, fake_driver):
    """In place of veRL's merger, which imports for 20 seconds, one that fails after its first file."""
    fake_driver('for target in "$@"; do :; done; mkdir -p $target; touch $target/half; echo bad shard >&2; exit 3')
    with pytest.raises(RuntimeError, match=r"veRL's model merger failed .*exit code 3.*bad shard"):
        merged_model(find_model(str(checkpoint)), tmp_path / "out")
    assert not [path for path in checkpoint.rglob("*merged_hf*") if path.suffix != ".lock"]
