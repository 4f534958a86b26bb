"""Benchmarks still call what they measure."""

import pytest
import torch

from tests.scripts import ROOT, load_scripts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_loss_that_is_compared_can_be_called_and_vanilla_is_the_first(dtype):
    [_, losses] = load_scripts(ROOT / "benchmarks", "paired", "bench_loss")
    calls = losses.candidates(2, 16, dtype)
    assert next(iter(calls)) == "verl vanilla" and "verl gspo" in calls
    for call in calls.values():
        call()
