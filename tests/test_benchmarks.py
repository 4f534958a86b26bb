"""Benchmarks still call what they measure, and the loss takes no more memory than vanilla."""

import pytest
import torch

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


def test_a_peak_is_that_of_what_is_held_at_once(losses):
    block = 2**16 * 4  # bytes

    def call():
        held = torch.ones(2**16) + 1  # two blocks, of which one stays
        torch.cat([held, held])

    assert losses.peak_of_tensors(call) == pytest.approx(3 * block, rel=0.01)


def test_the_loss_holds_less_memory_than_vanilla(losses):
    calls = losses.candidates(64, 512, torch.float32)
    vanilla, ours = (losses.peak_of_tensors(calls[name]) for name in ("verl vanilla", "tr_grpo sigmoid"))
    assert 0 < ours <= 0.9 * vanilla
