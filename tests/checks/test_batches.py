"""Sizes that do not divide each other, or the model's attention heads."""

import json

import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.batches import batch_findings, parallel_findings, total_steps, warm_up_findings
from verl_trgrpo.common.findings import Level

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
# 64 prompts of 8 responses, 32 prompts an update, 4 GPUs.
SOUND = [
    "data.train_batch_size=64", f"{ACTOR}.ppo_mini_batch_size=32", f"{ROLLOUT}.n=8", "trainer.n_gpus_per_node=4",
    f"{ACTOR}.use_dynamic_bsz=false", f"{ACTOR}.use_kl_loss=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=false",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=8", f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
    f"{REF}.log_prob_micro_batch_size_per_gpu=8", f"{REF}.log_prob_use_dynamic_bsz=false",
    f"{ROLLOUT}.tensor_model_parallel_size=2",
]  # fmt: skip


def findings(*overrides, rows=None):
    return batch_findings(composed([*SOUND, *overrides]).config, rows)


@pytest.mark.parametrize(
    ("key", "value", "level", "part"),
    [
        (f"{ACTOR}.ppo_mini_batch_size", 128, Level.ERROR, "data.train_batch_size=64"),
        (f"{ACTOR}.ppo_mini_batch_size", 24, Level.WARNING, "data.train_batch_size=64"),
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", 7, Level.ERROR, "64 responses"),
        (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 6, Level.ERROR, "128 responses"),
        (f"{REF}.log_prob_micro_batch_size_per_gpu", 6, Level.ERROR, "128 responses"),
        (f"{ROLLOUT}.tensor_model_parallel_size", 3, Level.ERROR, "4 GPUs"),
        (f"{ACTOR}.ulysses_sequence_parallel_size", 3, Level.ERROR, "4 GPUs"),
    ],
)
def test_a_size_that_does_not_divide(key, value, level, part):
    [finding] = findings(f"{key}={value}")
    assert (finding.where, finding.level) == (key, level)
    assert finding.message.startswith(f"{key}={value}") and part in finding.message
    assert findings() == []


def test_several_are_found_at_once():
    wrong = ["trainer.n_gpus_per_node=3", f"{ROLLOUT}.tensor_model_parallel_size=2"]
    keys = ["data.train_batch_size", f"{ROLLOUT}.tensor_model_parallel_size", f"{ACTOR}.ppo_mini_batch_size"]
    assert summary(findings(*wrong, rows=7)) == [(key, Level.ERROR) for key in keys]


def test_megatron_is_not_checked():
    assert summary(findings(f"{ACTOR}.strategy=megatron")) == [(f"{ACTOR}.strategy", Level.NOT_CHECKED)]


def test_steps_are_those_of_whole_batches():
    config = composed([*SOUND, "trainer.total_epochs=3"]).config
    assert (total_steps(config, 130), total_steps(config, None)) == (6, None)
    config.trainer.total_training_steps = 5
    assert (total_steps(config, None), total_steps(config, 130)) == (5, 5)
    config.trainer.total_training_steps = 1000
    assert (total_steps(config, None), total_steps(config, 130)) == (1000, 6)


def test_more_steps_than_the_epochs_have_is_a_warning():
    key, rows = "trainer.total_training_steps", 64 * 64 + 63

    def found(steps, epochs, rows=rows):
        return findings(f"{key}={steps}", f"trainer.total_epochs={epochs}", rows=rows)

    [finding] = found(1000, 1)
    assert (finding.where, finding.level) == (key, Level.WARNING) and finding.message.startswith(f"{key}=1000")
    assert "64 steps" in finding.message and "trainer.total_epochs=16" in finding.message
    assert found(64, 1) == found(1000, 16) == found("null", 1) == found(1000, 1, rows=None) == []
    assert summary(found(1000, 1, rows=7)) == [("data.train_batch_size", Level.ERROR)]


def test_a_warm_up_that_is_longer_than_the_run_is_a_warning():
    key = f"{ACTOR}.optim.lr_warmup_steps"
    config = composed([f"{key}=50"]).config
    [finding] = warm_up_findings(config, 50)
    assert finding.where == key and finding.level is Level.WARNING and f"{key}=50" in finding.message
    assert warm_up_findings(config, 51) == [] and warm_up_findings(config, None) == []
    assert warm_up_findings(composed().config, 1) == []


def test_a_warm_up_counts_the_updates_of_each_step():
    mode = ["trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=4"]
    config = composed([f"{ACTOR}.optim.lr_warmup_steps=50", *mode]).config
    assert warm_up_findings(config, 20) == [] and len(warm_up_findings(config, 10)) == 1


TENSOR_PARALLEL, SEQUENCE_PARALLEL = f"{ROLLOUT}.tensor_model_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size"


def split_over_gpus(directory, heads, *overrides):
    (directory / "config.json").write_text(json.dumps(heads))
    return parallel_findings(composed([f"actor_rollout_ref.model.path={directory}", *overrides]).config)


@pytest.mark.parametrize(
    ("heads", "key", "size"),
    [
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, TENSOR_PARALLEL, 4),
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, SEQUENCE_PARALLEL, 4),
        ({"text_config": {"num_attention_heads": 14}}, TENSOR_PARALLEL, 4),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, TENSOR_PARALLEL, 6),
    ],
)
def test_heads_that_cannot_be_split_are_an_error(tmp_path, heads, key, size):
    [finding] = split_over_gpus(tmp_path, heads, f"{TENSOR_PARALLEL}=1", f"{key}={size}")
    assert summary([finding]) == [(key, Level.ERROR)] and f"{key}={size}" in finding.message


@pytest.mark.parametrize(
    ("heads", "size"),
    [
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, 2),
        ({"num_attention_heads": 32, "num_key_value_heads": 4}, 8),
        ({}, 3),
    ],
)
def test_heads_that_can_be_split_or_are_not_known_are_not(tmp_path, heads, size):
    assert split_over_gpus(tmp_path, heads, f"{TENSOR_PARALLEL}={size}") == []
