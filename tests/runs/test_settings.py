"""What a run was made of, from whichever file it has."""

import json

import pytest
from omegaconf import OmegaConf

from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.settings import base_model, run_settings, short_place


def test_of_verls_configuration_what_matters_with_the_constants_of_the_weights(tmp_path):
    overrides = ["actor_rollout_ref.model.path=/models/org/tiny", "data.train_files=[/data/kk/a.parquet,b.parquet]"]
    OmegaConf.save(compose("kk_quickstart", overrides).config, tmp_path / "config.yaml")
    found = run_settings(tmp_path)
    loss = "actor_rollout_ref.actor.policy_loss"
    assert found["model"] == "org/tiny" and found["training data"] == "kk/a.parquet, b.parquet"
    assert found[f"{loss}.shaping.alpha"] == 2.0 and found[f"{loss}.placement"] == "outside"
    assert found["actor_rollout_ref.actor.optim.lr"] == 1e-4
    OmegaConf.save(compose("kk_quickstart", [*overrides, "algorithm=grpo"]).config, tmp_path / "config.yaml")
    assert not any("shaping" in key for key in run_settings(tmp_path))


def test_of_the_single_file_trainer_its_options(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps({"lr": 0.1, "model": "/a/b/c", "test": "", "out": "/x"}))
    assert run_settings(tmp_path) == {"lr": 0.1, "model": "b/c"}


def test_data_has_the_same_names_whichever_trainer_it_was(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps({"train": "data/kk/a.parquet", "test": "b.parquet"}))
    assert run_settings(tmp_path) == {"training data": "kk/a.parquet", "validation data": "b.parquet"}


def test_without_either_what_the_record_says(tmp_path):
    assert run_settings(tmp_path) == {}
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"steps": 3}}))
    assert run_settings(tmp_path) == {"steps": 3}


@pytest.mark.parametrize(("name", "content"), [("config.yaml", "a: ["), ("options.json", "{")])
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        run_settings(tmp_path)


def test_names_on_a_hub_stay():
    places = ("Qwen/Qwen2.5-3B", "gpt2", "/a/b/c", "~/x/y.parquet", "a/b/c/train.parquet", "./a/b/c", "/c")
    assert [short_place(place) for place in places] == [
        "Qwen/Qwen2.5-3B", "gpt2", "b/c", "x/y.parquet", "c/train.parquet", "b/c", "/c",
    ]  # fmt: skip


def test_the_base_model_is_named_in_full(tmp_path):
    assert base_model(tmp_path) == ""
    (tmp_path / "options.json").write_text(json.dumps({"model": "/a/b/c"}))
    assert base_model(tmp_path) == "/a/b/c"
    OmegaConf.save({"actor_rollout_ref": {"model": {"path": "runs/x/model"}}}, tmp_path / "config.yaml")
    assert base_model(tmp_path) == "runs/x/model"
    OmegaConf.save({"actor_rollout_ref": {"model": {"path": None}}}, tmp_path / "config.yaml")
    assert base_model(tmp_path) == "" and "model" not in run_settings(tmp_path)
