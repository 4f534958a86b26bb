"""Files of a run directory: whether a run continues, and what it was made from."""

import json
import os

import pytest
from omegaconf import OmegaConf

from tests.launch.launching import composed, save_checkpoint
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.environment import provenance
from verl_trgrpo.runs.records import write_record
from verl_trgrpo.runs.run_directory import (
    base_model,
    check_same_run,
    next_start,
    run_settings,
    short_path,
    write_config,
)

SEARCH = "actor_rollout_ref.rollout.custom.search"


def nested(**values):
    """A configuration from dotted keys."""
    config = OmegaConf.create()
    for key, value in {f"{SEARCH}.url": "http://127.0.0.1:8000", f"{SEARCH}.topk": 3, **values}.items():
        OmegaConf.update(config, key, value)
    return config


def test_a_run_continues_with_more_steps_and_at_another_address_but_not_with_other_settings(tmp_path):
    check_same_run(nested(), tmp_path)  # nothing recorded
    write_config(nested(), tmp_path)
    check_same_run(nested(**{"trainer.total_training_steps": 9, "trainer.test_freq": 1}), tmp_path)
    check_same_run(nested(**{f"{SEARCH}.url": "http://127.0.0.1:8001"}), tmp_path)
    with pytest.raises(InvalidInputError, match=r"search\.topk: 3 there, 9 asked for"):
        check_same_run(nested(**{f"{SEARCH}.topk": 9}), tmp_path)


def test_what_a_person_asked_for_is_named_before_what_follows_from_it(tmp_path):
    there = ["verl.trainer.main_ppo", "--config-name", "trgrpo_trainer", "algorithm=tr_grpo", "trainer.test_freq=2"]
    write_config(nested(a=1, actor=True), tmp_path)
    write_record(tmp_path, {"command": there})
    with pytest.raises(InvalidInputError) as refused:
        check_same_run(nested(a=2, actor=None), tmp_path, [*there[1:3], "algorithm=grpo", "+extra=1"])
    listed = str(refused.value).partition("(")[2].partition(")")[0].split("; ")
    assert listed == [
        "algorithm: tr_grpo there, grpo asked for", "extra: not set there, 1 asked for",
        "a: 1 there, 2 asked for", "actor: true there, null asked for",
    ]  # fmt: skip
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"\(a: 1 there"):
        check_same_run(nested(a=2, actor=True), tmp_path, there)


@pytest.mark.parametrize("content", ["", "data: {train_files: [", "- 1"])
def test_a_run_with_a_damaged_configuration_is_not_continued(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(InvalidInputError, match=r"trainer\.resume_mode=disable"):
        check_same_run(nested(), tmp_path)


@pytest.mark.parametrize(
    ("mode", "saved", "expected"),
    [
        ("auto", True, "the same command goes on from the latest checkpoint, global_step_7"),
        ("auto", False, "the same command starts from scratch"),
        ("disable", True, "with trainer.resume_mode=auto the command goes on"),
        ("resume_path", True, "starts again from trainer.resume_from_path"),
    ],
)
def test_the_next_start_depends_on_the_mode_and_on_what_was_saved(tmp_path, mode, saved, expected):
    if saved:
        save_checkpoint(tmp_path, 7)
    assert expected in next_start(OmegaConf.create({"trainer": {"resume_mode": mode}}), tmp_path)


def test_settings_of_a_verl_run_include_the_constants_of_the_weights(tmp_path):
    files = {
        "actor_rollout_ref__model__path": "/models/org/tiny",
        "data__train_files": ["/data/kk/a.parquet", "b.parquet"],
    }
    config = composed(tmp_path, **files).config
    write_config(config, tmp_path)
    found = run_settings(tmp_path)
    loss = "actor_rollout_ref.actor.policy_loss"
    assert found["model"] == "org/tiny" and found["training data"] == "kk/a.parquet, b.parquet"
    assert found[f"{loss}.shaping.alpha"] == 2.0 and found[f"{loss}.placement"] == "outside"
    assert base_model(tmp_path) == "/models/org/tiny"
    config.actor_rollout_ref.actor.policy_loss.shaping = None
    config.actor_rollout_ref.model.path = None
    write_config(config, tmp_path)
    assert not any("shaping" in key or key == "model" for key in run_settings(tmp_path))
    assert base_model(tmp_path) == ""


def test_settings_of_the_single_file_trainer_and_of_a_record(tmp_path):
    assert run_settings(tmp_path) == {} and base_model(tmp_path) == ""
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"steps": 3}}))
    assert run_settings(tmp_path) == {"steps": 3}
    options = {"lr": 0.1, "model": "/a/b/c", "train": "data/kk/a.parquet", "test": "", "out": "/x"}
    (tmp_path / "options.json").write_text(json.dumps(options))
    assert run_settings(tmp_path) == {"lr": 0.1, "model": "b/c", "training data": "kk/a.parquet"}
    assert base_model(tmp_path) == "/a/b/c"


@pytest.mark.parametrize(("name", "content"), [("config.yaml", "a: ["), ("options.json", "{")])
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} is (damaged|not JSON)"):
        run_settings(tmp_path)


def test_hub_names_are_not_shortened():
    paths = ("Qwen/Qwen2.5-3B", "gpt2", "/a/b/c", "~/x/y.parquet", "./a/b/c", "/c")
    assert [short_path(path) for path in paths] == ["Qwen/Qwen2.5-3B", "gpt2", "b/c", "x/y.parquet", "b/c", "/c"]


def test_the_machine_is_recorded_with_its_gpus(tmp_path, monkeypatch):
    """Each GPU is a line of nvidia-smi; without a driver there are none, and without git the commit is not known."""
    monkeypatch.setenv("PATH", str(tmp_path))
    plain = provenance(tmp_path)
    assert plain["commit"] is None and f"{os.cpu_count()} cores, Python" in plain["machine"]
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho NVIDIA H100\necho NVIDIA H100\necho NVIDIA L4\n")
    smi.chmod(0o755)
    assert "2 x NVIDIA H100, NVIDIA L4, Python" in provenance(tmp_path)["machine"]
