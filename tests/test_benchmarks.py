"""Benchmarks still call what they measure, and the loss takes no more memory than vanilla."""

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.scripts import ROOT, load_scripts


@pytest.fixture(scope="module")
def losses():
    [_, module] = load_scripts(ROOT / "benchmarks", "paired", "bench_loss")
    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_loss_that_is_compared_can_be_called_and_vanilla_is_the_first(losses, dtype):
    calls = losses.candidates(2, 16, dtype)
    assert next(iter(calls)) == "verl vanilla" and "verl gspo" in calls
    for call in calls.values():
        call()


def peak_of_allocations(call, path):
    """Return the largest number of bytes that a call holds at once in tensors of its own."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    profiler.export_chrome_trace(str(path))
    changes = [event for event in json.loads(path.read_text())["traceEvents"] if event["name"] == "[memory]"]
    held = largest = 0
    for change in sorted(changes, key=lambda event: event["ts"]):
        held += change["args"]["Bytes"]
        largest = max(largest, held)
    return largest


def test_the_loss_holds_less_memory_than_vanilla(losses, tmp_path):
    calls = losses.candidates(64, 512, torch.float32)
    vanilla, ours = (peak_of_allocations(calls[name], tmp_path / name) for name in ("verl vanilla", "tr_grpo sigmoid"))
    assert 0 < ours <= 0.9 * vanilla
