"""Which models are accepted, and how others are refused; a checkpoint as a Hugging Face directory with a model card."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.demos.models import load
from verl_trgrpo.cli.main import main
from verl_trgrpo.common.files import write_json
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.evaluation.checkpoint import (
    config_of_run,
    find_checkpoint,
    find_model,
    fingerprint,
    merged_model,
    model_card,
    model_label,
)

CONFIG = {
    "actor_rollout_ref": {
        "model": {"path": "org/tiny"},
        "actor": {"policy_loss": {"loss_mode": "tr_grpo", "shaping": {"alpha": 2.0}}},
    },
    "data": {"train_files": "/home/me/data/train.parquet", "val_files": "/home/me/data/test.parquet"},
}


def make_run(directory):
    """Write what the single-file trainer, or veRL with hf_model among its contents, leaves behind: two checkpoints."""
    model, tokenizer = load(CHECKPOINT)
    for step in (5, 10):
        model.save_pretrained(directory / f"global_step_{step}")
        tokenizer.save_pretrained(directory / f"global_step_{step}")
    (directory / "global_step_10/optimizer.pt").write_bytes(b"not for others")
    OmegaConf.save(OmegaConf.create(CONFIG), directory / "config.yaml")
    record = {"algorithm": "tr_grpo", "versions": {"verl": "0.9.1"}, "commit": "abc"}
    (directory / "run.json").write_text(json.dumps(record))
    accuracies = {0: 0.25, 10: 0.75}
    steps = [{"step": step, "data": {"val-core/kk/acc/mean@1": value}} for step, value in accuracies.items()]
    (directory / "metrics-1.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return directory


@pytest.fixture
def run_dir(tmp_path):
    return make_run(tmp_path / "run")


def card(run_dir, step=10):
    _, head, text = model_card(run_dir / f"global_step_{step}").split("---\n", 2)
    return yaml.safe_load(head), text


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run and its export."""
    directory = tmp_path_factory.mktemp("exported")
    run_dir = make_run(directory / "run")
    assert main(["export", str(run_dir), "--out", str(directory / "out")]) == 0
    return run_dir, directory / "out"


def test_the_latest_checkpoint_is_exported_with_its_card(exported):
    run_dir, out = exported
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size
    assert AutoTokenizer.from_pretrained(out).chat_template
    assert not (out / "optimizer.pt").exists()
    assert (out / "README.md").read_text() == model_card(run_dir / "global_step_10")


def test_the_card_has_the_run_s_record(exported):
    run_dir, _ = exported
    head, text = card(run_dir)
    assert head["base_model"] == "org/tiny" and "verl-trgrpo" in head["tags"]
    for fact in ("base model: org/tiny", "algorithm: tr_grpo", "training data: data/train.parquet", "0.750 (step 10)"):
        assert fact in text
    assert "made with: verl 0.9.1, commit abc" in text and "/home/me" not in text


def test_an_earlier_checkpoint_has_its_own_figures(exported):
    run_dir, _ = exported
    assert find_checkpoint(run_dir / "global_step_5") == run_dir / "global_step_5"
    text = card(run_dir, 5)[1]
    assert "step 5" in text and "0.250" in text and "0.750" not in text


@pytest.fixture
def small_run(tmp_path):
    """A run without weights."""
    (tmp_path / "run/global_step_10").mkdir(parents=True)
    return tmp_path / "run"


def name_model(run_dir, model):
    OmegaConf.save(OmegaConf.create({"actor_rollout_ref": {"model": {"path": model}}}), run_dir / "config.yaml")


@pytest.mark.parametrize("model", ["runs/small_lm/word_problems/model", "./org/tiny", "~/tiny", "/tiny", "a/b c"])
def test_a_path_is_not_given_as_a_model_of_the_hub(small_run, model):
    name_model(small_run, model)
    head, text = card(small_run)
    assert "base_model" not in head
    assert "runs/small_lm" not in text


@pytest.mark.parametrize("place", [".", "elsewhere"])
def test_nor_is_a_directory_whose_path_is_like_a_name(small_run, tmp_path, monkeypatch, place):
    """A run names its base model relative to the directory where it was started, which is often above its own."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    name_model(small_run, "org/tiny")
    assert card(small_run)[0]["base_model"] == "org/tiny"
    (tmp_path / place / "org/tiny").mkdir(parents=True)
    assert "base_model" not in card(small_run)[0]


@pytest.mark.parametrize(("inside", "step"), [("run", 10), ("run/global_step_5", 5)])
def test_the_current_directory_has_its_own_name(small_run, tmp_path, monkeypatch, inside, step):
    (small_run / "global_step_5").mkdir()
    monkeypatch.chdir(tmp_path / inside)
    checkpoint = find_checkpoint(Path())
    assert f"# run, step {step}, " in model_card(checkpoint)


def test_no_model_is_invented_for_a_run_of_the_single_file_trainer(small_run):
    (small_run / "run.json").write_text(json.dumps({"trainer": "minimal", "arm": "tr_grpo", "settings": {"lr": 0.1}}))
    head, text = card(small_run)
    assert "base model: not recorded" in text and "tr_grpo" in text
    assert "verl" not in head["tags"] and "base_model" not in head
    (small_run / "options.json").write_text(json.dumps({"arm": "tr_grpo", "model": "org/tiny"}))
    head, text = card(small_run)
    assert head["base_model"] == "org/tiny" and "base model: org/tiny" in text


def test_wrong_input(exported, tmp_path, capsys):
    run_dir, _ = exported
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    out = str(tmp_path / "out")
    wrong = {
        "full has files": [str(run_dir), "--out", str(tmp_path / "full")],
        "has no checkpoint": [str(tmp_path / "full"), "--out", out],
    }
    for reason, words in wrong.items():
        assert main(["export", *words]) == 2
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_merged_checkpoint_of_verl_is_not_merged_again(run_dir, tmp_path):
    checkpoint = run_dir / "global_step_20"
    (checkpoint / "actor").mkdir(parents=True)
    (checkpoint / "actor/fsdp_config.json").write_text("{}")
    torch.save(
        {"no mesh": torch.ones(2)}, checkpoint / "actor/model_world_size_1_rank_0.pt"
    )  # no merger could take this
    shutil.copytree(run_dir / "global_step_5", checkpoint / "merged_hf")
    write_json(checkpoint / "merged_hf/merged_from.json", fingerprint(str(checkpoint / "actor")))
    assert main(["export", str(checkpoint), "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"README.md", "model.safetensors"} <= names and "merged_from.json" not in names
    assert "step 20" in (tmp_path / "out/README.md").read_text()


@pytest.fixture
def checkpoint(tmp_path):
    """The layout of a sharded veRL checkpoint, without weights."""
    actor = tmp_path / "run" / "global_step_5" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text("{}")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": 1}))
    torch.save({"w": torch.ones(2)}, actor / "model_world_size_1_rank_0.pt")
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
