"""Parallel sizes against the model's attention heads."""

import json

import pytest

from tests.conftest import composed
from tests.runs.validation import summary
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.checks.parallel import parallel_findings

TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size"
SEQUENCE = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"


def found(directory, heads, *overrides):
    (directory / "config.json").write_text(json.dumps(heads))
    return parallel_findings(composed([f"actor_rollout_ref.model.path={directory}", *overrides]).config)


@pytest.mark.parametrize(
    ("heads", "key", "size"),
    [
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, TENSOR, 4),
        ({"num_attention_heads": 14, "num_key_value_heads": 2}, SEQUENCE, 4),
        ({"text_config": {"num_attention_heads": 14}}, TENSOR, 4),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, TENSOR, 6),
    ],
)
def test_heads_that_cannot_be_split_are_an_error(tmp_path, heads, key, size):
    [finding] = found(tmp_path, heads, f"{TENSOR}=1", f"{key}={size}")
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
    assert found(tmp_path, heads, f"{TENSOR}={size}") == []
