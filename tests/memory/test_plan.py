"""Phases against an arithmetic of their own, and what lowers which."""

import math

import numpy as np
import pytest

from tests.memory.models import A, plan, setup, totals
from verl_trgrpo.memory.constants import ASLEEP, CARD, COMMUNICATION, CONSTANTS, CONTEXT, GRAPHS
from verl_trgrpo.memory.setup import MicroBatch
from verl_trgrpo.memory.shape import UnknownModelError

GIB = 2**30
P, H, L, V = 7_615_616_512, 3584, 28, 152_064
OFFLOAD = (f"{A}.actor.fsdp_config.param_offload=true", f"{A}.actor.fsdp_config.optimizer_offload=true")
CONTEXTS = 2 * CONTEXT.value + COMMUNICATION.value
PHASES = [
    "engine start", "cache", "weight sync", "rollout", "log-probabilities", "reference", "update", "optimizer step", "save",
]  # fmt: skip


def test_every_phase_is_there():
    assert [phase.name for phase in plan(f"{A}.actor.use_kl_loss=true").at(1024)] == PHASES
    assert [phase.name for phase in plan("trainer.save_freq=-1").at(1024)] == [
        name for name in PHASES if name not in ("reference", "save")
    ]


def test_phases_are_the_sums_of_the_formulas():
    found = totals(plan())
    share, weights = 0.5 * 80 * CARD.value, 4 * P / 4 / GIB
    asleep = ASLEEP.value + CONTEXTS
    expected = {
        "engine start": share + weights + CONTEXTS,
        "rollout": share + 3 * weights + CONTEXTS,
        # The engine's weights, a bucket of 2 GiB, and the largest tensor in 32 and in 16 bits.
        "weight sync": 2 * P / GIB + 2 + asleep + 3 * weights + 6 * V * H / GIB,
        # Weights, gradients, two states, and a copy.
        "optimizer step": asleep + 5 * weights,
        "save": asleep + 3 * weights,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=0.02)
    # 16,384 packed tokens: inputs of all layers, logits and their two gradients in 16 bits, reserved with 15 % more; two
    # layers and the root gathered, and the root's gradient.
    layer, root = (P - 2 * V * H - H) / L, 2 * V * H + H
    varying = 16384 * (2 * H * L + 6 * V) / GIB
    update = asleep + 4 * weights + 1.15 * varying + 2 * (2 * layer + root) / GIB + 2 * root / GIB
    assert totals(plan(f"{A}.actor.entropy_coeff=0.01"))["update"] == pytest.approx(update, abs=0.02)


def test_the_cache_has_to_hold_one_sequence():
    [cache] = [phase for phase in plan().at(1024) if phase.name == "cache"]
    assert cache.limit == pytest.approx(0.5 * 80 * CARD.value)
    assert cache.terms["one sequence"] == pytest.approx(4096 * 57344 / GIB)
    assert cache.terms["engine's weights"] == pytest.approx(2 * P / GIB)
    longer = plan(f"{A}.rollout.max_model_len=null").at(1024)[1]
    assert longer.terms["one sequence"] == pytest.approx(32768 * 57344 / GIB)
    assert cache.terms["CUDA graphs"] == GRAPHS.value
    assert "CUDA graphs" not in plan(f"{A}.rollout.enforce_eager=true").at(1024)[1].terms


def test_offload_lowers_the_phases_around_an_update_and_not_the_update():
    stay, away = totals(plan()), totals(plan(*OFFLOAD))
    assert away["update"] == stay["update"] and away["optimizer step"] == stay["optimizer step"]
    weights = 4 * P / 4 / GIB
    assert stay["rollout"] - away["rollout"] == pytest.approx(3 * weights, abs=0.02)
    # FSDP1 brings the weights back for the engine, FSDP2 sends them tensor by tensor.
    assert stay["weight sync"] - away["weight sync"] == pytest.approx(2 * weights, abs=0.02)
    assert away["weight sync"] - totals(plan(*OFFLOAD, f"{A}.actor.strategy=fsdp2"))["weight sync"] == pytest.approx(
        weights
    )
    policy = totals(plan(f"{A}.actor.strategy=fsdp2", f"{A}.actor.fsdp_config.offload_policy=true"))
    assert stay["update"] - policy["update"] == pytest.approx(4 * weights, abs=0.02)


def test_offloaded_weights_are_on_the_host():
    stay, away = (dict(plan(*more).host()) for more in ((), OFFLOAD))
    whole = 4 * P / GIB
    assert away["offloaded weights"] == pytest.approx(whole) and away["offloaded states"] == pytest.approx(2 * whole)
    assert not stay["offloaded weights"] and stay["weights that are loaded"] == pytest.approx(whole)
    tied = plan(name="Qwen2.5-3B")
    assert dict(tied.host())["weights that are loaded"] == pytest.approx(4 * 4 * tied.shape.parameters / GIB)


