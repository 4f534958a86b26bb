"""Benchmarks call what they measure; the check for a GPU, on the processor: what it compares, counts and calls a failure."""

import json
import math
import re
import sys

import pytest
import torch

from tests.scripts import ROOT, load_scripts


@pytest.fixture(scope="module")
def check():
    [module] = load_scripts(ROOT / "benchmarks", "gpu_check")
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(check, capsys):
    assert check.main([]) == 2
    assert "--device cpu" in capsys.readouterr().err


def test_a_word_that_cannot_be_built_fails_alone(check):
    [row] = check.compared("no_such_word", "cpu")
    assert row.ok is False and "no_such_word" in row.found


def test_a_difference_is_relative_to_the_largest_value_and_a_nan_is_one(check):
    expected = torch.tensor([1.0, -4.0, 0.0, 2.0])
    assert check.difference(expected + torch.tensor([0.0, 0.0, 0.4, 0.0]), expected, 0.05) == (pytest.approx(0.1), 0.25)
    assert check.difference(torch.tensor([math.nan, -4.0, 0.0, 2.0]), expected, 0.05) == (math.inf, 0.25)


def test_another_gradient_on_the_device_fails(check, monkeypatch):
    found, calls = check.Algorithm.loss_and_gradient, []

    def second_is_off(self, batch):
        calls.append(batch)
        loss, gradient = found(self, batch)
        return loss, gradient * (1.1 if len(calls) % 2 == 0 else 1.0)

    monkeypatch.setattr(check.Algorithm, "loss_and_gradient", second_is_off)
    assert [row.ok for row in check.compared("tr_grpo", "cpu")] == [False, False]


def test_what_a_gpu_would_be_waited_for_is_counted(check):
    values = torch.arange(4.0)
    counts = {
        lambda: values.square().sum(): 0,
        lambda: values.sum().item(): 1,
        lambda: torch.stack([values.sum(), values.mean()]).tolist(): 1,
        lambda: values[values > 1].sum(): 1,
        lambda: float(values.sum()) if values.any() else 0.0: 2,
    }
    assert [check.synchronisations(call, "cpu") for call in counts] == list(counts.values())


@pytest.mark.parametrize(
    ("code", "line"),
    [("pass", ""), ("raise SystemExit('broken')", ""), ("pass", '{"step": 1, "data": {"actor/grad_norm": NaN}}')],
)
def test_a_training_without_its_steps_or_with_a_gradient_that_is_not_finite_fails(code, line, check, tmp_path):
    (tmp_path / "metrics-1.jsonl").write_text(line)
    row = check.training("name", [sys.executable, "-c", code], tmp_path, 1)
    assert row.ok is False and ("SystemExit" not in code or "broken" in row.found)


def test_the_page_has_the_ratios_of_its_record():
    [runner] = load_scripts(ROOT / "benchmarks", "run_all")
    found = json.loads((ROOT / "docs/measurements/benchmarks.json").read_text())["benchmarks"]
    rows = [row for row in (ROOT / "docs/benchmarks.md").read_text().splitlines() if " | at most " in row]
    lines = runner.aims(found)
    assert len(lines) == len(rows) == len(runner.AIMS) + 1
    for line in lines:
        ratio, bound, verdict = re.search(r": ([\d.]+), at most ([\d.]+): (.+)", line).groups()
        assert [
            f"at most {bound} " in row and ("not met" in row) is (verdict != "met") for row in rows if ratio in row
        ] == [True]


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
