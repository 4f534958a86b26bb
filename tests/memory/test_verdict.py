"""Verdicts on both sides of a boundary, the length at which a run breaks, and the setting that helps."""

import dataclasses

import pytest

from tests.memory.models import ADAMW, MODELS, A, plan, setup, totals
from verl_trgrpo.memory.plan import Plan
from verl_trgrpo.memory.run import MemoryAnswer
from verl_trgrpo.memory.shape import model_shape
from verl_trgrpo.memory.verdict import DEPENDS, DOES_NOT, FITS, NOT_KNOWN, memory_verdict, short_mean


def test_a_run_fits_fails_or_is_close():
    assert memory_verdict(plan()).line == "memory plan: fits"
    small = (f"{A}.rollout.gpu_memory_utilization=0.5", f"{A}.actor.fsdp_config.param_offload=true",
             f"{A}.actor.fsdp_config.optimizer_offload=true")  # fmt: skip
    needed = totals(plan(*small))["update"]
    kinds = {gb: memory_verdict(plan(*small, gb=gb)).kind for gb in (needed * each for each in (1.5, 1.05, 0.8))}
    assert list(kinds.values()) == [FITS, NOT_KNOWN, DOES_NOT]


def test_the_length_at_which_a_run_breaks():
    several = (f"{A}.actor.use_dynamic_bsz=false", f"{A}.rollout.log_prob_micro_batch_size_per_gpu=4")
    found = plan(*several, f"{A}.actor.ppo_micro_batch_size_per_gpu=32")
    verdict = memory_verdict(found)
    assert verdict.kind == DEPENDS and verdict.phase.name == "update"
    breaks = int(verdict.reason.split("mean of ")[1].split()[0])
    update = {
        mean: next(each for each in found.at(mean) if each.name == "update").share for mean in (breaks, breaks + 2)
    }
    assert update[breaks] <= 1 < update[breaks + 2]
    key, _, value = verdict.setting.partition("=")
    assert key == f"{A}.actor.ppo_micro_batch_size_per_gpu"
    assert memory_verdict(plan(*several, f"{key}={value}")).kind in (FITS, NOT_KNOWN)


@pytest.mark.parametrize(
    ("overrides", "gb", "phase", "key"),
    [
        ([f"{A}.rollout.gpu_memory_utilization=0.95"], 80, "rollout", "gpu_memory_utilization"),
        ([f"{A}.rollout.gpu_memory_utilization=0.1", "trainer.n_gpus_per_node=8"], 48, "cache", "gpu_memory_utilization"),
        ([f"{A}.model.lora_rank=32", f"{A}.rollout.load_format=safetensors", f"{A}.rollout.gpu_memory_utilization=0.45"], 48,
         "weight sync", "layered_summon"),
        ([f"{A}.actor.ppo_max_token_len_per_gpu=131072", f"{A}.rollout.log_prob_max_token_len_per_gpu=16384"], 80, "update",
         "ppo_max_token_len_per_gpu"),
        (["trainer.n_gpus_per_node=1", f"{A}.rollout.gpu_memory_utilization=0.3"], 80, "optimizer step", "nnodes"),
    ],
)  # fmt: skip
def test_the_setting_acts_in_the_phase_that_fails(overrides, gb, phase, key):
    found = plan(*overrides, gb=gb)
    failing = {each.name for each in found.at(short_mean(found.setup)) if each.share > 1}
    assert phase in failing
    verdict = memory_verdict(found)
    name, _, value = verdict.setting.rpartition("=")
    assert name.endswith(key), (verdict, failing)
    repaired = plan(*overrides, f"{name}={value}", gb=gb)
    assert all(each.share <= 1 for mean in (short_mean(found.setup), 4096) for each in repaired.at(mean))


def test_nothing_is_claimed_where_nothing_is_known():
    answer = MemoryAnswer(None, None, "a critic shares the cards", "--gpu-gb")
    assert list(answer.lines()) == ["memory plan: not known (a critic shares the cards)"]
    assert not any(letter.isdigit() for letter in answer.line)


def test_a_plan_without_any_setting_that_helps_says_so():
    shape = model_shape({**MODELS["Qwen2.5-72B"], "vocab_size": 10**7})
    verdict = memory_verdict(Plan(shape, dataclasses.replace(setup(), shards=4), 24, ADAMW))
    assert verdict.kind == DOES_NOT and verdict.setting == ""
