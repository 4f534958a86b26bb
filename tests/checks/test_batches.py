"""Sizes that do not divide each other, or the model's attention heads."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.checks.validation import summary
from tests.conftest import composed
from verl_trgrpo.checks.sizes import SIZES, head_findings, micro_batch_findings
from verl_trgrpo.checks.tables import rule_findings
from verl_trgrpo.checks.view import RunView
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


def batch_findings(view):
    return [*rule_findings(view, SIZES), *micro_batch_findings(view), *head_findings(view)]


@pytest.fixture
def view(tmp_path):
    """``view(*overrides, rows=None)``: a run with so many training rows; None for files that are not here."""

    def of(*overrides, rows=None):
        path = tmp_path / "train.parquet"
        if rows is not None:
            pq.write_table(pa.table({"data_source": ["a"] * rows}), path)
        return RunView(composed([*SOUND, f"data.train_files={path if rows is not None else 'none'}", *overrides]))

    return of


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
def test_a_size_that_does_not_divide(view, key, value, level, part):
    [finding] = batch_findings(view(f"{key}={value}"))
    assert (finding.where, finding.level) == (key, level)
    assert finding.message.startswith(f"{key}={value}") and part in finding.message
    assert batch_findings(view()) == []


def test_several_are_found_at_once(view):
    wrong = ["trainer.n_gpus_per_node=3", f"{ROLLOUT}.tensor_model_parallel_size=2"]
    keys = ["data.train_batch_size", f"{ROLLOUT}.tensor_model_parallel_size", f"{ACTOR}.ppo_mini_batch_size"]
    assert summary(batch_findings(view(*wrong, rows=7))) == [(key, Level.ERROR) for key in keys]


@pytest.mark.parametrize(
    ("asked", "rows", "steps"),
    [("null", 130, 6), ("null", None, None), (5, None, 5), (5, 130, 5), (1000, None, 1000), (1000, 130, 6)],
)
def test_steps_are_those_of_whole_batches(view, asked, rows, steps):
    given = ["trainer.total_epochs=3", f"trainer.total_training_steps={asked}"]
    assert view(*given, rows=rows).steps == steps


def test_more_steps_than_the_epochs_have_is_a_warning(view):
    key, rows = "trainer.total_training_steps", 64 * 64 + 63

    def found(steps, epochs, rows=rows):
        return batch_findings(view(f"{key}={steps}", f"trainer.total_epochs={epochs}", rows=rows))

    [finding] = found(1000, 1)
    assert (finding.where, finding.level) == (key, Level.WARNING) and finding.message.startswith(f"{key}=1000")
    assert "64 steps" in finding.message and "trainer.total_epochs=16" in finding.message
    assert found(64, 1) == found(1000, 16) == found("null", 1) == found(1000, 1, rows=None) == []
    assert summary(found(1000, 1, rows=7)) == [("data.train_batch_size", Level.ERROR)]


def test_a_warm_up_that_is_longer_than_the_run_is_a_warning(view):
    key, steps = f"{ACTOR}.optim.lr_warmup_steps", "trainer.total_training_steps"
    [finding] = batch_findings(view(f"{key}=50", f"{steps}=50"))
    assert finding.where == key and finding.level is Level.WARNING and f"{key}=50" in finding.message
    assert batch_findings(view(f"{key}=50", f"{steps}=51")) == batch_findings(view(f"{key}=50")) == []
    assert batch_findings(view(f"{steps}=1")) == []


def test_a_warm_up_counts_the_updates_of_each_step(view):
    mode = ["trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=4"]
    given, steps = [f"{ACTOR}.optim.lr_warmup_steps=50", *mode], "trainer.total_training_steps"
    assert batch_findings(view(*given, f"{steps}=20")) == [] and len(batch_findings(view(*given, f"{steps}=10"))) == 1


TENSOR_PARALLEL, SEQUENCE_PARALLEL = f"{ROLLOUT}.tensor_model_parallel_size", f"{ACTOR}.ulysses_sequence_parallel_size"


def split_over_gpus(directory, heads, *overrides):
    (directory / "config.json").write_text(json.dumps(heads))
    model, sizes = f"actor_rollout_ref.model.path={directory}", [f"{TENSOR_PARALLEL}=1", "trainer.n_gpus_per_node=24"]
    run = composed([*SOUND, "data.train_batch_size=96", f"{ACTOR}.ppo_mini_batch_size=96", *sizes, model, *overrides])
    return [each for each in batch_findings(RunView(run)) if "heads" in each.message]


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
