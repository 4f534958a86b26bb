"""Misspelt keys of a recipe, which Hydra takes without a word."""

import pytest

from tests.runs.validation import validate
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.keys import key_findings
from verl_trgrpo.runs.compose import compose, defaults_of

RECIPE = """
defaults:
  - ppo_trainer
  - algorithm: tr_grpo
  - _self_
"""


def findings(tmp_path, content, *overrides):
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE + content)
    run = compose(path, overrides)
    return key_findings(run.config, defaults_of(run.choices), run.added)


@pytest.mark.parametrize(
    ("content", "key", "meant"),
    [
        ("trainer: {total_epoch: 3}", "trainer.total_epoch", "trainer.total_epochs?"),
        ("trainer: {save_frq: 3}", "trainer.save_frq", "trainer.save_freq?"),
        ("trainer: {n_gpu_per_node: 3}", "trainer.n_gpu_per_node", "trainer.n_gpus_per_node?"),
        ("data: {max_respnse_length: 3}", "data.max_respnse_length", "data.max_response_length?"),
        ("rewrad: {custom_reward_function: {path: x.py}}", "rewrad", "reward?"),
        ("actor_rollout_ref: {actor: {optim: {lrr: 1}}}", "actor_rollout_ref.actor.optim.lrr", "optim.lr?"),
        ("actor_rollout_ref: {model: {pth: x}}", "actor_rollout_ref.model.pth", "model.path?"),
        ("actor_rollout_ref: {actor: {policy_loss: {placment: inside}}}", "placment", "placement?"),
        ("actor_rollout_ref: {actor: {lr: 1}}", "actor_rollout_ref.actor.lr", "actor_rollout_ref.actor.optim.lr?"),
        ("n_gpus_per_node: 8", "n_gpus_per_node", "trainer.n_gpus_per_node?"),
        ("seed: 3", "seed", "data.seed?"),
        ("trainer: {train_batch_size: 3}", "trainer.train_batch_size", "data.train_batch_size?"),
        ("zebra: 1", "zebra", "remove it"),
    ],
)
def test_a_misspelt_key_is_an_error_that_names_the_right_one(tmp_path, content, key, meant):
    [finding], config = findings(tmp_path, content)
    assert finding.level is Level.ERROR and key in finding.message and meant in finding.message
    assert config == compose(tmp_path / "mine.yaml", [f"~{finding.where}"]).config


def test_a_section_in_the_wrong_place_is_an_error(tmp_path):
    [finding], config = findings(tmp_path, "rollout: {n: 8}")
    assert finding.level is Level.ERROR and "rollout" not in config


def test_what_takes_any_key_is_left_alone(tmp_path):
    free = """
actor_rollout_ref:
  rollout: {engine_kwargs: {vllm: {max_logprobs: 5}}, custom: {mine: {a: 1}}}
  model: {override_config: {attn_implementation: sdpa}}
  actor: {policy_loss: {shaping: {name: linear, slope: 0.5}}}
"""
    assert findings(tmp_path, free)[0] == []


def test_fields_of_verls_dataclasses_are_known_without_a_line_in_its_defaults(tmp_path):
    assert "teacher_key" not in compose("ppo_trainer").config.algorithm
    assert findings(tmp_path, "algorithm: {kl_ctrl: {horizon: 5}}")[0] == []


def test_a_plus_adds_a_key_on_purpose(tmp_path):
    assert findings(tmp_path, "", "+trainer.mine=1", "++data.own.deep=2")[0] == []


def test_a_plus_for_a_whole_section_adds_only_what_it_gives(tmp_path):
    found, _ = findings(tmp_path, "trainer: {total_epoch: 3}", "+trainer={mine: 1}", "+trainer.own={deep: {er: 2}}")
    assert [finding.where for finding in found] == ["trainer.total_epoch"]


@pytest.mark.parametrize(
    ("content", "where", "part"),
    [
        (
            "actor_rollout_ref: {rollout: {custom: {serch: {topk: 3}, mine: 1}}}",
            "custom.serch",
            "rollout.custom.search?",
        ),
        ("custom_reward_function: {path: x.py}", "custom_reward_function", "reward.custom_reward_function"),
        ("reward_model: {reward_manager: dapo}", "reward_model", "reward_manager=dapo"),
    ],
)
def test_keys_that_nothing_reads_are_warnings(tmp_path, content, where, part):
    [finding], _ = findings(tmp_path, content)
    assert finding.level is Level.WARNING and finding.where.endswith(where) and part in finding.message


def test_a_group_added_with_a_plus_says_nothing_of_the_keys_in_its_section(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [ppo_trainer, _self_]\nalgorithm: {gama: 0.9}")
    run = compose(path, ["+algorithm=tr_grpo"])
    [(finding)], _ = key_findings(run.config, defaults_of(run.choices), run.added)
    assert finding.where == "algorithm.gama"


@pytest.mark.parametrize("content", ["trainer: {wandb_proxy: x}", "data: {cache_dir: x}"])
def test_a_key_that_verl_reads_without_a_default_is_a_warning(tmp_path, content):
    [finding], _ = findings(tmp_path, content)
    assert finding.level is Level.WARNING and finding.where in ("trainer.wandb_proxy", "data.cache_dir")


def test_all_of_them_come_out_of_validate_at_once_and_hide_nothing_else(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        RECIPE + "trainer: {total_epoch: 3}\nactor_rollout_ref: {model: {pth: x}, rollout: {n: 0}}\nrewrad: 1"
    )
    found = "\n".join(validate(path, need_files=False).messages(Level.ERROR))
    for part in (
        "trainer.total_epoch",
        "actor_rollout_ref.model.pth",
        "rewrad",
        "rollout.n=0",
        "rollout.name has no value",
    ):
        assert part in found, part
    assert "unexpected keyword" not in found


@pytest.mark.parametrize("part", ["actor_rollout_ref.actor", "critic"])
def test_a_clip_that_no_engine_reads_is_a_warning_with_the_one_that_is_read(tmp_path, part):
    [finding] = findings(tmp_path, "", f"{part}.grad_clip=0.5")[0]
    assert finding.level is Level.WARNING and finding.where == f"{part}.grad_clip"
    assert f"{part}.optim.clip_grad" in finding.message
    assert findings(tmp_path, "", f"{part}.optim.clip_grad=0.5")[0] == []
