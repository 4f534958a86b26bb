"""Batches and memory against figures worked out by hand and against transformers' own count of parameters."""

from pathlib import Path

import pytest
import torch

from verl_trgrpo.runs.checks.model_facts import ModelFacts, read_model_facts
from verl_trgrpo.runs.validate import validate

PUZZLES = str(Path(__file__).parents[2] / "recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml")
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GIB = 2**30


def report(*overrides):
    return validate(PUZZLES, overrides, need_files=False)


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_of_the_model_within_a_percent(tied):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    figures = {
        "num_hidden_layers": 28, "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": tied,
    }  # fmt: skip
    with torch.device("meta"):
        model = Qwen2ForCausalLM(Qwen2Config(**figures))
        model.tie_weights()
    real = sum(parameter.numel() for parameter in model.parameters())
    assert ModelFacts(**figures).parameters == pytest.approx(real, rel=0.01)


def test_figures_that_are_not_positive_are_all_named():
    with pytest.raises(ValueError, match=r"(?s)hidden_size=0 .*vocab_size='x' "):
        ModelFacts(2, 0, 4, 2, 2, "x", 16)


def test_a_recipe_without_figures_says_so():
    assert "recipe.model does not state its figures" in read_model_facts(report("~recipe").config)
    with pytest.raises(ValueError, match=r"recipe.model lacks hidden_size"):
        read_model_facts(report("~recipe.model.hidden_size").config)


def test_batches_by_hand():
    fixed = [
        f"{ACTOR}.use_dynamic_bsz=false", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4", "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=4",
    ]  # fmt: skip
    batches = report(*fixed, "trainer.nnodes=2", f"{ACTOR}.ulysses_sequence_parallel_size=2").batches
    # 64 prompts x 8; two updates of 32 x 8; 8 GPUs in pairs; 256 / 4 = 64 responses in micro-batches of 4.
    assert (batches.prompts, batches.responses, batches.updates) == (64, 512, 2)
    assert (batches.gpus, batches.data_parallel) == (8, 4)
    assert (batches.responses_per_update, batches.responses_per_gpu, batches.micro_batches) == (256, 64, 16)
    # 4 sequences of 400 + 4096 tokens over a pair of GPUs.
    assert batches.tokens_per_micro_batch == 4 * 4496 // 2
    assert batches.steps_per_epoch is None and batches.total_steps is None


def test_dynamic_batches_are_bounded_by_the_longest_sequence():
    # 16384 tokens hold three sequences of 4496, so 64 responses take up to 22 micro-batches.
    assert report().batches.micro_batches == 22
    assert report(f"{ACTOR}.ppo_epochs=2").batches.updates == 4


def test_memory_by_hand():
    memory = report().memory
    parameters = 36 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11008) + 151936 * 2048
    assert memory.weights == pytest.approx(4 * parameters / 4 / GIB)
    assert memory.gradients == pytest.approx(memory.weights) and memory.optimizer == pytest.approx(2 * memory.weights)
    assert memory.logits == pytest.approx(8 * 16384 * 151936 / GIB)
    assert memory.activations == pytest.approx(2 * 16384 * (36 * 2048 + 2 * (6 * 2048 + 3 * 11008)) / GIB)
    assert memory.engine == pytest.approx(48)
    assert memory.resident == pytest.approx(memory.weights + memory.optimizer)
    # 36 layers x 2 heads x 128 x (key and value) x 2 bytes a token.
    free = 48 * GIB - 2 * parameters - 2 * GIB
    assert memory.kv_tokens == pytest.approx(free / (36 * 2 * 128 * 2 * 2), abs=1)


def test_memory_follows_the_choices_that_save_it():
    plain = report().memory
    offloaded = report(f"{ACTOR}.fsdp_config.param_offload=true", f"{ACTOR}.fsdp_config.optimizer_offload=true").memory
    assert offloaded.resident == 0 and offloaded.update == plain.update
    assert report("trainer.nnodes=2").memory.weights == pytest.approx(plain.weights / 2)
    assert report(f"{ACTOR}.fsdp_config.model_dtype=bf16").memory.optimizer == pytest.approx(plain.optimizer / 2)
    assert report("actor_rollout_ref.ref.fsdp_config.param_offload=false").memory.reference == pytest.approx(
        plain.weights
    )
    assert report("recipe.gpu_gib=40").memory.engine == pytest.approx(24)
    lora = report("actor_rollout_ref.model.lora_rank=16").memory
    # Adapters of rank 16 on q, k, v, o and three matrices of the MLP, shared by 4 GPUs, Adam with 8 bytes each.
    adapters = 36 * 16 * (2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 11008))
    assert lora.optimizer == pytest.approx(8 * adapters / 4 / GIB)
    assert lora.weights == pytest.approx(plain.weights)