def test_adapters_gather_the_base_at_every_sync():
    lora = (f"{A}.model.lora_rank=32", f"{A}.rollout.load_format=safetensors")
    whole, layered = totals(plan(*lora)), totals(plan(*lora, f"{A}.rollout.layered_summon=true"))
    layer = (P - 2 * V * H - H) / L
    assert whole["weight sync"] - layered["weight sync"] == pytest.approx(4 * (P - layer) / GIB)
    assert totals(plan(*lora, f"{A}.actor.strategy=fsdp2"))["weight sync"] == pytest.approx(layered["weight sync"])
    weights = 4 * P / 4 / GIB
    assert totals(plan())["optimizer step"] - whole["optimizer step"] > 3.8 * weights


def test_what_acts_on_activations():
    trained = f"{A}.actor.entropy_coeff=0.01"
    usual = totals(plan(trained))
    assert totals(plan(trained, f"{A}.model.use_fused_kernels=true"))["update"] < usual["update"] - 16384 * 3 * V / GIB
    whole = totals(plan(trained, f"{A}.model.enable_gradient_checkpointing=false"))
    assert whole["update"] > usual["update"] + 16384 * 20 * 2e5 / GIB
    half = totals(plan(trained, f"{A}.actor.ppo_max_token_len_per_gpu=8192"))
    assert usual["update"] - half["update"] == pytest.approx(1.15 * 8192 * (2 * H * L + 6 * V) / GIB, rel=0.01)
    deferred = totals(plan(trained, f"{A}.actor.fsdp_config.use_no_sync_for_gradient_accumulation=true"))
    assert deferred["update"] - usual["update"] == pytest.approx(4 * P * 3 / 4 / GIB)


def test_tokens_of_a_micro_batch():
    packed = setup()
    assert packed.tokens(MicroBatch(16384, None), 128, 1024) == 16384
    assert packed.tokens(MicroBatch(16384, None), 4, 1024) == 4 * 1024  # no more than there are
    assert packed.tokens(MicroBatch(None, 64), 128, 4000) == 64 * 4096  # at most the allowed length
    padded = setup(f"{A}.model.use_remove_padding=false")
    expected = 500 * sum(1 / n for n in range(1, 5))  # the longest of four exponential lengths
    assert padded.tokens(MicroBatch(None, 4), 128, 500) == pytest.approx(4 * expected, rel=0.02)
    assert padded.tokens(MicroBatch(None, 64), 128, 4000) == 64 * 4096  # at most the allowed length
    # A budget of tokens holds more short responses, each padded to the longest.
    assert padded.tokens(MicroBatch(16384, None), 10**6, 512) > 3 * 16384


@pytest.mark.parametrize(("responses", "split"), [(8, 1), (32, 1), (8, 2)])
def test_the_micro_batch_with_the_most_tokens_counts(responses, split):
    run = setup(f"{A}.actor.ulysses_sequence_parallel_size={split}")
    cuts = run.cards // split * run.step_responses // responses
    drawn = np.random.default_rng(0).exponential(300, (2000, cuts, responses)).sum(-1).max(-1).mean() / split
    assert run.tokens(MicroBatch(None, responses), run.step_responses, 300) == pytest.approx(drawn, rel=0.12)
    alone = setup(f"{A}.actor.ulysses_sequence_parallel_size={split}", "data.train_batch_size=1", "trainer.n_gpus_per_node=1",
                  f"{A}.rollout.n={responses}") if split == 1 else None  # fmt: skip
    assert alone is None or alone.tokens(MicroBatch(None, responses), responses, 300) == responses * 300


def test_constants_have_source_and_error():
    for name, constant in CONSTANTS.items():
        assert constant.source and constant.unit and 0 <= constant.error <= constant.value, name
        assert math.isfinite(constant.value)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        (f"{A}.rollout.name=sglang", "sglang"), ("trainer.device=cpu", "without a card"),
        (f"{A}.actor.strategy=megatron", "megatron"), ("algorithm.adv_estimator=gae", "critic"),
        (f"{A}.actor.fsdp_config.model_dtype=fp8", "model_dtype"), ("trainer.v1.trainer_mode=separate_async", "cards of its own"),
        (f"{A}.actor.use_dynamic_bsz=false", "ppo_micro_batch_size_per_gpu"),
    ],
)  # fmt: skip
def test_runs_that_are_not_known(override, part):
    with pytest.raises(UnknownModelError, match=part):
        setup(override)
